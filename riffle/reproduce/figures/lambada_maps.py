"""Accuracy on LAMBADA by feature maps, two blocks each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.reproduce.claims import Claim
from riffle.reproduce.figures.readers import BASELINE, baseline, compared, rises, seeded_readers
from riffle.reproduce.figures.reading_chart import reading_figure
from riffle.reproduce.results import Result
from riffle.reproduce.specs import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("lambada-maps",)
HALF, TWICE = "96 maps, 2 blocks", "384 maps, 2 blocks"


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every width."""
    return seeded_readers([compared("lambada-maps", HALF, features=96), baseline(), wide()], runs, quick)


def wide() -> RunSpec:
    """As many maps as the paper's network has."""
    return compared("lambada-maps", TWICE, features=384)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by feature maps, 2 blocks")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return rises(results, [HALF, BASELINE, TWICE])
