"""Multiplication by Beneš blocks, 192 maps each."""

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
FOLDERS = ("blocks",)
BLOCKS = (1, 2, 3)


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every depth; two blocks are those of products."""
    others = [product("blocks", f"{count} blocks", blocks=count) for count in BLOCKS if count != 2]
    return seeded([product(), *others], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """A line for each depth."""
    lines = [
        Line(f"{count} blocks", over_steps(select(results, "multiply", blocks=count)), colour=count - 1)
        for count in BLOCKS
    ]
    return lines_figure(title("multiplication by Beneš blocks", results), {f"accuracy at length {LENGTH}": lines})


def claims(results: Sequence[Result]) -> list[Claim]:
    """A deeper network is better."""
    runs = {count: accuracies(select(results, "multiply", blocks=count), LENGTH) for count in BLOCKS}
    return [
        at_least_as_good(f"multiply: {more} blocks are right as often as {less}", runs[more], runs[less])
        for less, more in pairwise(BLOCKS)
    ]
