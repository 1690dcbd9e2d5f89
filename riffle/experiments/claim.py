"""A sentence of the paper, or of ours, beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from riffle.experiments.paper import READ_TO
from riffle.wording import percent


class Claim(NamedTuple):
    """A sentence of the paper, or of ours, and whether the results bear it out."""

    statement: str
    holds: bool | None
    """None where the results do not reach far enough to tell."""
    evidence: str
    paper: float | None = None
    """The paper's accuracy, where the sentence is about one."""
    ours: float | None = None
    """The accuracy found."""
    spread: float | None = None
    """Its standard deviation over runs."""

    @property
    def verdict(self) -> str:
        """In a word or two, what came of it.

        >>> Claim("", False, "", paper=0.99, ours=0.956).verdict, Claim("", True, "", paper=0.99, ours=0.985).verdict
        ('short by 3.4 points', 'reached')
        >>> Claim("", True, "", paper=0.93, ours=0.99).verdict, Claim("", None, "").verdict
        ('exceeded', 'open')
        """
        if self.holds is None:
            return "open"
        if self.paper is None or self.ours is None:
            return "holds" if self.holds else "does not hold"
        if not self.holds:
            return f"short by {100 * (self.paper - self.ours):.2g} points"
        return "exceeded" if self.ours > self.paper + READ_TO else "reached"


def reaches(statement: str, paper: float, accuracies: Sequence[float], *, best: bool = False) -> Claim:
    """Whether the mean accuracy of runs, or that of the best one, reaches the paper's.

    >>> reaches("adds", 0.9, [0.95, 0.93]).evidence
    '94.00% over 2 runs, from 93.00% to 95.00%; the paper 90%'
    """
    if not accuracies:
        return Claim(statement, None, f"not measured; the paper {as_read(paper)}", paper)
    ours = max(accuracies) if best else statistics.mean(accuracies)
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    said = f"{percent(ours)} {'as the best of' if best else 'over'} {count_runs(len(accuracies))}"
    if len(accuracies) > 1:
        said += f", from {percent(min(accuracies))} to {percent(max(accuracies))}"
    return Claim(statement, ours >= paper - READ_TO, f"{said}; the paper {as_read(paper)}", paper, ours, spread)


def as_read(accuracy: float) -> str:
    """A number of the paper, with the digits it is known to.

    >>> as_read(0.69), as_read(0.963)
    ('69%', '96.3%')
    """
    return f"{100 * accuracy:g}%"


def at_least_as_good(statement: str, one: Sequence[float], other: Sequence[float], slack: float = 0.0) -> Claim:
    """Whether runs are on average as accurate as others, but for some slack."""
    if not (one and other):
        return Claim(statement, None, "not measured")
    ours, theirs = statistics.mean(one), statistics.mean(other)
    evidence = f"{percent(ours)} over {count_runs(len(one))} against {percent(theirs)} over {count_runs(len(other))}"
    return Claim(statement, ours >= theirs - slack, evidence)


def count_runs(number: int) -> str:
    """So many runs, in words."""
    return f"{number} run{'' if number == 1 else 's'}"
