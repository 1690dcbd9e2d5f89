"""Time and memory over length: addition beside the Neural GPU, and LAMBADA beside the Universal Transformer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from research.baselines.neural_gpu import NeuralGPU
from research.baselines.universal_transformer import UniversalReader
from research.bench.over_length import SLOPE_POINTS, Series, SeriesForm, SeriesWork, longest_within, points, slope
from research.quantities import format_milliseconds
from research.reproduce.charts import timing_figure
from research.reproduce.figure import TimingFigure
from research.reproduce.paper import TIMES
from research.reproduce.verdicts import Claim
from riffle.models.sequence import SequenceModel
from riffle.quantities import format_length
from riffle.tasks import get_task

OURS = "shuffle-exchange"
WORKS: tuple[SeriesWork, ...] = ("evaluation", "training")
Build = Callable[[torch.device, torch.dtype], nn.Module]


def _series(quick: bool, symbols: int, *models: tuple[str, Build, SeriesForm, tuple[int, int]]) -> list[Series]:
    """Both works of every model, given with the base-two logarithms of the longest lengths."""
    return [
        Series(
            model=name,
            work=work,
            lengths=tuple(2**power for power in range(6, 1 + (8 if quick else longest[index]))),
            build=build,
            symbols=symbols,
            form=form,
        )
        for index, work in enumerate(WORKS)
        for name, build, form, longest in models
    ]


def faster_everywhere(
    results: Mapping[str, Any], model: str, baseline: str, work: SeriesWork, at_least: int = 0
) -> Claim:
    """Claim that a model is faster than a baseline at every common length, from a length on."""
    times, baseline_times = points(results, model, work), points(results, baseline, work)
    common = sorted(length for length in times.keys() & baseline_times.keys() if length >= at_least)
    statement = f"{work}: faster than {baseline}"
    if not common:
        return Claim(statement, evidence="no common length was measured")
    slower = [length for length in common if times[length] >= baseline_times[length]]
    first, last = common[0], common[-1]
    where = f"at all of {format_length(first)} to {format_length(last)}"
    if slower:
        where = f"not at {', '.join(map(format_length, slower))}"
    both = " and ".join(format_milliseconds(series[last]) for series in (times, baseline_times))
    return Claim(statement, holds=not slower, evidence=f"{where}; at {format_length(last)} {both}")


def grows_with_exponent(results: Mapping[str, Any], model: str, work: SeriesWork, low: float, high: float) -> Claim:
    """Claim that the time of a series grows with an exponent within bounds."""
    times = points(results, model, work)
    exponent = slope(times)
    statement = f"{work}: {model} grows with an exponent of {low:g} to {high:g}"
    if exponent is None or len(times) < 2 * SLOPE_POINTS:
        return Claim(statement, evidence=f"{len(times)} lengths are too few")
    evidence = f"{exponent:g} over the {SLOPE_POINTS} longest lengths"
    return Claim(statement, holds=low <= exponent <= high, evidence=evidence)


NEURAL_GPU = "Neural GPU (DNGPU)"


def _addition_series(quick: bool) -> list[Series]:
    """Up to 2M cells, as in the paper."""
    task = get_task("add")
    sizes = task.symbols, task.classes, 12 if quick else 96
    return _series(
        quick,
        task.symbols,
        (OURS, lambda device, dtype: SequenceModel(*sizes, device=device, dtype=dtype), "plain", (21, 21)),
        (NEURAL_GPU, lambda device, dtype: NeuralGPU(*sizes, device=device, dtype=dtype), "compiled", (17, 14)),
    )


def _claim_addition(results: Mapping[str, Any]) -> list[Claim]:
    return [
        *(faster_everywhere(results, OURS, NEURAL_GPU, work) for work in WORKS),
        grows_with_exponent(results, OURS, "evaluation", 0.9, 1.25),
        *(grows_with_exponent(results, NEURAL_GPU, work, 1.75, 2.25) for work in WORKS),
    ]


TIMING_ADDITION = TimingFigure(
    name="timing-addition",
    series=_addition_series,
    draw=partial(timing_figure, title="addition, 96 maps, 1 block", paper=TIMES["timing-addition"]),
    claims=_claim_addition,
)

MATERIALISED, FLASH = "Universal Transformer, scores in memory", "Universal Transformer, FlashAttention"
"""Attention as it was computed in 2019, and as it is today."""
PAPER_MEMORY = 11.0
"""Gigabytes of the paper's GPU."""
TIMES_LONGER = 32
"""How many times longer the paper's sequences were than those of attention in that memory."""


def _lambada_series(quick: bool) -> list[Series]:
    words, maps, features, heads = (100, 12, 16, 2) if quick else (60_001, 384, 1024, 16)

    def build_ours(device: torch.device, dtype: torch.dtype) -> nn.Module:
        return SequenceModel(words, 1, maps, 2, device=device, dtype=dtype)

    def build_transformer(device: torch.device, dtype: torch.dtype) -> nn.Module:
        return UniversalReader(words, features, heads=heads, device=device, dtype=dtype)

    return _series(
        quick,
        words,
        (OURS, build_ours, "plain", (22, 22)),
        (MATERIALISED, build_transformer, "materialised", (17, 17)),
        (FLASH, build_transformer, "compiled", (19, 19)),
    )


def _claim_lambada(results: Mapping[str, Any]) -> list[Claim]:
    """The paper's claims, also against today's attention."""
    limit = results["memory"] or PAPER_MEMORY
    return [
        *(faster_everywhere(results, OURS, baseline, "evaluation", 2048) for baseline in (MATERIALISED, FLASH)),
        grows_with_exponent(results, OURS, "evaluation", 0.9, 1.25),
        grows_with_exponent(results, FLASH, "evaluation", 1.6, 2.1),
        *(_fits_longer(results, baseline, work, limit) for baseline in (MATERIALISED, FLASH) for work in WORKS),
        _fits(results, limit),
    ]


def _fits(results: Mapping[str, Any], gigabytes: float) -> Claim:
    longest = longest_within(results, OURS, "evaluation", gigabytes)
    statement = f"within {gigabytes:g} GB, more than a hundred thousand"
    if longest is None:
        return Claim(statement, evidence="no peak of memory was measured")
    time = format_milliseconds(points(results, OURS, "evaluation")[longest])
    return Claim(statement, holds=longest > 100_000, evidence=f"{format_length(longest)} in {time}")


def _fits_longer(results: Mapping[str, Any], baseline: str, work: SeriesWork, gigabytes: float) -> Claim:
    ours, other = (longest_within(results, model, work, gigabytes) for model in (OURS, baseline))
    statement = f"{work}: {TIMES_LONGER} times longer than {baseline}"
    if ours is None or other is None:
        return Claim(statement, evidence="no peak of memory was measured")
    both = f"{format_length(ours)} and {format_length(other)}"
    evidence = f"{both} within {gigabytes:g} GB: {ours / other:g} times"
    return Claim(statement, holds=ours >= TIMES_LONGER * other, evidence=evidence)


TIMING_LAMBADA = TimingFigure(
    name="timing-lambada",
    series=_lambada_series,
    draw=partial(timing_figure, title="LAMBADA, 384 maps, 2 blocks", paper=TIMES["timing-lambada"]),
    claims=_claim_lambada,
)
