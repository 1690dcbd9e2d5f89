"""Put trained runs into the package: weights in int8, a card, and the accuracy of what they are after rounding.

    python benchmarks/ship.py RUN [RUN ...] [--note TEXT]

Lengths go from 8 to 1,024 times the trained one, at most 65,536, those of worst cases to 16 times, with as many
examples as a CPU scores in two minutes.
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
"""Of all examples of a length together."""
LONGEST = 2**16
MOST, LEAST = 512, 2
"""Examples of a length."""


def lengths(trained: int) -> list[int]:
    """Every power of two to the trained length, then every second one to the longest.

    >>> lengths(64)
    [8, 16, 32, 64, 256, 1024, 4096, 16384, 65536]
    """
    short = [length for length in (8, 16, 32, 64, 128) if length <= trained]
    return [*short, *(trained * 4**power for power in range(1, 6) if trained * 4**power <= LONGEST)]


def measured(run: Run) -> list[Score]:
    """Accuracy over lengths, and that of worst cases where they are not too long."""
    task, trained = get_task(run.config.task), max(run.config.data.bins)
    work = [("uniform", length, CELLS) for length in lengths(trained)]
    work += [
        (split, length, CELLS // 8) for split in task.splits for length in lengths(trained) if length <= 16 * trained
    ]
    model, scores = run.model(), list[Score]()
    for split, length, cells in track(work, description=task.name):
        examples = max(LEAST, min(MOST, cells // length))
        scores += evaluate(model, task, [length], splits=[split], examples=examples, trained_length=trained)
    return scores


def put(run: Run, note: str | None) -> None:
    """Ship a run and describe it."""
    folder = SHIPPED / run.config.task
    ship_run(run, folder)
    about = read_json(run.folder / "environment.json")
    write_json(folder / "environment.json", {**about, "note": note} if note else about)
    shipped = Run(folder)
    found = [asdict(score) for score in measured(shipped)]
    write_json(folder / "evaluation.json", {"scores": found, "environment": environment(torch.device("cpu"))})
    write_atomically(folder / "README.md", model_card(shipped).encode())


def main() -> None:
    """Ship the runs that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--note", help="What the card should say besides.")
    wanted = parser.parse_args()
    for folder in wanted.runs:
        put(Run(folder), wanted.note)


if __name__ == "__main__":
    main()
