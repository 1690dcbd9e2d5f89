"""Solve one input with a trained run, for ``riffle solve`` and the web page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from riffle.tasks import get_task
from riffle.train.evaluate import predict, strip
from riffle.train.run import Run, find_run
from riffle.train.shipped import SHIPPED

Predictor = Callable[[nn.Module, list[int]], list[int]]
"""Computes a model's output symbols for the symbols of one input."""


@dataclass(frozen=True)
class Solution:
    """A trained network's answer and the correct one, as text."""

    task: str
    """The task's name."""
    input: str
    """The input."""
    output: str
    """The network's answer."""
    expected: str
    """The correct answer."""
    correct: bool
    """Whether the two have the same symbols."""
    model: str
    """The folder of the trained run."""


def find_trained_run(task: str, runs: Path) -> Run:
    """The newest run of a task below ``runs``, or else the shipped one."""
    get_task(task)
    run = find_run(task, runs) or find_run(task, SHIPPED)
    if run is None:
        raise ValueError(
            f"no run of {task!r} below {runs}: train one with `riffle train {task} --recipe small`, "
            "or name one by --run"
        )
    return run


def solve(
    task_name: str, words: Sequence[str], run: Run, *, device: str = "cpu", predictor: Predictor = predict
) -> Solution:
    """Solve one input with a trained run; raises a ``ValueError`` for invalid input or a run of another task.

    Args:
        task_name: The task.
        words: The input as text, split at spaces.
        run: The trained run.
        device: The device of its model.
        predictor: Computes the output, by default in one forward pass.
    """
    task = get_task(task_name)
    symbols = task.parse(words)
    if run.config.task != task_name:
        raise ValueError(f"{run.folder} was trained to {run.config.task!r}, not to {task_name!r}")
    output, expected = strip(predictor(run.model(device), run.padded(symbols))), task.solve(symbols)
    return Solution(
        task=task_name,
        input=" ".join(words),
        output=task.render(output),
        expected=task.render(expected),
        correct=output == expected,
        model=str(run.folder),
    )
