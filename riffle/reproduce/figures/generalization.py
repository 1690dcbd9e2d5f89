"""Accuracy over length of networks trained on lengths to 64: this network, and the Neural GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from riffle.config import DataConfig
from riffle.recipes import RECIPES, with_model
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good, reaches
from riffle.reproduce.results import Point, Result, accuracies, by_group, over_length, select
from riffle.reproduce.specs import BEYOND, EvaluationSpec, RunSpec, over_lengths, seeded, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = ("duplicate", "reverse", "add", "sort", "multiply")
OURS, THEIRS = "shuffle-exchange", "dngpu"
RUNS = 5
FOLDERS = ("generalization", "rivals")
STEPS = 40_000
"""Of ours as in the paper and in its code, and of theirs."""
LENGTHS = DataConfig().bins
"""Trained lengths, to 64."""
JUDGED = (64, 512, 1024, 4096)
"""Lengths of the claims."""
TESTS = (
    EvaluationSpec((8, 16, 32, 64, 128, 256, 512, 1024), 256),
    EvaluationSpec((2048,), 64),
    EvaluationSpec((4096,), 32),
)
"""Of the Neural GPU, whose time grows with the square of the length."""
BETTER = ("add", "sort")
"""Where the paper's network generalises further than the Neural GPU."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Ours as in the paper and as in its code and theirs on every task, and ours trained to go further where it can."""
    papers = [ours(task, recipe) for recipe in ("paper", "released") for task in TASKS]
    further = [ours(task, "long") for task in TASKS if task != "multiply"]
    return seeded([*papers, *further, *(theirs(task) for task in TASKS)], runs, quick)


def ours(task: str, recipe: str = "paper") -> RunSpec:
    """This network on a task, watched at length 512 while it is trained."""
    # Duplicating and reversing are learned within a few hundred steps, which is what convergence shows.
    config = with_train(RECIPES[recipe](task), evaluate_every=250)
    if recipe != "long":
        config = with_train(config, steps=STEPS, evaluate_lengths=(512,))
    return RunSpec(
        folder="generalization",
        group=f"{task}, {OURS}, {recipe}",
        config=replace(config, data=replace(config.data, bins=LENGTHS)),  # products, too
        measure=partial(over_lengths, tests=BEYOND),
    )


def theirs(task: str) -> RunSpec:
    """The Neural GPU as its authors trained it, watched seldom and at 64 alone: at 512 it takes 512 steps to answer."""
    config = with_model(ours(task).config, THEIRS)
    return RunSpec(
        folder="rivals",
        group=f"{task}, {THEIRS}",
        config=with_train(config, evaluate_every=4000, evaluate_lengths=(64,)),
        measure=partial(over_lengths, tests=TESTS),
    )


def figure(results: Sequence[Result]) -> Figure:
    """A panel for each task, with the paper's curves."""
    panels: dict[str, list[Line]] = {}
    for task in TASKS:
        panels[task] = []
        for colour, kind in ((0, OURS), (4, THEIRS)):
            for place, (group, runs) in enumerate(_groups(results, task, kind)):
                panels[task].append(Line(group, over_length(runs), colour=colour + place))
            curve = [Point(x, y, y, y) for x, y in paper.GENERALIZATION[kind][task].items()]
            panels[task].append(Line(f"the paper, {kind}", curve, colour=colour, faint=True))
    return lines_figure(title("accuracy over length, trained on lengths to 64", results), panels, lengths=True)


def claims(results: Sequence[Result]) -> list[Claim]:
    """The paper's curves, and where it generalises further than the Neural GPU."""
    found = []
    for kind in (OURS, THEIRS):
        for task in TASKS:
            for group, runs in _groups(results, task, kind) or [(f"{task}, {kind}", [])]:
                for length in JUDGED:
                    target = paper.GENERALIZATION[kind][task][length]
                    found.append(reaches(f"{group}: symbols right at {length}", target, accuracies(runs, length)))
    for task in BETTER:
        other = accuracies(select(results, task, kind=THEIRS), 4096)
        for group, runs in _groups(results, task, OURS):
            statement = f"{group} is right more often than {THEIRS} at 4096"
            found.append(at_least_as_good(statement, accuracies(runs, 4096), other))
    return found


def _groups(results: Sequence[Result], task: str, kind: str) -> list[tuple[str, list[Result]]]:
    return list(by_group(select(results, task, kind=kind)).items())
