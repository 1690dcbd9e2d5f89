"""Multiplication on inputs of length 128, which is the longest that is trained: 384 maps, two blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from riffle.recipes import long
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, reaches
from riffle.reproduce.results import Result, accuracies, over_steps
from riffle.reproduce.specs import EvaluationSpec, RunSpec, over_lengths, seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 3
FOLDERS = ("multiplication",)
LENGTH = 128
TESTS = (EvaluationSpec((8, 16, 32, 64, 128, 256), 1024),)


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """The one network."""
    learner = RunSpec(
        folder="multiplication",
        group="multiply",
        config=long("multiply"),
        measure=partial(over_lengths, tests=TESTS),
    )
    return seeded([learner], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """A line for each run."""
    lines = [
        Line(result["run"], over_steps([result]), paper.MULTIPLICATION, colour) for colour, result in enumerate(results)
    ]
    return lines_figure(title("multiplication", results), {f"accuracy at length {LENGTH}": lines})


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the best run reaches."""
    statement = f"multiply: symbols right at {LENGTH}, best run"
    return [reaches(statement, paper.MULTIPLICATION, accuracies(results, LENGTH), best=True)]
