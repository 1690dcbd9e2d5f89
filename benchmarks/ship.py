"""Put trained runs into the package: quantised weights, a model card, and the accuracy after quantisation.

    python benchmarks/ship.py RUN [RUN ...] [--bits 6] [--device cuda] [--note TEXT]

Eight bits, or six for a large network. What is measured is in
accuracy.py, which measures shipped runs anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from riffle.files import read_json, write_atomically, write_json
from riffle.train.card import CELLS, measure_accuracy, model_card, write_scores
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED, ship_run


def ship_measured(run: Run, note: str | None, bits: int, device: str, cells: int) -> None:
    """Write weights, environment, accuracy and model card of a run into the package."""
    folder = SHIPPED / run.config.task
    ship_run(run, folder, bits)
    about = read_json(run.folder / "environment.json")
    write_json(folder / "environment.json", {**about, "note": note} if note else about)
    shipped = Run(folder)
    write_scores(shipped, measure_accuracy(shipped, device=device, cells=cells), device)
    write_atomically(folder / "README.md", model_card(shipped).encode())


def main() -> None:
    """Ship the runs that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--note", help="A note for the model card.")
    parser.add_argument("--bits", type=int, default=8, help="Bits of a rounded weight.")
    parser.add_argument("--device", default="cpu", help="Where to measure.")
    parser.add_argument("--cells", type=int, default=CELLS, help="Cells of all examples of one length together.")
    arguments = parser.parse_args()
    for folder in arguments.runs:
        ship_measured(Run(folder), arguments.note, arguments.bits, arguments.device, arguments.cells)


if __name__ == "__main__":
    main()
