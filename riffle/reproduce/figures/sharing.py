"""Addition and sorting by which layers share their weights: as usual, or as few as generalisation allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good
from riffle.reproduce.figures.ablation import BASELINE, LENGTHS, switched
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import RunSpec, seeded, with_model_fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("sharing",)
TASKS = ("add", "sort")
SHARINGS = ("block", "minimal")
SIMILAR = 0.02
"""What "similarly" is taken to mean."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Both sharings on both tasks; the usual one is the baseline of the ablation."""
    usual = [switched(task, BASELINE) for task in TASKS]
    return seeded([*usual, *(_minimal(each) for each in usual)], runs, quick)


def _minimal(learner: RunSpec) -> RunSpec:
    config = with_model_fields(learner.config, sharing="minimal")
    return replace(learner, folder="sharing", group=f"{learner.group}, minimal", config=config)


def figure(results: Sequence[Result]) -> Figure:
    """A panel for each task."""
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(sharing, over_steps(_runs(results, task, sharing)), colour=colour)
            for colour, sharing in enumerate(SHARINGS)
        ]
        for task in TASKS
    }
    return lines_figure(title("weights shared by block and minimally", results), panels)


def claims(results: Sequence[Result]) -> list[Claim]:
    """Both perform similarly."""
    found = []
    for task in TASKS:
        usual, minimal = (accuracies(_runs(results, task, sharing), LENGTHS[task]) for sharing in SHARINGS)
        statement = f"{task}: minimal sharing is right as often as sharing by block, within {SIMILAR * 100:g} points"
        found.append(at_least_as_good(statement, minimal, usual, SIMILAR))
    return found


def _runs(results: Sequence[Result], task: str, sharing: str) -> list[Result]:
    return select(results, task, unit=BASELINE, sharing=sharing)
