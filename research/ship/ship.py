"""Put trained runs into the package: quantised weights, a model card, and the accuracy after quantisation.

    python benchmarks/ship.py RUN [RUN ...] [--bits 6] [--device cuda] [--note TEXT]

Eight bits, or six for a large network. What is measured is in
accuracy.py, which measures shipped runs anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from research.ship.card import CELLS, measure_accuracy, model_card, write_scores
from riffle.files import read_json, write_atomically, write_json
from riffle.train.checkpoint import add_prefix, quantize, quantized_bits, read_checkpoint, write_checkpoint
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED


def ship_run(run: Run, folder: Path, bits: int = 8) -> None:
    """Write a run as a small folder: weights of a few bits, configuration, evaluation and a model card.

    Weights that were rounded to as few bits before are not rounded again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = read_checkpoint(run.checkpoint, "model.")
    if quantized_bits(weights) > bits:
        weights = quantize(run.model().state_dict(), bits)
    steps = {"step": torch.tensor(run.saved_step())}
    if run.config.train.keep == "best":
        steps["best.step"] = torch.tensor(run.weights_step())
    write_checkpoint(folder / run.checkpoint.name, add_prefix(weights, "model.") | steps)
    for name in ("config.json", "environment.json", "evaluation.json"):
        if (run.folder / name).exists():
            write_atomically(folder / name, (run.folder / name).read_bytes())
    write_atomically(folder / "README.md", model_card(Run(folder)).encode())


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
