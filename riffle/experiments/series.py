"""What a timing experiment measures and what it finds: series over length, slopes, claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from riffle.experiments.claim import Claim

Work = Literal["evaluation", "training"]
Form = Literal["plain", "compiled", "materialised"]
TAIL = 4
"""A slope is that of so many of the longest lengths: on short ones, starting kernels takes the time."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure: a model at one kind of work, over lengths."""

    model: str
    """The line's name."""
    work: Work
    """Evaluation, or forward and backward pass without dropout."""
    lengths: tuple[int, ...]
    """Lengths to try, in rising order, until one takes too long or too much memory."""
    build: Callable[[torch.device, torch.dtype], nn.Module]
    """The model, which maps symbols ``[1, N]`` to scores."""
    symbols: int
    """Size of its input alphabet."""
    form: Form = "plain"
    """How it runs on a GPU: "compiled" through torch.compile, "materialised" with all attention scores in memory."""

    @property
    def name(self) -> str:
        """The series in words."""
        return f"{self.model}, {self.work}"


def points(results: Mapping[str, Any], model: str, work: Work, number: str = "milliseconds") -> dict[int, float]:
    """A number of a series by length, of the lengths that have it."""
    for series in results["series"]:
        if (series["model"], series["work"]) == (model, work):
            return {point["length"]: point[number] for point in series["points"] if point.get(number) is not None}
    return {}


def slope(by_length: Mapping[int, float]) -> float | None:
    """The exponent of growth over the longest lengths, by least squares on logarithms.

    >>> slope({64: 9.0, 128: 9.0, 256: 10.0, 512: 20.0, 1024: 40.0, 2048: 80.0})
    1.0
    >>> slope({64: 9.0}) is None
    True
    """
    tail = sorted(by_length.items())[-TAIL:]
    if len(tail) < 2:
        return None
    xs, ys = ([math.log(pair[part]) for pair in tail] for part in (0, 1))
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    return round(rise / sum((x - x0) ** 2 for x in xs), 3)


def longest(results: Mapping[str, Any], model: str, work: Work, gigabytes: float) -> int | None:
    """The longest measured length whose peak of memory is within a limit."""
    peaks = points(results, model, work, "peak_bytes")
    return max((length for length, peak in peaks.items() if peak <= gigabytes * 1e9), default=None)


def faster_everywhere(results: Mapping[str, Any], ours: str, theirs: str, work: Work, at_least: int = 0) -> Claim:
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


def slope_is(results: Mapping[str, Any], model: str, work: Work, low: float, high: float) -> Claim:
    """Whether a series grows with an exponent within bounds."""
    by_length = points(results, model, work)
    found = slope(by_length)
    statement = f"{work} by {model} grows with an exponent of {low:g} to {high:g}"
    if found is None or len(by_length) < 2 * TAIL:
        return Claim(statement, None, f"{len(by_length)} lengths are too few")
    return Claim(statement, low <= found <= high, f"{found:g} over the {TAIL} longest lengths")


def powers(low: int, high: int) -> tuple[int, ...]:
    """Powers of two, both ends included.

    >>> powers(6, 9)
    (64, 128, 256, 512)
    """
    return tuple(2**k for k in range(low, high + 1))


def names(results: Mapping[str, Any]) -> Sequence[str]:
    """The models in the results, in order."""
    return list(dict.fromkeys(series["model"] for series in results["series"]))
