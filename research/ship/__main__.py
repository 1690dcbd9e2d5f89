"""Put trained runs into the package: rounded weights, a model card, and the accuracy after rounding.

    python -m research.ship RUN [RUN ...] [--bits 6] [--device cuda] [--note TEXT]

Weights are rounded to eight bits, or with ``--bits 6`` to six, for a large network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from research.registry import register
from research.ship.card import CELLS
from research.ship.ship import ship_measured
from riffle.train.run import Run


def main() -> None:
    """Ship the runs that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--note", help="A note for the model card.")
    parser.add_argument("--bits", type=int, default=8, help="Bits of a rounded weight.")
    parser.add_argument("--device", default="cpu", help="Where to measure.")
    parser.add_argument("--cells", type=int, default=CELLS, help="Cells of all examples of one length together.")
    arguments = parser.parse_args()
    register()
    for folder in arguments.runs:
        ship_measured(Run(folder), arguments.note, arguments.bits, arguments.device, arguments.cells)


if __name__ == "__main__":
    main()
