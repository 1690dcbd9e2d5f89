"""What this implementation set out to reach, some of it beyond the paper, and what its runs have reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from riffle.reproduce.claims import Claim, count_runs
from riffle.reproduce.figures.generalization import OURS
from riffle.reproduce.results import Result, accuracies, by_group, select

SIMPLE = ("duplicate", "reverse", "add", "sort")
EXACT = 0.0005
"""What a goal of 1.000 leaves to chance."""


class Goal(NamedTuple):
    """An accuracy to reach at a length, by runs that were trained on lengths to 64, or to 128 for products."""

    task: str
    length: int
    at_least: float
    number: str = "symbol_accuracy"
    best: bool = False
    """Whether the best run counts, in place of the mean."""


GOALS = (
    *(Goal(task, 64, 1.0, "sequence_accuracy") for task in SIMPLE),
    Goal("duplicate", 512, 1.0),
    Goal("duplicate", 4096, 0.999),
    Goal("reverse", 512, 1.0),
    Goal("reverse", 4096, 0.99),
    Goal("add", 512, 0.99),
    Goal("add", 4096, 0.90),
    Goal("add", 4096, 0.98, best=True),
    Goal("sort", 512, 0.97),
    Goal("sort", 4096, 0.94),
    Goal("multiply", 128, 0.999, best=True),
)


def goals(results: Sequence[Result]) -> list[Claim]:
    """What came of every goal, by the recipe that did best at it among those with the most runs."""
    return [_judge(goal, results) for goal in GOALS]


def _judge(goal: Goal, results: Sequence[Result]) -> Claim:
    what = "whole sequences" if goal.number == "sequence_accuracy" else "symbols"
    statement = f"{goal.task}: {what} right at {goal.length}{', best run' if goal.best else ''}"
    found = {
        group: values
        for group, runs in by_group(select(results, goal.task, kind=OURS)).items()
        if (values := accuracies(runs, goal.length, goal.number))
    }
    if not found:
        return Claim(statement, None, "not measured", goal.at_least)
    of = max if goal.best else statistics.mean
    most = max(map(len, found.values()))
    group = max((each for each in found if len(found[each]) == most), key=lambda group: of(found[group]))
    ours = of(found[group])
    spread = statistics.stdev(found[group]) if len(found[group]) > 1 else None
    said = f"{'best of' if goal.best else 'mean of'} {count_runs(len(found[group]))} of {group!r}"
    return Claim(statement, ours >= goal.at_least - EXACT, said, goal.at_least, ours, spread)
