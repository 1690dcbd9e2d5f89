"""Which passages a model answers: all of them, those it could answer, common and rare answers, near and far ones."""

# E = examples
from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from riffle.lambada.pointing import Pointed
from riffle.lambada.report import CLASSES

DISTANCES = {"1-10": 10, "11-25": 25, "26-50": 50, "51 and more": None}
"""Classes of how many words before its end a passage last mentions the answer."""

Score = dict[str, float]
"""How many ``passages``, and the share of right answers among them by ``position`` and by ``word``."""


def breakdown(pointed: Pointed, rank_E: Tensor) -> dict[str, dict[str, Score]]:
    """Accuracy over all passages and over parts of them; a part without passages is left out.

    Args:
        pointed: What a model answered.
        rank_E: The place of every answer in the model's list of words, most common first, from 0 on; negative for a
            word that it does not know.
    """
    answerable_E = pointed.distance > 0
    parts = {
        "passages": {"all": torch.ones_like(answerable_E), "answer in passage": answerable_E},
        "rank": {**_classes(rank_E, CLASSES), "unknown": rank_E < 0},
        "distance": _classes(pointed.distance - 1, DISTANCES),
    }
    return {
        name: {label: _score(pointed, part_E) for label, part_E in some.items() if part_E.any()}
        for name, some in parts.items()
    }


def _classes(number_E: Tensor, limits: Mapping[str, int | None]) -> dict[str, Tensor]:
    """For every class of numbers from 0 on, which are below its limit and in no class before; negative ones in none."""
    borders = torch.tensor([limit for limit in limits.values() if limit is not None], device=number_E.device)
    class_E = torch.bucketize(number_E, borders, right=True).masked_fill(number_E < 0, -1)
    return {label: class_E == place for place, label in enumerate(limits)}


def _score(pointed: Pointed, part_E: Tensor) -> Score:
    some = Pointed(*(column[part_E] for column in pointed))
    return {"passages": len(some.answers), **some.accuracy}
