"""Ablations of the switch unit on addition, sorting and multiplication, and of weight sharing on the first two."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from riffle.quantities import format_percent
from riffle.recipes import paper as paper_recipe
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good, count_runs, reaches
from riffle.reproduce.figure import LearningFigure
from riffle.reproduce.figures.multiplication import COMPARED_LENGTH, LEARNING_RATE, compared_spec
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import PAPER_LENGTHS, RunSpec, accuracy_at, with_model_fields, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = ("add", "sort")
LENGTHS = {"add": 512, "sort": 512, "multiply": COMPARED_LENGTH}
"""The length at which accuracy is compared."""
BASELINE = "gated"
ABLATIONS = tuple(unit for unit in paper.ABLATION["multiply"] if unit != BASELINE)
LEARNING_RATES = {"two-fc": 0.0025}
"""Of multiplication, where it is not the usual one: two layers without a gate diverge at twice this rate."""
COLLAPSED = 0.7
"""Units that the paper has below this accuracy on multiplication do not learn it."""
SHARINGS = ("block", "minimal")
SIMILAR = 0.02
"""Difference in accuracy up to which two ways of sharing perform similarly."""


def _unit_spec(task: str, unit: str) -> RunSpec:
    """Addition or sorting with one of the units."""
    config = with_train(paper_recipe(task), steps=20_000, evaluate_every=250, evaluate_lengths=(LENGTHS[task],))
    config = with_model_fields(config, unit=unit)
    return RunSpec(folder="ablation", group=f"{task}, {unit}", config=config, measure=accuracy_at(PAPER_LENGTHS))


def _unit_accuracies(results: Sequence[Result], task: str, unit: str) -> list[float]:
    return accuracies(select(results, task, unit=unit), LENGTHS[task])


def _draw_ablation(results: Sequence[Result]) -> Figure:
    """A panel for each task; crosses are the paper's final accuracies, where it has them at the same length."""
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(unit, over_steps(select(results, task, unit=unit)), units[unit] if task in TASKS else None, colour)
            for colour, unit in enumerate(paper.ABLATION["multiply"])
            if unit in units
        ]
        for task, units in paper.ABLATION.items()
    }
    return lines_figure(title("the switch unit and its ablations", results), panels)


def _claim_ablation(results: Sequence[Result]) -> list[Claim]:
    """The paper's accuracies at 512; for multiplication, that its unit is the best, and which units collapse."""
    claims = [
        reaches(f"{task}, {unit}: symbols right at {LENGTHS[task]}", target, _unit_accuracies(results, task, unit))
        for task in TASKS
        for unit, target in paper.ABLATION[task].items()
    ]
    baseline = _unit_accuracies(results, "multiply", BASELINE)
    for unit in ABLATIONS:
        statement = f"multiply: {BASELINE} is right as often as {unit} at {COMPARED_LENGTH}"
        claims.append(at_least_as_good(statement, baseline, _unit_accuracies(results, "multiply", unit)))
    for unit in ABLATIONS:
        if paper.ABLATION["multiply"][unit] < COLLAPSED:
            statement = f"multiply: {unit} collapses, below {format_percent(COLLAPSED)} at {COMPARED_LENGTH}"
            runs = _unit_accuracies(results, "multiply", unit)
            mean = statistics.mean(runs) if runs else None
            evidence = f"{format_percent(mean)} over {count_runs(len(runs))}" if mean is not None else "not measured"
            claims.append(Claim(statement, None if mean is None else mean < COLLAPSED, evidence))
    return claims


ABLATION = LearningFigure(
    name="ablation",
    base_specs=[
        *(_unit_spec(task, unit) for task in TASKS for unit in paper.ABLATION[task]),
        compared_spec(),
        *(compared_spec("ablation", unit, LEARNING_RATES.get(unit, LEARNING_RATE), unit=unit) for unit in ABLATIONS),
    ],
    folders=("ablation",),
    draw=_draw_ablation,
    claims=_claim_ablation,
)


def _sharing_spec(task: str, sharing: str) -> RunSpec:
    """Addition or sorting by weight sharing; by block, the usual one, it is the baseline of the ablation."""
    spec = _unit_spec(task, BASELINE)
    if sharing == "block":
        return spec
    config = with_model_fields(spec.config, sharing=sharing)
    return replace(spec, folder="sharing", group=f"{spec.group}, {sharing}", config=config)


def _draw_sharing(results: Sequence[Result]) -> Figure:
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(sharing, over_steps(select(results, task, unit=BASELINE, sharing=sharing)), colour=colour)
            for colour, sharing in enumerate(SHARINGS)
        ]
        for task in TASKS
    }
    return lines_figure(title("weights shared by block and minimally", results), panels)


def _claim_sharing(results: Sequence[Result]) -> list[Claim]:
    claims = []
    for task in TASKS:
        groups = [select(results, task, unit=BASELINE, sharing=sharing) for sharing in SHARINGS]
        block, minimal = (accuracies(runs, LENGTHS[task]) for runs in groups)
        statement = f"{task}: minimal sharing is right as often as sharing by block, within {SIMILAR * 100:g} points"
        claims.append(at_least_as_good(statement, minimal, block, SIMILAR))
    return claims


SHARING = LearningFigure(
    name="sharing",
    base_specs=[_sharing_spec(task, sharing) for sharing in SHARINGS for task in TASKS],
    folders=("sharing",),
    draw=_draw_sharing,
    claims=_claim_sharing,
)
