"""Accuracy on LAMBADA with the switch unit and each of its ablations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.experiments.learning import LEARNING, Learner, alike, learner, rises
from riffle.experiments.learning_chart import learning_figure
from riffle.experiments.series import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = LEARNING
OTHERS = ("no-swap", "no-residual", "no-benes", "swap-gate", "two-fc-gate")
"""The ablations that keep the gate, which is said to matter most."""
WITHOUT_GATE = "two-fc"


def configs(*, quick: bool = False) -> list[Learner]:
    """Every network; ``quick`` ones take seconds on a CPU."""
    return [learner(unit, quick=quick, unit=unit) for unit in ("gated", *OTHERS, WITHOUT_GATE)]


def figure(results: Mapping[str, Any]) -> Figure:
    """Accuracy by network, and over steps."""
    return learning_figure(results, "LAMBADA by switch unit, 384 maps, 2 blocks")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper says, and whether these results do."""
    return [
        alike(results, ["gated", *OTHERS], 3),
        *(rises(results, [WITHOUT_GATE, unit]) for unit in ("gated", *OTHERS)),
    ]
