"""Accuracy at length 512 over training on lengths to 64: the runs of generalization, seen over steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, as_read, reaches
from riffle.reproduce.figures.generalization import OURS, RUNS, ours
from riffle.reproduce.results import Result, accuracies, by_group, over_steps, select
from riffle.reproduce.specs import RunSpec, seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = tuple(paper.CONVERGED)
FOLDERS = ("generalization",)
LENGTH = 512
__all__ = ["FOLDERS", "RUNS", "claims", "configs", "figure"]


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every simple task, as it is trained to go far."""
    return seeded([ours(task, "long") for task in TASKS], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """A panel for each task; the cross is the paper's accuracy in the end."""
    panels = {
        task: [
            Line(group, over_steps(runs, LENGTH), paper.CONVERGED[task], colour)
            for colour, (group, runs) in enumerate(by_group(select(results, task, kind=OURS)).items())
        ]
        for task in TASKS
    }
    return lines_figure(title(f"accuracy at length {LENGTH}, trained on lengths to 64", results), panels)


def claims(results: Sequence[Result]) -> list[Claim]:
    """What is reached in the end, and how soon."""
    found = []
    for task in TASKS:
        for group, runs in by_group(select(results, task, kind=OURS)).items() or [(task, [])]:
            found.append(
                reaches(f"{group}: symbols right at {LENGTH}", paper.CONVERGED[task], accuracies(runs, LENGTH))
            )
            if task in paper.SOON:
                found.append(_soon(group, runs, *paper.SOON[task]))
    return found


def _soon(group: str, runs: Sequence[Result], level: float, step: int) -> Claim:
    """Whether the mean of the runs reaches an accuracy by a step."""
    statement = f"{group}: {as_read(level)} of the symbols right at {LENGTH} within {step:,} steps"
    points = over_steps(runs, LENGTH)
    if not points:
        return Claim(statement, None, "not measured")
    reached = next((point.x for point in points if point.mean >= level), None)
    if points[0].x > step and reached == points[0].x:
        return Claim(statement, None, f"at {reached:,}, before which nobody looked")
    evidence = "never" if reached is None else f"after {reached:,}"
    return Claim(statement, reached is not None and reached <= step, evidence)
