"""Evaluation and training time over length on addition, this network and the Neural GPU, 96 maps each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from riffle.bench.over_length import Series, SeriesWork
from riffle.models.baselines import NeuralGPU
from riffle.models.sequence import SequenceModel
from riffle.reproduce.charts import timing_figure
from riffle.reproduce.claims import Claim, faster_everywhere, slope_is
from riffle.tasks import get_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OURS, THEIRS = "shuffle-exchange", "Neural GPU (DNGPU)"
WORKS: tuple[SeriesWork, ...] = ("evaluation", "training")
LONGEST = {(OURS, "evaluation"): 21, (OURS, "training"): 21, (THEIRS, "evaluation"): 17, (THEIRS, "training"): 14}
"""Powers of two that are tried at most; the paper went to 2M cells."""


def configs(*, quick: bool = False) -> list[Series]:
    """Every series; ``quick`` ones take seconds on a CPU."""
    task = get_task("add")
    features, longest = (12, 8) if quick else (96, None)

    def ours(device: torch.device, dtype: torch.dtype) -> nn.Module:
        return SequenceModel(task.symbols, task.classes, features, device=device, dtype=dtype)

    def theirs(device: torch.device, dtype: torch.dtype) -> nn.Module:
        return NeuralGPU(task.symbols, task.classes, features, device=device, dtype=dtype)

    return [
        Series(
            model=model,
            work=work,
            lengths=tuple(2**k for k in range(6, 1 + (longest or LONGEST[model, work]))),
            build=build,
            symbols=task.symbols,
            form="compiled" if model == THEIRS else "plain",
        )
        for work in WORKS
        for model, build in ((OURS, ours), (THEIRS, theirs))
    ]


def figure(results: Mapping[str, Any]) -> Figure:
    """Time and memory over length."""
    return timing_figure(results, "addition, one sequence, 96 maps, 1 block")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper's figure says, and whether these results do."""
    return [
        faster_everywhere(results, OURS, THEIRS, "evaluation"),
        faster_everywhere(results, OURS, THEIRS, "training"),
        slope_is(results, OURS, "evaluation", 0.9, 1.25),
        slope_is(results, THEIRS, "evaluation", 1.75, 2.25),
        slope_is(results, THEIRS, "training", 1.75, 2.25),
    ]
