"""One input, one answer: what ``riffle solve`` and the web page both do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from riffle.tasks import get_task
from riffle.train.evaluate import predict, strip
from riffle.train.run import Run, find_run
from riffle.train.shipped import SHIPPED

Answer = Callable[[nn.Module, list[int]], list[int]]
"""A model's output symbols for the symbols of one input."""


@dataclass(frozen=True)
class Solution:
    """A trained network's answer beside the right one, as a person would write them."""

    task: str
    """The task's name."""
    input: str
    """What was typed."""
    output: str
    """What the network answered."""
    expected: str
    """The right answer."""
    correct: bool
    """Whether they are the same, symbol by symbol."""
    model: str
    """The folder of the trained run."""


def find_trained_run(task: str, runs: Path) -> Run:
    """The newest run of a task below ``runs``, else the one that comes with the package."""
    get_task(task)
    run = find_run(task, runs) or find_run(task, SHIPPED)
    if run is None:
        raise ValueError(
            f"no run of {task!r} below {runs}: train one with `riffle train {task} --recipe small`, "
            "or name one by --run"
        )
    return run


def solve(task_name: str, words: Sequence[str], run: Run, *, device: str = "cpu", answer: Answer = predict) -> Solution:
    """Answer one input with a trained run; refuses input that is none, and a run of another task.

    Args:
        task_name: The task.
        words: The input, as a person would write it.
        run: The trained run.
        device: Where its model computes.
        answer: How its model answers.
    """
    task = get_task(task_name)
    symbols = task.parse(words)
    if run.config.task != task_name:
        raise ValueError(f"{run.folder} was trained to {run.config.task!r}, not to {task_name!r}")
    output, expected = strip(answer(run.model(device), run.padded(symbols))), task.solve(symbols)
    return Solution(
        task=task_name,
        input=" ".join(words),
        output=task.render(output),
        expected=task.render(expected),
        correct=output == expected,
        model=str(run.folder),
    )
