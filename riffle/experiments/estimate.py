"""How long runs will take, from how fast runs like them go."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


class Estimate:
    """Speeds of groups of runs, and the time that is left by them.

    >>> estimate = Estimate(at_once=2)
    >>> estimate.seconds([("add", 1000)]) is None
    True
    >>> estimate.note("add", 100.0)
    >>> estimate.seconds([("add", 1000), ("sort", 3000), ("add", 2000)])
    30.0

    Args:
        at_once: Runs that go on at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once, self.rates = at_once, dict[str, float]()

    def note(self, group: str, rate: float) -> None:
        """Take note of a group's speed in steps a second; the last one counts."""
        self.rates[group] = rate

    def seconds(self, left: Iterable[tuple[str, int]]) -> float | None:
        """Seconds for runs of which group and steps left are given, None as long as no speed is known.

        A group of which nothing is known is taken to be as fast as the others on average. It cannot be less than the
        longest run takes.
        """
        if not self.rates:
            return None
        usual = statistics.harmonic_mean(list(self.rates.values()))
        each = [steps / self.rates.get(group, usual) for group, steps in left]
        return max([sum(each) / self.at_once, *each])
