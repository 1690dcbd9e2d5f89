"""Accuracy on LAMBADA by Beneš blocks, 384 maps each."""

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
FOLDERS = ("lambada-blocks", "lambada-maps")
ONE, THREE = "384 maps, 1 block", "384 maps, 3 blocks"


def configs(*, quick: bool = False, runs: int = RUNS) -> list[Learner]:
    """Every depth."""
    one, three = (reader("lambada-blocks", group, blocks=blocks) for group, blocks in ((ONE, 1), (THREE, 3)))
    return seeded_readers([one, paper_reader(), three], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by Beneš blocks, 384 maps")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return rises(results, [ONE, paper_reader().group, THREE])
