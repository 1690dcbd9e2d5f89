"""Accuracy on LAMBADA by Beneš blocks, 192 maps each."""

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
FOLDERS = ("lambada-blocks",)
ONE, THREE = "192 maps, 1 block", "192 maps, 3 blocks"


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every depth."""
    one, three = (compared("lambada-blocks", group, blocks=blocks) for group, blocks in ((ONE, 1), (THREE, 3)))
    return seeded_readers([one, baseline(), three], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by Beneš blocks, 192 maps")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return rises(results, [ONE, BASELINE, THREE])
