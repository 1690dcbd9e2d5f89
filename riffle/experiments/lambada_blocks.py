"""Accuracy on LAMBADA by Beneš blocks, 384 maps each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.experiments.learning import LEARNING, Learner, learner, rises
from riffle.experiments.learning_chart import learning_figure
from riffle.experiments.series import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = LEARNING
BLOCKS = (1, 2, 3)
"""Up to how deep the networks are."""


def configs(*, quick: bool = False) -> list[Learner]:
    """Every network; ``quick`` ones take seconds on a CPU."""
    return [learner(f"{blocks} blocks", quick=quick, blocks=blocks) for blocks in BLOCKS]


def figure(results: Mapping[str, Any]) -> Figure:
    """Accuracy by network, and over steps."""
    return learning_figure(results, "LAMBADA by Beneš blocks, 384 maps")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return [rises(results, [f"{blocks} blocks" for blocks in BLOCKS])]
