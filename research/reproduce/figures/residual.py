"""The residual unit of Draguns et al. beside the gated one: how far networks generalise that were trained alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from research.recipes import residual
from research.reproduce.charts import Line, Panel, lines_figure, title
from research.reproduce.figure import LearningFigure
from research.reproduce.results import Result, by_group, over_length, select
from research.reproduce.specs import EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("add", "sort", "reverse")
UNITS: dict[str, dict[str, str]] = {
    "gated": {"unit": "gated"},
    "residual, features": {"unit": "residual", "norm": "features"},
    "residual, sequence": {"unit": "residual", "norm": "sequence"},
}
"""The units by the names of their groups."""
STEPS = 3_000
MEASURE = accuracy_at(EvaluationSpec((64, 128, 256, 512, 1024), 1024), EvaluationSpec((2048, 4096), 128))


def _spec(task: str, variant: str) -> RunSpec:
    """A task with one of the units, in all else as the recipe ``residual`` has it."""
    config = with_train(residual(task), steps=STEPS, precision="bf16", evaluate_every=STEPS, evaluate_lengths=(512,))
    config = with_model_fields(config, **{"norm": "features", **UNITS[variant]})
    return RunSpec(folder="residual", group=f"{task}, {variant}", config=config, measure=MEASURE)


def _draw(results: Sequence[Result]) -> Figure:
    """A panel for each task."""
    panels = [
        Panel(
            task,
            [
                Line(group.removeprefix(f"{task}, "), over_length(runs), colour)
                for colour, (group, runs) in enumerate(by_group(select(results, task)).items())
            ],
            low=0.5,
        )
        for task in TASKS
    ]
    return lines_figure(title("symbols right over length by unit, trained on lengths to 64", results), panels)


RESIDUAL = LearningFigure(
    name="residual",
    networks=lambda: [_spec(task, variant) for task in TASKS for variant in UNITS],
    folders=("residual",),
    draw=_draw,
    runs=3,
)
