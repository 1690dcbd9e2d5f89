"""Accuracy on LAMBADA by which layers share their weights, and with more maps instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.experiments.learning import LEARNING, Learner, alike, learner, rises
from riffle.experiments.learning_chart import learning_figure
from riffle.experiments.series import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = LEARNING
SHARINGS = ("block", "minimal", "full")
"""The paper's usual sharing, as little as possible, and all blocks alike."""


def configs(*, quick: bool = False) -> list[Learner]:
    """Every network; ``quick`` ones take seconds on a CPU."""
    return [
        *(learner(f"{sharing}, 192 maps", quick=quick, features=192, sharing=sharing) for sharing in SHARINGS),
        learner("block, 384 maps", quick=quick),
    ]


def figure(results: Mapping[str, Any]) -> Figure:
    """Accuracy by network, and over steps."""
    return learning_figure(results, "LAMBADA by weight sharing, 2 blocks")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return [
        alike(results, [f"{sharing}, 192 maps" for sharing in SHARINGS], 2),
        rises(results, ["block, 192 maps", "block, 384 maps"]),
    ]
