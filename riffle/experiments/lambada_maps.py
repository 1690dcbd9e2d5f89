"""Accuracy on LAMBADA by feature maps, two blocks each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.experiments.claim import Claim
from riffle.experiments.learner import Learner
from riffle.experiments.readers import paper_reader, reader, rises, seeded_readers
from riffle.experiments.reading_chart import reading_figure
from riffle.experiments.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = 1
FOLDERS = ("lambada-maps",)
MAPS = (96, 192)
"""Besides the 384 of the paper's network."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[Learner]:
    """Every width."""
    others = [reader("lambada-maps", f"{maps} maps, 2 blocks", features=maps) for maps in MAPS]
    return seeded_readers([*others, paper_reader()], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by feature maps, 2 blocks")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return rises(results, [*(f"{maps} maps, 2 blocks" for maps in MAPS), paper_reader().group])
