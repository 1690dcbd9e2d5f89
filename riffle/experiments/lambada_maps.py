"""Accuracy on LAMBADA by feature maps, two blocks each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.experiments.learning import LEARNING, Learner, learner, rises
from riffle.experiments.learning_chart import learning_figure
from riffle.experiments.series import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = LEARNING
MAPS = (96, 192, 384)
"""As many as the paper compares."""


def configs(*, quick: bool = False) -> list[Learner]:
    """Every network; ``quick`` ones take seconds on a CPU."""
    return [learner(f"{maps} maps", quick=quick, features=maps) for maps in MAPS]


def figure(results: Mapping[str, Any]) -> Figure:
    """Accuracy by network, and over steps."""
    return learning_figure(results, "LAMBADA by feature maps, 2 blocks")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return [rises(results, [f"{maps} maps" for maps in MAPS])]
