"""Claims of the paper, and goals of our own, each beside what was measured and whether it holds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from research.reproduce.paper import OURS, READ_TO
from research.reproduce.results import Result, accuracies, by_group, select
from riffle.quantities import format_percent

SIMPLE = ("duplicate", "reverse", "add", "sort")
"""The tasks that need O(n) or O(n log n) operations: all of the paper's but multiplication."""
EXACT = 0.0005
"""Tolerance of a goal: half a unit of its third digit."""
ENOUGH_RUNS = 5
"""Runs of a recipe that are enough to judge it, the paper's number: more runs do not rank a recipe higher."""


class Claim(NamedTuple):
    """A statement and whether it holds: None where the results are not sufficient to decide."""

    statement: str
    holds: bool | None
    evidence: str
    paper: float | None = None
    """The paper's accuracy, or the goal, where the statement is about one."""
    ours: float | None = None
    spread: float | None = None
    """Standard deviation of :attr:`ours` over runs."""
    runs: tuple[int, ...] = ()
    """Runs that it rests on, of each side where two are compared, of the smallest of several groups; empty where
    nothing was trained."""
    within_noise: bool = False
    """Whether the difference is smaller than the standard deviation of the runs, and so no finding."""

    @property
    def decided(self) -> bool | None:
        """Whether it holds; None where that is open or within noise, or rests on a single run of unknown spread."""
        return None if self.within_noise or 1 in self.runs else self.holds

    @property
    def verdict(self) -> str:
        """The outcome in a word or two, after the number of runs; of a single run, that it is one.

        >>> Claim("", False, "", paper=0.99, ours=0.956, runs=(5,)).verdict
        '5 runs: short by 3.4 points'
        >>> Claim("", True, "", paper=0.93, ours=0.99, runs=(1,)).verdict, Claim("", True, "", runs=(5, 3)).verdict
        ('one run', '5 runs against 3: holds')
        >>> Claim("", None, "").verdict, Claim("", True, "").verdict
        ('open', 'holds')
        """
        if self.holds is None:
            return "open"
        if 1 in self.runs:
            return self._count()
        if self.within_noise:
            verdict = "within noise"
        elif self.paper is None or self.ours is None:
            verdict = "holds" if self.holds else "does not hold"
        elif not self.holds:
            verdict = f"short by {100 * (self.paper - self.ours):.2g} points"
        else:
            verdict = "exceeded" if self.ours > self.paper + READ_TO else "reached"
        return f"{self._count()}: {verdict}" if self.runs else verdict

    def _count(self) -> str:
        """The runs in words: "one run", "5 runs against 3"."""
        ours, *others = self.runs
        against = [f"against {'one' if number == 1 else number}" for number in others]
        return " ".join(["one run" if ours == 1 else count_runs(ours), *against])


def reaches(statement: str, paper: float, accuracies: Sequence[float], *, best: bool = False) -> Claim:
    """Claim that the mean accuracy of runs, or that of the best run, reaches the paper's."""
    if not accuracies:
        return Claim(statement, None, f"not measured; the paper {format_paper(paper)}", paper)
    ours = max(accuracies) if best else statistics.mean(accuracies)
    evidence = f"{format_percent(ours)} {'as the best of' if best else 'over'} {count_runs(len(accuracies))}"
    if len(accuracies) > 1:
        evidence += f", from {format_percent(min(accuracies))} to {format_percent(max(accuracies))}"
    evidence += f"; the paper {format_paper(paper)}"
    spread, difference = _spread(accuracies), abs(ours - paper)
    within_noise = not best and spread is not None and READ_TO < difference <= spread
    return Claim(statement, ours >= paper - READ_TO, evidence, paper, ours, spread, (len(accuracies),), within_noise)


def at_least_as_good(statement: str, ours: Sequence[float], baseline: Sequence[float], slack: float = 0.0) -> Claim:
    """Claim that the mean accuracy of runs is at most ``slack`` below that of a baseline."""
    if not (ours and baseline):
        return Claim(statement, None, "not measured")
    mean, baseline_mean = statistics.mean(ours), statistics.mean(baseline)
    evidence = (
        f"{format_percent(mean)} over {count_runs(len(ours))} against "
        f"{format_percent(baseline_mean)} over {count_runs(len(baseline))}"
    )
    margin = mean - (baseline_mean - slack)
    within_noise = 0 < abs(margin) <= largest_spread(ours, baseline)
    return Claim(statement, margin >= 0, evidence, runs=(len(ours), len(baseline)), within_noise=within_noise)


def stays_below(statement: str, limit: float, accuracies: Sequence[float]) -> Claim:
    """Claim that the mean accuracy of runs is below a limit."""
    if not accuracies:
        return Claim(statement, None, "not measured")
    mean, spread = statistics.mean(accuracies), _spread(accuracies)
    evidence = f"{format_percent(mean)} over {count_runs(len(accuracies))}"
    within_noise = spread is not None and abs(mean - limit) <= spread
    return Claim(statement, mean < limit, evidence, runs=(len(accuracies),), within_noise=within_noise)


def format_paper(accuracy: float) -> str:
    """An accuracy of the paper, with the digits it is known to: 69%, 96.3%."""
    return f"{100 * accuracy:g}%"


def count_runs(number: int) -> str:
    """A number of runs in words: "1 run", "5 runs"."""
    return f"{number} run{'' if number == 1 else 's'}"


class Goal(NamedTuple):
    """An accuracy to reach at a length, by the mean or the best run."""

    task: str
    length: int
    at_least: float
    metric: str = "symbol_accuracy"
    best: bool = False
    trained: int = 64
    """The longest trained length of the runs that count."""


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
    Goal("multiply", 128, 0.999, best=True, trained=128),
)
"""What the recipes of this package are to reach, some of it beyond the paper."""


def judge_goals(results: Sequence[Result]) -> list[Claim]:
    """Every goal as a claim."""
    return [_judge(goal, results) for goal in GOALS]


def _judge(goal: Goal, results: Sequence[Result]) -> Claim:
    """Judge a goal by the best recipe of those with enough runs; where none has so many, of those with the most."""
    unit = "whole sequences" if goal.metric == "sequence_accuracy" else "symbols"
    statement = f"{goal.task}: {unit} right at {goal.length}{', best run' if goal.best else ''}"
    reduce = max if goal.best else statistics.mean
    runs_of_task = select(results, goal.task, kind=OURS)
    groups = by_group(run for run in runs_of_task if max(run["config"]["data"]["bins"]) == goal.trained)
    measured = {group: accuracies(runs, goal.length, goal.metric) for group, runs in groups.items()}
    ranks = {group: (min(len(values), ENOUGH_RUNS), reduce(values)) for group, values in measured.items() if values}
    if not ranks:
        return Claim(statement, None, "not measured", goal.at_least)
    group = max(ranks, key=ranks.__getitem__)
    runs, ours = len(measured[group]), ranks[group][1]
    evidence = f"{'best of' if goal.best else 'mean of'} {count_runs(runs)} of {group!r}"
    spread = _spread(measured[group])
    return Claim(statement, ours >= goal.at_least - EXACT, evidence, goal.at_least, ours, spread, (runs,))


def largest_spread(*groups: Sequence[float]) -> float:
    """The largest standard deviation of a group of runs; 0 where every group is a single run."""
    return max((spread for runs in groups if (spread := _spread(runs)) is not None), default=0.0)


def _spread(accuracies: Sequence[float]) -> float | None:
    return statistics.stdev(accuracies) if len(accuracies) > 1 else None
