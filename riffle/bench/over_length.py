"""What a timing experiment measures and what it finds: series over length, slopes, claims.

Measure series over length: time, peak of memory, every model in its best form on a GPU.

Calls as CUDA graphs: whole ones, and the Neural GPU's n steps as one graph replayed n / 64 times.
"""

# B = batch, here 1, N = length
# B = batch, N = length, L = cells in one line, D = features per cell
from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from riffle.bench.timing import Call, peak_bytes, replayed, time_once, time_repeated
from riffle.models.baselines import NeuralGPU, UniversalReader
from riffle.tasks.base import BLANK

SeriesWork = Literal["evaluation", "training"]
SeriesForm = Literal["plain", "compiled", "materialised"]
TAIL = 4
"""A slope is that of so many of the longest lengths: on short ones, starting kernels takes the time."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure: a model at one kind of work, over lengths."""

    model: str
    """The line's name."""
    work: SeriesWork
    """Evaluation, or forward and backward pass without dropout."""
    lengths: tuple[int, ...]
    """Lengths to try, in rising order, until one takes too long or too much memory."""
    build: Callable[[torch.device, torch.dtype], nn.Module]
    """The model, which maps symbols ``[1, N]`` to scores."""
    symbols: int
    """Size of its input alphabet."""
    form: SeriesForm = "plain"
    """How it runs on a GPU: "compiled" through torch.compile, "materialised" with all attention scores in memory."""

    @property
    def name(self) -> str:
        """The series in words."""
        return f"{self.model}, {self.work}"


def points(results: Mapping[str, Any], model: str, work: SeriesWork, number: str = "milliseconds") -> dict[int, float]:
    """A number of a series by length, of the lengths that have it."""
    for series in results["series"]:
        if (series["model"], series["work"]) == (model, work):
            return {point["length"]: point[number] for point in series["points"] if point.get(number) is not None}
    return {}


def slope(by_length: Mapping[int, float]) -> float | None:
    """The exponent of growth over the longest lengths, by least squares on logarithms.

    >>> slope({64: 9.0, 128: 9.0, 256: 10.0, 512: 20.0, 1024: 40.0, 2048: 80.0})
    1.0
    >>> slope({64: 9.0}) is None
    True
    """
    tail = sorted(by_length.items())[-TAIL:]
    if len(tail) < 2:
        return None
    xs, ys = ([math.log(pair[part]) for pair in tail] for part in (0, 1))
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    return round(rise / sum((x - x0) ** 2 for x in xs), 3)


def longest(results: Mapping[str, Any], model: str, work: SeriesWork, gigabytes: float) -> int | None:
    """The longest measured length whose peak of memory is within a limit."""
    peaks = points(results, model, work, "peak_bytes")
    return max((length for length, peak in peaks.items() if peak <= gigabytes * 1e9), default=None)


def powers(low: int, high: int) -> tuple[int, ...]:
    """Powers of two, both ends included.

    >>> powers(6, 9)
    (64, 128, 256, 512)
    """
    return tuple(2**k for k in range(low, high + 1))


def names(results: Mapping[str, Any]) -> Sequence[str]:
    """The models in the results, in order."""
    return list(dict.fromkeys(series["model"] for series in results["series"]))


Entry = dict[str, Any]
GRAPH_BELOW = 100.0
"""Milliseconds below which a call is replayed as one CUDA graph; above, starting its kernels takes no time."""


class NoRoomForGraph(Exception):
    """A call takes so much memory that it cannot be recorded, and without that the host would be timed."""


def measure_series(
    series: Series,
    device: torch.device,
    *,
    budget: float,
    memory: float | None = None,
    quick: bool = False,
    on_point: Callable[[Entry], None] = lambda point: None,
) -> Entry:
    """Measure one series up to the first length that does not fit, or would take longer than the budget.

    Args:
        series: What to measure.
        device: Where.
        budget: Seconds that one call may take, foreseen from the two lengths before.
        memory: Gigabytes of a GPU that may be used, None for all; see :func:`limit_memory`.
        quick: Whether to take fewer repeats.
        on_point: Called with every length's entry.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    begun = time.perf_counter()
    found: list[Entry] = []
    stopped = None
    with _attention(series.form, device), _by_itself(device):
        module = prepare(series.build(device, dtype), series.form, device)
        for length in series.lengths:
            if foreseen(found) > budget * 1e3:
                stopped = f"{length} would take over {budget:g} s"
                break
            try:
                found.append(
                    {"length": length, **_point(module, series, length, device, memory, quick, fresh=not found)}
                )
            except torch.OutOfMemoryError:
                stopped = f"{length} is out of memory"
                break
            except NoRoomForGraph:
                stopped = f"{length} leaves no memory for a recording"
                break
            finally:
                module.zero_grad(set_to_none=True)
                release(device)
            on_point(found[-1])
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return {
        "model": series.model,
        "work": series.work,
        "parameters": parameters,
        "points": found,
        "stopped": stopped,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def foreseen(found: list[Entry]) -> float:
    """Milliseconds of the next length, if it grows over the last as the last did over the one before, at least."""
    if len(found) < 2:
        return 0.0
    before, last = (point["milliseconds"] for point in found[-2:])
    return last * max(last / before, 1.0)


def prepare(module: nn.Module, form: SeriesForm, device: torch.device) -> nn.Module:
    """The module in evaluation mode, the layers it repeats compiled where that is its form, for any length."""
    module = module.eval()
    if form == "compiled" and device.type == "cuda":
        if isinstance(module, NeuralGPU):
            module.unit.compile(dynamic=True)
        elif isinstance(module, UniversalReader):
            for stack in (module.encoder, module.decoder):
                if stack is not None:
                    stack.layer.compile(dynamic=True)
    return module


def _point(
    module: nn.Module,
    series: Series,
    length: int,
    device: torch.device,
    memory: float | None,
    quick: bool,
    *,
    fresh: bool,
) -> Entry:
    generator = torch.Generator(device).manual_seed(0)
    x_BN = torch.randint(1, series.symbols, (1, length), generator=generator, device=device)
    call = _training(module, x_BN) if series.work == "training" else _evaluation(module, x_BN)
    if device.type == "cuda" and series.work == "evaluation" and isinstance(module, NeuralGPU):
        # Its steps are recorded at once: started one by one, those of a long input would take minutes.
        call, graph = stepwise(module, x_BN), True
        peak = peak_bytes(call, device)
        first, _ = time_once(call, device)
    else:
        stepping = isinstance(module, NeuralGPU)  # started one by one, its steps would time the host
        if fresh or not stepping:
            call()  # compiles; what the Neural GPU's step needs is there after the first length
        first, peak = time_once(call, device)
        graph = device.type == "cuda" and (stepping or first < GRAPH_BELOW) and _has_room(peak, memory, device)
        if stepping and device.type == "cuda" and not graph:
            raise NoRoomForGraph
        if graph:
            release(device)
            call = replayed(call, warm_up=1)  # it has run before, but not on the stream that is recorded
            call()
            first, _ = time_once(call, device)
    timing = time_repeated(call, first, device, quick=quick)
    return {
        "milliseconds": float(f"{timing.median:.5g}"),
        "fastest": float(f"{timing.fastest:.5g}"),
        "slowest": float(f"{timing.slowest:.5g}"),
        "repeats": timing.repeats,
        "peak_bytes": peak,
        "graph": graph,
    }


def _has_room(peak: int | None, memory: float | None, device: torch.device) -> bool:
    """Whether a graph fits beside what is left of a call: a recording that fails cannot be undone."""
    total = torch.cuda.get_device_properties(device).total_memory
    return peak is not None and peak * 1.5 < min(total, memory * 1e9 if memory else total)


def _evaluation(module: nn.Module, x_BN: Tensor) -> Call:
    @torch.no_grad()
    def call() -> Tensor:
        return module(x_BN)

    return call


def _training(module: nn.Module, x_BN: Tensor) -> Call:
    def call() -> None:
        module.zero_grad(set_to_none=True)
        module(x_BN).sum().backward()

    return call


def release(device: torch.device) -> None:
    """Give a GPU's memory back before the next length."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _attention(form: SeriesForm, device: torch.device) -> Iterator[None]:
    """Which kernel attention takes."""
    if form == "materialised":
        # As much as one could do in 2019: no fused kernel, but all of it in the model's own precision.
        before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
        try:
            with sdpa_kernel([SDPBackend.MATH]):
                yield
        finally:
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)
    elif form == "compiled" and device.type == "cuda":
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            yield
    else:
        yield


@contextlib.contextmanager
def _by_itself(device: torch.device) -> Iterator[None]:
    """Start and end with nothing of another series in memory or compiled."""
    release(device)
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.compiler.reset()
        release(device)


def limit_memory(gigabytes: float | None, device: torch.device) -> None:
    """Let this process take so much memory of a GPU; None for all."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        share = 1.0 if gigabytes is None else min(1.0, gigabytes * 1e9 / total)
        index = torch.cuda.current_device() if device.index is None else device.index  # it takes no plain "cuda"
        torch.cuda.set_per_process_memory_fraction(share, index)


STEPS = 64
"""Steps of the Neural GPU in one graph; lengths are a multiple of it."""


@torch.no_grad()
def stepwise(model: NeuralGPU, symbols_BN: Tensor) -> Call:
    """Evaluation by a graph of 64 steps, replayed until all are made: a graph of all would have millions of nodes."""
    batch, length = symbols_BN.shape
    assert length % STEPS == 0, f"{length} is no multiple of {STEPS}"
    s_LD, live_L1 = model.begin([model.embed(symbols_BN)], [model.live(symbols_BN != BLANK)])
    state_LD = s_LD.clone()

    @torch.no_grad()
    def some_steps() -> None:
        s_LD = state_LD
        for _ in range(STEPS):
            s_LD = model.unit(s_LD) * live_L1
        state_LD.copy_(s_LD)

    replay = replayed(some_steps)

    @torch.no_grad()
    def call() -> Tensor:
        state_LD.copy_(model.begin([model.embed(symbols_BN)], [model.live(symbols_BN != BLANK)])[0])
        for _ in range(length // STEPS):
            replay()
        return model.end(state_LD, batch, length)

    return call
