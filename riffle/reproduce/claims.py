"""A sentence of the paper, or of ours, beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from riffle.bench.over_length import SLOPE_POINTS, SeriesWork, points, slope
from riffle.quantities import format_percent
from riffle.reproduce.paper import READ_TO


def faster_everywhere(results: Mapping[str, Any], ours: str, theirs: str, work: SeriesWork, at_least: int = 0) -> Claim:
    """Whether our model is the faster one at every common length, from a length on."""
    a, b = points(results, ours, work), points(results, theirs, work)
    common = sorted(length for length in a.keys() & b.keys() if length >= at_least)
    start = f" from {at_least} on" if at_least else ""
    statement = f"{work} by {ours} is faster than by {theirs} at every length{start}"
    if not common:
        return Claim(statement, None, "no common length was measured")
    slower = [length for length in common if a[length] >= b[length]]
    where = f"slower at {', '.join(map(str, slower))}" if slower else f"at all of {common[0]} to {common[-1]}"
    last = common[-1]
    return Claim(statement, not slower, f"{where}; at {last} {a[last]:.3g} ms and {b[last]:.3g} ms")


def slope_is(results: Mapping[str, Any], model: str, work: SeriesWork, low: float, high: float) -> Claim:
    """Whether a series grows with an exponent within bounds."""
    by_length = points(results, model, work)
    found = slope(by_length)
    statement = f"{work} by {model} grows with an exponent of {low:g} to {high:g}"
    if found is None or len(by_length) < 2 * SLOPE_POINTS:
        return Claim(statement, None, f"{len(by_length)} lengths are too few")
    return Claim(statement, low <= found <= high, f"{found:g} over the {SLOPE_POINTS} longest lengths")


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
    said = f"{format_percent(ours)} {'as the best of' if best else 'over'} {count_runs(len(accuracies))}"
    if len(accuracies) > 1:
        said += f", from {format_percent(min(accuracies))} to {format_percent(max(accuracies))}"
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
    evidence = (
        f"{format_percent(ours)} over {count_runs(len(one))} against "
        f"{format_percent(theirs)} over {count_runs(len(other))}"
    )
    return Claim(statement, ours >= theirs - slack, evidence)


def count_runs(number: int) -> str:
    """So many runs, in words."""
    return f"{number} run{'' if number == 1 else 's'}"
