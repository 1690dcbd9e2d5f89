"""Accuracy on LAMBADA with the switch unit and each of its ablations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.reproduce.claims import Claim
from riffle.reproduce.figures.readers import BASELINE, alike, baseline, compared, rises, seeded_readers
from riffle.reproduce.figures.reading_chart import reading_figure
from riffle.reproduce.results import Result
from riffle.reproduce.specs import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("lambada-units",)
OTHERS = ("no-swap", "no-residual", "no-benes", "swap-gate", "two-fc-gate")
"""The ablations that keep the gate, which is said to matter most."""
WITHOUT_GATE = "two-fc"
LOW_RATE = {"learning_rate": 0.0004}
"""Of the unit without a gate, which learns nothing at four times this rate."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every unit; the paper's is that of all comparisons."""
    others = [compared("lambada-units", unit, unit=unit) for unit in OTHERS]
    without_gate = compared("lambada-units", WITHOUT_GATE, train=LOW_RATE, unit=WITHOUT_GATE)
    return seeded_readers([baseline(), *others, without_gate], runs, quick)


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by switch unit, 192 maps, 2 blocks")


def claims(results: Sequence[Result]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    gated = [BASELINE, *OTHERS]
    return [alike(results, gated, 3), *(claim for unit in gated for claim in rises(results, [WITHOUT_GATE, unit]))]
