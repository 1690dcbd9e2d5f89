"""Use of trained runs: solve an input, with a run that comes with the package if need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from riffle.tasks import get_task
from riffle.tasks.task import trim
from riffle.train.evaluate import predict, read_scores, right_up_to
from riffle.train.run import Run, find_run

SHIPPED = Path(__file__).parent.parent / "weights"
"""The folder of the run folders in the package, one for each task that has trained weights there."""
Predictor = Callable[[nn.Module, list[int]], list[int]]
"""Computes a model's output symbols for the symbols of one input."""


@dataclass(frozen=True)
class Solution:
    """A trained network's answer and the correct one, as text."""

    task: str
    input: str
    output: str
    """The network's answer."""
    expected: str
    """The correct answer."""
    correct: bool
    """Whether the two have the same symbols."""
    model: str
    """The folder of the trained run."""
    cells: int = 0
    """The length of the input as symbols."""
    right_up_to: int | None = None
    """The longest tested length up to which the network is right, see :func:`riffle.train.outcome.right_up_to`."""

    def beyond_tests(self) -> str:
        """A sentence about an input that is longer than the network is right at; empty for others."""
        if self.right_up_to is None or self.cells <= self.right_up_to:
            return ""
        if not self.right_up_to:
            return "This network is wrong now and then at every length in our tests."
        return f"This network is right at up to {self.right_up_to} cells in our tests; this input has {self.cells}."


def load_trained(task: str, device: str | torch.device = "cpu") -> Any:
    """The trained network of a task that comes with the package, in evaluation mode.

    Its input are symbols, ``[batch, length]``, and its output logits; the task's ``parse`` and ``render`` convert
    between symbols and text.

    >>> model, task = load_trained("sort"), get_task("sort")
    >>> logits = model(torch.tensor([task.parse(["7", "3", "9", "1", "4", "4", "2", "8"])]))
    >>> task.render(logits[0].argmax(-1).tolist())
    '1 2 3 4 4 7 8 9'
    """
    run = find_run(task, SHIPPED)
    if run is None:
        raise ValueError(f"no trained network of {get_task(task).name!r} comes with the package")
    return run.model(device)


def find_trained_run(task: str, runs: Path | None = None) -> Run:
    """The newest run of a task below ``runs``; where no folder is named, the shipped one, or else the newest here."""
    get_task(task)
    folders = (SHIPPED, Path("runs")) if runs is None else (runs, SHIPPED)
    run = next(filter(None, (find_run(task, folder) for folder in folders)), None)
    if run is None:
        raise ValueError(
            f"no run of {task!r} below {runs or 'runs'}: train one with `riffle train {task}`, or name one by --run"
        )
    return run


def solve(
    task_name: str, words: Sequence[str], run: Run, *, device: str = "cpu", predictor: Predictor = predict
) -> Solution:
    """Solve one input, as text split at spaces, with a trained run, filled up first (:meth:`riffle.tasks.Task.fill`).

    Raises:
        ValueError: The input is invalid, or the run is of another task.
    """
    task = get_task(task_name)
    symbols = task.parse(words)
    if run.config.task != task_name:
        raise ValueError(f"{run.folder} was trained to {run.config.task!r}, not to {task_name!r}")
    filled = run.padded(symbols)
    output = trim(task.unfill(predictor(run.model(device), filled), symbols, filled))
    expected = task.solve(symbols)
    return Solution(
        task=task_name,
        input=" ".join(words),
        output=task.render(output),
        expected=task.render(expected),
        correct=output == expected,
        model=str(run.folder),
        cells=len(symbols),
        right_up_to=right_up_to(task, read_scores(run)),
    )
