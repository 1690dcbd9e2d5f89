"""Multiplication by feature maps, two blocks each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good
from riffle.reproduce.figures.products import LENGTH, product
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import RunSpec, seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("maps",)
MAPS = (96, 192, 384)


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every width; 192 maps are those of products."""
    others = [product("maps", f"{count} maps", features=count) for count in MAPS if count != 192]
    return seeded([product(), *others], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """A line for each width."""
    lines = [
        Line(f"{count} maps", over_steps(select(results, "multiply", features=count)), colour=colour)
        for colour, count in enumerate(MAPS)
    ]
    return lines_figure(title("multiplication by feature maps", results), {f"accuracy at length {LENGTH}": lines})


def claims(results: Sequence[Result]) -> list[Claim]:
    """A wider network is better."""
    runs = {count: accuracies(select(results, "multiply", features=count), LENGTH) for count in MAPS}
    return [
        at_least_as_good(f"multiply: {more} maps are right as often as {less}", runs[more], runs[less])
        for less, more in pairwise(MAPS)
    ]
