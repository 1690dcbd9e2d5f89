"""The one rule for verdicts: *equal*, *differs* or *undecided*, by the interval of a difference of two means.

The interval is Welch's, at 95%. A number of the paper is taken for a mean of :data:`PAPER_RUNS` runs with the spread of
ours, read off a figure to a point. *Equal*: the interval lies within a point of zero. *Differs*: it excludes zero, by
more than the point of reading where the other side is the paper, and still does by Holm's correction for all
differences of the figure. Otherwise *undecided*. Below :data:`FEWEST` runs there is no verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from riffle.quantities import format_percent

POINT = 0.01
"""A percentage point: the accuracy to which a figure of the paper can be read, and the largest difference of equals."""
LEVEL = 0.05
PAPER_RUNS = 5
FEWEST = 3
"""Runs of each side below which there is no verdict."""
Wanted = Literal["equal", "reached", "higher", "lower"]
"""What the paper says of ours: as the other, at least as accurate, more so, less so."""


class Difference(NamedTuple):
    """A difference of two means, its 95% interval, and the probability of one so large where there is none."""

    mean: float
    low: float
    high: float
    p: float


class Claim(NamedTuple):
    """A statement of the paper: a comparison of runs with others or with the paper's number, or a fact."""

    statement: str
    ours: tuple[float, ...] = ()
    """The accuracy of every run."""
    other: tuple[float, ...] | float = ()
    """Those of the runs that it is compared with, or the paper's mean."""
    wanted: Wanted = "equal"
    holds: bool | None = None
    """Of a fact: whether it holds, None where it was not measured."""
    evidence: str = ""
    """Of a fact: what was measured."""

    right: tuple[Sequence[float], Sequence[float]] | None = None
    """On LAMBADA the share of runs of each side that answer a passage right, where results have their answers."""

    @property
    def is_fact(self) -> bool:
        return bool(self.evidence)

    @property
    def runs(self) -> int:
        """Runs of the smaller side."""
        return min(len(self.ours), PAPER_RUNS if isinstance(self.other, int | float) else len(self.other))

    @property
    def found(self) -> str:
        """What was measured, in words: means, the lowest and the highest run, runs of each side."""
        if self.is_fact or not self.ours:
            return self.evidence or "no runs"
        other = (
            f"; the paper {100 * self.other:g}%" if isinstance(self.other, int | float) else f"; {spread(self.other)}"
        )
        return spread(self.ours) + other


def spread(shares: Sequence[float]) -> str:
    """Mean, lowest, highest and number of some runs.

    >>> spread([0.9, 0.95]), spread([1.0, 1.0, 1.0]), spread([])
    ('92.50% (90.00% to 95.00%) of 2', '100% of 3', 'no runs')
    """
    if not shares:
        return "no runs"
    ends = f" ({format_percent(min(shares))} to {format_percent(max(shares))})" if min(shares) < max(shares) else ""
    return f"{format_percent(statistics.mean(shares))}{ends} of {len(shares)}"


class Verdict(NamedTuple):
    """What the rule says of a claim."""

    word: str
    """Of a comparison "equal", "differs", "undecided", "too few seeds"; of a fact "holds", "does not hold"; "not
    measured" of both."""
    difference: Difference | None = None
    agrees: bool | None = None
    """Whether the paper's statement is confirmed, False where it is contradicted, None where that is open."""


def judge(claims: Sequence[Claim]) -> list[Verdict]:
    """The verdicts on the claims of a figure; Holm's correction is for all of its comparisons."""
    differences = [_difference(claim) if claim.runs >= FEWEST else None for claim in claims]
    found = holm([None if difference is None else difference.p for difference in differences])
    return [_verdict(*each) for each in zip(claims, differences, found, strict=True)]


def _difference(claim: Claim) -> Difference:
    if claim.right and all(claim.right):
        return paired_bootstrap(*claim.right)
    return compare(claim.ours, claim.other)


def _verdict(claim: Claim, difference: Difference | None, found: bool) -> Verdict:
    if claim.is_fact:
        return Verdict({True: "holds", False: "does not hold", None: "not measured"}[claim.holds], None, claim.holds)
    if difference is None:
        return Verdict("too few seeds" if claim.runs else "not measured")
    if difference.low >= -POINT and difference.high <= POINT:
        return Verdict("equal", difference, claim.wanted in ("equal", "reached"))
    if not found:
        return Verdict("undecided", difference)
    signs = {"equal": 0, "reached": 1, "higher": 1, "lower": -1}
    return Verdict("differs", difference, difference.mean * signs[claim.wanted] > 0)


def compare(ours: Sequence[float], other: Sequence[float] | float) -> Difference:
    """The difference of the mean of runs from that of others, or from the paper's number."""
    variance = statistics.variance(ours)
    parts = [(variance / len(ours), len(ours) - 1)]
    if isinstance(other, int | float):  # whose spread is not known but through ours: no further degrees of freedom
        mean, error, freedom = other, math.sqrt(variance / len(ours) + variance / PAPER_RUNS), len(ours) - 1.0
    else:
        mean = statistics.mean(other)
        parts.append((statistics.variance(other) / len(other), len(other) - 1))
        error = math.sqrt(sum(part for part, _ in parts))
        freedom = error**4 / sum(part**2 / free for part, free in parts) if error else 1.0
    distance, reading = statistics.mean(ours) - mean, POINT if isinstance(other, int | float) else 0.0
    half = quantile(freedom) * error
    beyond = max(abs(distance) - reading, 0.0)
    p = student(beyond / error, freedom) if error else float(beyond == 0)
    return Difference(distance, distance - half, distance + half, p)


def student(t: float, freedom: float, steps: int = 100) -> float:
    """The probability that Student's t lies further from 0 than ``t``.

    With t = sqrt(freedom) tan(a) its density is a power of cos(a), which Simpson's rule integrates.

    >>> round(student(2.776, 4), 4), round(student(12.706, 1), 4), student(0, 3)
    (0.05, 0.05, 1.0)
    """
    first = math.atan(t / math.sqrt(freedom))
    width = (math.pi / 2 - first) / steps
    heights = [max(math.cos(first + index * width), 0.0) ** (freedom - 1) for index in range(steps + 1)]
    area = width / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
    return round(2 * _density(0.0, freedom) * math.sqrt(freedom) * area, 12)


def _density(t: float, freedom: float) -> float:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return math.exp(scale) / math.sqrt(freedom * math.pi) * (1 + t * t / freedom) ** (-(freedom + 1) / 2)


@lru_cache(maxsize=1024)
def quantile(freedom: float, level: float = LEVEL) -> float:
    """The t beyond which :func:`student` is ``level``, by Newton's steps, which approach it from below.

    >>> [round(quantile(freedom), 3) for freedom in (2, 4, 8, 30)]
    [4.303, 2.776, 2.306, 2.042]
    """
    t, step = 0.0, 1.0
    while step > 1e-6:
        step = (student(t, freedom) - level) / (2 * _density(t, freedom))
        t += step
    return t


def holm(ps: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Which of several differences are findings: the k-th smallest of m has to be below level / (m - k + 1).

    >>> holm([0.04, 0.01, None, 0.03])
    [False, True, False, False]
    """
    order = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    found = [False] * len(ps)
    for rank, (p, index) in enumerate(order):
        if p > level / (len(order) - rank):
            break
        found[index] = True
    return found


def paired_bootstrap(right: Sequence[float], other: Sequence[float], draws: int = 1000) -> Difference:
    """The difference of two shares of right answers to the same passages, which are drawn again."""
    differences_E = torch.tensor(right, dtype=torch.float) - torch.tensor(other, dtype=torch.float)
    drawn_DE = torch.randint(len(right), (draws, len(right)), generator=torch.Generator().manual_seed(0))
    means_D = differences_E[drawn_DE].mean(dim=1)
    low, high = means_D.quantile(torch.tensor([LEVEL / 2, 1 - LEVEL / 2])).tolist()
    p = 2 * min((means_D <= 0).float().mean().item(), (means_D >= 0).float().mean().item())
    return Difference(differences_E.mean().item(), low, high, min(p, 1.0))
