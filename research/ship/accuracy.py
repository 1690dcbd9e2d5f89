"""Measure how accurate trained runs are, at every length and on structured inputs, and print a summary.

    python -m research.ship.accuracy [RUN ...] [--device cuda] [--cells 262144] [--read] [--out FILE]

Without a RUN, all shipped weights are measured anew: their evaluation.json and cards are rewritten, from which
``python -m research.tables.readme`` makes the tables of README and docs. The summary has the mean of all runs of a
task, such as five seeds; --out writes the numbers of each. --read measures nothing and reads the folders'
evaluation.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from research.files import write_result
from research.registry import register
from research.ship.card import (
    CELLS,
    Accuracy,
    format_accuracy,
    markdown_table,
    measure_accuracy,
    model_card,
    summarize,
    write_scores,
)
from riffle.environment import environment
from riffle.files import write_atomically
from riffle.tasks import TASKS
from riffle.train.evaluate import read_scores
from riffle.train.run import Run, find_runs
from riffle.train.shipped import SHIPPED


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="By default all shipped ones.")
    parser.add_argument("--device", default="cpu", help="Where to measure.")
    parser.add_argument("--cells", type=int, default=CELLS, help="Cells of all examples of one length together.")
    parser.add_argument("--read", action="store_true", help="Take what was measured before.")
    parser.add_argument("--out", type=Path, help="Write the numbers of every run to this file.")
    arguments = parser.parse_args()
    register()
    runs = [Run(folder) for folder in arguments.runs] or list(find_runs(SHIPPED, TASKS))
    runs.sort(key=lambda run: list(TASKS).index(run.config.task))
    by_task: dict[str, list[Run]] = {}
    for run in track(runs, "measuring", console=Console(stderr=True)):
        by_task.setdefault(run.config.task, []).append(run)
        if not arguments.read:
            scores = measure_accuracy(run, device=arguments.device, cells=arguments.cells)
            write_scores(run, scores, arguments.device)
        if (run.folder / "README.md").exists():
            write_atomically(run.folder / "README.md", model_card(run).encode())
    summaries = {task: _summary(group) for task, group in by_task.items()}
    heads = next(iter(summaries.values()))
    rows = [[task, str(len(by_task[task])), *map(format_accuracy, row.values())] for task, row in summaries.items()]
    print("\n".join(markdown_table(["symbols / sequences", "runs", *heads], rows, text_columns=1)))
    if arguments.out:
        about = {} if arguments.read else {"environment": environment(torch.device(arguments.device))}
        each = {task: {run.folder.name: _summary([run]) for run in group} for task, group in by_task.items()}
        write_result(arguments.out, {**about, "symbols_and_sequences": each})


def _summary(runs: Sequence[Run]) -> dict[str, Accuracy | None]:
    """The mean accuracy of runs of one task."""
    return summarize([read_scores(run) for run in runs], TASKS[runs[0].config.task], runs[0].config.data.longest_input)


if __name__ == "__main__":
    main()
