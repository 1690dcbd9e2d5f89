"""A trained run as a small folder: rounded weights, configuration, evaluation and model card."""

from __future__ import annotations

from pathlib import Path

import torch

from research.ship.card import measure_accuracy, model_card, write_scores
from research.ship.quantize import quantize, quantized_bits
from riffle.files import read_json, write_atomically, write_json
from riffle.train.checkpoint import add_prefix, read_checkpoint, write_checkpoint
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED


def ship_run(run: Run, folder: Path, bits: int = 8) -> None:
    """Write a run as a small folder; weights that were rounded to so many bits before are not rounded again."""
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
    """Ship a run into the package, measure the rounded weights, and write the accuracy and the card."""
    folder = SHIPPED / run.config.task
    ship_run(run, folder, bits)
    about = read_json(run.folder / "environment.json")
    write_json(folder / "environment.json", {**about, "note": note} if note else about)
    shipped = Run(folder)
    write_scores(shipped, measure_accuracy(shipped, device=device, cells=cells), device)
    write_atomically(folder / "README.md", model_card(shipped).encode())
