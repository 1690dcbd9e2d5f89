"""What training for LAMBADA owes to each of its settings: all as they are, and all but one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.experiments.learning import LEARNING, Learner, accuracies, learner
from riffle.experiments.learning_chart import learning_figure
from riffle.experiments.series import Claim
from riffle.wording import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = LEARNING
FEATURES = 192
"""Half the maps of the paper's network: settings are compared, and four times as many steps fit into the time."""
BASE = "as it is"
LEVERS: dict[str, dict[str, dict[str, Any]]] = {
    BASE: {},
    "sentence ends only": {"data": {"within": 0.0}},
    "inside sentences only": {"data": {"within": 1.0}},
    "answers as often as they occur": {"data": {"flatten": 0.0}},
    "no word forgotten": {"data": {"forget": 0.0}},
    "no word dropped": {"data": {"word_dropout": 0.0}},
    "no dropout": {"model": {"dropout": 0.0}},
    "half the learning rate": {"train": {"learning_rate": 0.0008}},
    "twice the learning rate": {"train": {"learning_rate": 0.0032}},
    "weight decay 0.01": {"train": {"weight_decay": 0.01}},
}
"""What is changed, by the name of the line."""


def configs(*, quick: bool = False) -> list[Learner]:
    """Every network; ``quick`` ones take seconds on a CPU."""
    return [
        learner(
            name,
            quick=quick,
            data=change.get("data", {}),
            train=change.get("train", {}),
            features=FEATURES,
            **change.get("model", {}),
        )
        for name, change in LEVERS.items()
    ]


def figure(results: Mapping[str, Any]) -> Figure:
    """Accuracy by setting, and over steps."""
    return learning_figure(results, f"LAMBADA by settings, {FEATURES} maps, 2 blocks")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """Whether any change would have been better; no claim of the paper's."""
    found = accuracies(results)
    if BASE not in found or len(found) < len(LEVERS):
        return [Claim("no change of one setting is better", None, f"{len(found)} of {len(LEVERS)} were measured")]
    best = max(found, key=found.__getitem__)
    evidence = f"{best} {percent(found[best])}, {BASE} {percent(found[BASE])}"
    return [Claim("no change of one setting is better", best == BASE, evidence)]
