"""The switch unit and its ablations on addition, sorting and multiplication."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from riffle.quantities import format_percent
from riffle.recipes import paper as paper_recipe
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good, count_runs, reaches
from riffle.reproduce.figures.products import LENGTH, RATE, product
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import PAPERS, RunSpec, over_lengths, seeded, with_model_fields, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("ablation",)
LENGTHS = {"add": 512, "sort": 512, "multiply": LENGTH}
"""Where accuracy is measured."""
STEPS = 20_000
"""Of addition and sorting."""
BASELINE = "gated"
OTHERS = tuple(unit for unit in paper.ABLATION["multiply"] if unit != BASELINE)
"""The units of multiplication besides the paper's own."""
RATES = {"two-fc": 0.0025}
"""Learning rates of units that multiply by another than usual: two layers without a gate diverge at twice this one."""
COLLAPSED = 0.7
"""Units that the paper has below this at products do not learn them."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every unit that the paper has on a task: skip connections are none of those where there is but one block."""
    simple = [switched(task, unit) for task in ("add", "sort") for unit in paper.ABLATION[task]]
    products = [product(), *(product("ablation", unit, RATES.get(unit, RATE), unit=unit) for unit in OTHERS)]
    return seeded([*simple, *products], runs, quick)


def switched(task: str, unit: str) -> RunSpec:
    """A simple task with one of the units."""
    config = with_train(paper_recipe(task), steps=STEPS, evaluate_every=250, evaluate_lengths=(LENGTHS[task],))
    return RunSpec(
        folder="ablation",
        group=f"{task}, {unit}",
        config=with_model_fields(config, unit=unit),
        measure=partial(over_lengths, tests=PAPERS),
    )


def figure(results: Sequence[Result]) -> Figure:
    """A panel for each task; the crosses are the paper's accuracies in the end, where it has the length."""
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(unit, over_steps(select(results, task, unit=unit)), _target(task, unit), colour)
            for colour, unit in enumerate(paper.ABLATION["multiply"])
            if unit in units
        ]
        for task, units in paper.ABLATION.items()
    }
    return lines_figure(title("the switch unit and its ablations", results), panels)


def claims(results: Sequence[Result]) -> list[Claim]:
    """The paper's accuracies at 512; of products, which it has at 128, that its unit is the best and what collapses."""
    found = []
    for task in ("add", "sort"):
        for unit, target in paper.ABLATION[task].items():
            statement = f"{task}, {unit}: symbols right at {LENGTHS[task]}"
            found.append(reaches(statement, target, _accuracies(results, task, unit)))
    best = _accuracies(results, "multiply", BASELINE)
    for unit in OTHERS:
        statement = f"multiply: {BASELINE} is right as often as {unit} at {LENGTH}"
        found.append(at_least_as_good(statement, best, _accuracies(results, "multiply", unit)))
    for unit in OTHERS:
        if paper.ABLATION["multiply"][unit] < COLLAPSED:
            found.append(_collapses(unit, _accuracies(results, "multiply", unit)))
    return found


def _accuracies(results: Sequence[Result], task: str, unit: str) -> list[float]:
    return accuracies(select(results, task, unit=unit), LENGTHS[task])


def _target(task: str, unit: str) -> float | None:
    return None if task == "multiply" else paper.ABLATION[task][unit]


def _collapses(unit: str, runs: Sequence[float]) -> Claim:
    statement = f"multiply: {unit} collapses, below {format_percent(COLLAPSED)} at {LENGTH}"
    if not runs:
        return Claim(statement, None, "not measured")
    mean = statistics.mean(runs)
    return Claim(statement, mean < COLLAPSED, f"{format_percent(mean)} over {count_runs(len(runs))}")
