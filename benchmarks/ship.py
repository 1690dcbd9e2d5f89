"""Put trained runs into the package: quantised weights, a model card, and the accuracy after quantisation.

    python benchmarks/ship.py RUN [RUN ...] [--bits 6] [--device cuda] [--note TEXT]

Eight bits, or six for a large network: the file stays as large and the wheel becomes smaller.

Accuracy is measured at lengths from 8 to 1,024 times the trained length, at most 65,536, for worst cases to 16 times,
with as many examples as a CPU evaluates in two minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from rich.progress import track

from riffle.environment import environment
from riffle.files import read_json, write_atomically, write_json
from riffle.tasks import get_task
from riffle.train.evaluate import Score, evaluate
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED, model_card, ship_run

CELLS = 2**17
"""Cells of all examples of one length together."""
LONGEST = 2**16
MOST_EXAMPLES, FEWEST_EXAMPLES = 512, 2


def evaluated_lengths(trained: int) -> list[int]:
    """Every power of two up to the trained length, then every second one up to the longest.

    >>> evaluated_lengths(64)
    [8, 16, 32, 64, 256, 1024, 4096, 16384, 65536]
    """
    short = [length for length in (8, 16, 32, 64, 128) if length <= trained]
    return [*short, *(trained * 4**power for power in range(1, 6) if trained * 4**power <= LONGEST)]


def measure_accuracy(run: Run, device: str) -> list[Score]:
    """Accuracy over lengths, and that of worst cases where they are not too long."""
    task, trained = get_task(run.config.task), run.config.data.longest_input
    lengths = evaluated_lengths(trained)
    work = [("uniform", length, CELLS) for length in lengths]
    work += [(split, length, CELLS // 8) for split in task.splits for length in lengths if length <= 16 * trained]
    model, scores = run.model(device), list[Score]()
    for split, length, cells in track(work, description=task.name):
        examples = max(FEWEST_EXAMPLES, min(MOST_EXAMPLES, cells // length))
        scores += evaluate(model, task, [length], splits=[split], examples=examples, trained_length=trained)
    return scores


def ship_measured(run: Run, note: str | None, bits: int, device: str) -> None:
    """Write weights, environment, accuracy and model card of a run into the package."""
    folder = SHIPPED / run.config.task
    ship_run(run, folder, bits)
    about = read_json(run.folder / "environment.json")
    write_json(folder / "environment.json", {**about, "note": note} if note else about)
    shipped = Run(folder)
    scores = [asdict(score) for score in measure_accuracy(shipped, device)]
    write_json(folder / "evaluation.json", {"scores": scores, "environment": environment(torch.device(device))})
    write_atomically(folder / "README.md", model_card(shipped).encode())


def main() -> None:
    """Ship the runs that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--note", help="A note for the model card.")
    parser.add_argument("--bits", type=int, default=8, help="Bits of a rounded weight.")
    parser.add_argument("--device", default="cpu", help="Where to measure.")
    arguments = parser.parse_args()
    for folder in arguments.runs:
        ship_measured(Run(folder), arguments.note, arguments.bits, arguments.device)


if __name__ == "__main__":
    main()
