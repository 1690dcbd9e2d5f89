"""Time over length on LAMBADA, this network and the Universal Transformer, with attention of 2019 and of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from riffle.bench.over_length import Series, SeriesForm, SeriesWork, longest_within
from riffle.models.baselines import UniversalReader
from riffle.models.sequence import SequenceModel
from riffle.reproduce.charts import timing_figure
from riffle.reproduce.claims import Claim, faster_everywhere, slope_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OURS = "shuffle-exchange"
MATERIALISED, FLASH = "Universal Transformer, scores in memory", "Universal Transformer, FlashAttention"
WORKS: tuple[SeriesWork, ...] = ("evaluation", "training")
WORDS = 60_001
"""The Universal Transformer's vocabulary."""
PAPER_MEMORY = 11.0
"""Gigabytes of the paper's GPU."""
TIMES_LONGER = 32
"""How many times longer sequences than attention's the paper fitted into it."""


def configs(*, quick: bool = False) -> list[Series]:
    """Every series; ``quick`` ones take seconds on a CPU."""
    words = 100 if quick else WORDS

    def ours(device: torch.device, dtype: torch.dtype) -> nn.Module:
        features = 12 if quick else 384
        return SequenceModel(words, 1, features, 2, device=device, dtype=dtype)

    def theirs(device: torch.device, dtype: torch.dtype) -> nn.Module:
        features, heads = (16, 2) if quick else (1024, 16)
        return UniversalReader(words, features, heads=heads, device=device, dtype=dtype)

    models: list[tuple[str, Any, SeriesForm, int]] = [
        (OURS, ours, "plain", 22),
        (MATERIALISED, theirs, "materialised", 17),
        (FLASH, theirs, "compiled", 19),
    ]
    return [
        Series(
            model=model,
            work=work,
            lengths=tuple(2**k for k in range(6, 1 + (8 if quick else last))),
            build=build,
            symbols=words,
            form=form,
        )
        for work in WORKS
        for model, build, form, last in models
    ]


def figure(results: Mapping[str, Any]) -> Figure:
    """Time and memory over length."""
    return timing_figure(results, "LAMBADA, one sequence, 384 maps and 2 blocks, base configuration")


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """What the paper's figure says, and whether these results do, also against today's attention."""
    limit = results["memory"] or PAPER_MEMORY
    return [
        *(faster_everywhere(results, OURS, theirs, "evaluation", 2048) for theirs in (MATERIALISED, FLASH)),
        slope_is(results, OURS, "evaluation", 0.9, 1.25),
        slope_is(results, FLASH, "evaluation", 1.6, 2.1),
        *(_longer(results, theirs, work, limit) for theirs in (MATERIALISED, FLASH) for work in WORKS),
    ]


def _longer(results: Mapping[str, Any], theirs: str, work: SeriesWork, gigabytes: float) -> Claim:
    ours, other = (longest_within(results, model, work, gigabytes) for model in (OURS, theirs))
    statement = f"within {gigabytes:g} GB, {work} reaches {TIMES_LONGER} times longer sequences than {theirs}"
    if ours is None or other is None:
        return Claim(statement, None, "no peak of memory was measured")
    return Claim(statement, ours >= TIMES_LONGER * other, f"{ours} and {other}: {ours / other:g} times")
