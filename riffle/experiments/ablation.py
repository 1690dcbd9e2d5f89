"""The switch unit and its ablations on addition, sorting and multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from riffle.config import paper as paper_recipe
from riffle.experiments import paper
from riffle.experiments.claim import Claim, at_least_as_good, reaches
from riffle.experiments.learner import PAPERS, Learner, over_lengths, seeded, trained, varied
from riffle.experiments.lines import Line, lines_figure, title
from riffle.experiments.multiplication import LENGTH, product
from riffle.experiments.results import Result, accuracies, chosen, over_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = 1
FOLDERS = ("ablation", "multiplication")
LENGTHS = {"add": 512, "sort": 512, "multiply": LENGTH}
"""Where accuracy is measured."""
STEPS = 20_000
BASELINE = "gated"


def configs(*, quick: bool = False, runs: int = RUNS) -> list[Learner]:
    """Every unit that the paper has on a task: skip connections are none of those where there is but one block."""
    simple = [switched(task, unit) for task in ("add", "sort") for unit in paper.ABLATION[task]]
    others = [unit for unit in paper.ABLATION["multiply"] if unit != BASELINE]
    products = [product(), *(product("ablation", unit, unit=unit) for unit in others)]
    return seeded([*simple, *products], runs, quick)


def switched(task: str, unit: str) -> Learner:
    """A simple task with one of the units."""
    experiment = trained(paper_recipe(task), steps=STEPS, evaluate_every=250, evaluate_lengths=(LENGTHS[task],))
    return Learner(
        folder="ablation",
        group=f"{task}, {unit}",
        experiment=varied(experiment, unit=unit),
        measure=partial(over_lengths, tests=PAPERS),
    )


def figure(results: Sequence[Result]) -> Figure:
    """A panel for each task; the crosses are the paper's accuracies in the end."""
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(unit, over_steps(chosen(results, task, unit=unit)), units[unit], colour)
            for colour, unit in enumerate(paper.ABLATION["multiply"])
            if unit in units
        ]
        for task, units in paper.ABLATION.items()
    }
    return lines_figure(title("the switch unit and its ablations", results), panels)


def claims(results: Sequence[Result]) -> list[Claim]:
    """Every accuracy of the paper, and that its unit is the best one where it matters most."""
    found = []
    for task, units in paper.ABLATION.items():
        for unit, target in units.items():
            runs = accuracies(chosen(results, task, unit=unit), LENGTHS[task])
            found.append(reaches(f"{task}, {unit}: symbols right at {LENGTHS[task]}", target, runs))
    best = accuracies(chosen(results, "multiply", unit=BASELINE), LENGTH)
    for unit in paper.ABLATION["multiply"]:
        if unit != BASELINE:
            other = accuracies(chosen(results, "multiply", unit=unit), LENGTH)
            found.append(at_least_as_good(f"multiply: {BASELINE} is right as often as {unit}", best, other))
    return found
