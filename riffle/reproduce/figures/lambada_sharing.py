"""Accuracy on LAMBADA by which layers share their weights, and with more maps instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.reproduce.claims import Claim
from riffle.reproduce.figures.lambada_maps import TWICE, wide
from riffle.reproduce.figures.readers import BASELINE, alike, baseline, compared, rises, seeded_readers
from riffle.reproduce.figures.reading_chart import reading_figure
from riffle.reproduce.results import Result
from riffle.reproduce.specs import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("lambada-sharing",)
OTHERS = ("minimal", "full")
"""As little sharing as possible, and all blocks alike."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every sharing, and twice as many maps."""
    others = [compared("lambada-sharing", sharing, sharing=sharing) for sharing in OTHERS]
    return seeded_readers([baseline(), *others, wide()], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by weight sharing, 2 blocks")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return [alike(results, [BASELINE, *OTHERS], 2), *rises(results, [BASELINE, TWICE])]
