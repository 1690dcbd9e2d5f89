"""Time and peak memory of a model over length: the measurement behind the timing figures of ``reproduce``.

On a GPU every model runs in the form that suits it best: bfloat16, compiled where that helps, and short calls as CUDA
graphs. The Neural GPU, which makes n steps for n symbols, replays a graph of 64 steps n / 64 times.
"""

# B = batch, here 1, N = length, L = cells in one line, D = features per cell
from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from research.baselines.neural_gpu import NeuralGPU
from research.baselines.universal_transformer import UniversalReader
from research.bench.timing import Call, free_memory, graphed, peak_bytes, time_once, time_repeated

SeriesWork = Literal["evaluation", "training"]
SeriesForm = Literal["plain", "compiled", "materialised"]
SLOPE_POINTS = 4
"""A slope is fitted to this many of the longest lengths: launch overhead dominates the short ones."""
GRAPH_BELOW = 100.0
"""Milliseconds below which a call is replayed as one CUDA graph; above, launch overhead does not matter."""
GRAPH_STEPS = 64
"""Steps of the Neural GPU in one graph; lengths are a multiple of it."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure: a model at one kind of work, over lengths."""

    model: str
    work: SeriesWork
    """Evaluation, or a forward and backward pass without dropout."""
    lengths: tuple[int, ...]
    """Lengths to try, in rising order, until one takes too long or too much memory."""
    build: Callable[[torch.device, torch.dtype], nn.Module]
    """The model, which maps symbols ``[1, N]`` to logits."""
    symbols: int
    """Size of its input alphabet."""
    form: SeriesForm = "plain"
    """How it runs on a GPU: "compiled" by torch.compile, "materialised" with all attention scores in memory."""

    @property
    def name(self) -> str:
        """The series in words."""
        return f"{self.model}, {self.work}"


def points(results: Mapping[str, Any], model: str, work: SeriesWork, number: str = "milliseconds") -> dict[int, float]:
    """A number of a series by length, for the lengths that have it."""
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
    tail = sorted(by_length.items())[-SLOPE_POINTS:]
    if len(tail) < 2:
        return None
    lengths, values = ([math.log(number) for number in numbers] for numbers in zip(*tail, strict=True))
    return round(statistics.linear_regression(lengths, values).slope, 3)


def longest_within(results: Mapping[str, Any], model: str, work: SeriesWork, gigabytes: float) -> int | None:
    """The longest measured length whose peak memory is within a limit."""
    peaks = points(results, model, work, "peak_bytes")
    return max((length for length, peak in peaks.items() if peak <= gigabytes * 1e9), default=None)


def measure_series(
    series: Series,
    device: torch.device,
    *,
    budget: float,
    memory: float | None = None,
    quick: bool = False,
    on_point: Callable[[dict[str, Any]], None] = lambda point: None,
) -> dict[str, Any]:
    """Measure a series up to the first length that does not fit or is expected to exceed the budget.

    ``budget`` is in seconds of one call, ``memory`` in gigabytes of a GPU, None for all; see :func:`limit_memory`.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    start = time.perf_counter()
    measured: list[dict[str, Any]] = []
    stopped = None
    free_memory(compiled=device.type == "cuda")
    with _attention_kernel(series.form, device):
        module = series.build(device, dtype).eval()
        if series.form == "compiled" and device.type == "cuda":
            _compile_layers(module)
        for length in series.lengths:
            # The next length is expected to take longer than the last by the same factor as the last did.
            before, last = [0.0, 0.0, *(point["milliseconds"] for point in measured)][-2:]
            if before and last * max(last / before, 1.0) > budget * 1e3:
                stopped = f"{length} would take over {budget:g} s"
                break
            try:
                point = _measure_point(module, series, length, device, memory, quick, first_length=not measured)
            except torch.OutOfMemoryError:
                stopped = f"{length} is out of memory"
                break
            except GraphMemoryError:
                stopped = f"{length} leaves no memory for a recording"
                break
            finally:
                module.zero_grad(set_to_none=True)
                free_memory()
            measured.append({"length": length, **point})
            on_point(measured[-1])
    return {
        "model": series.model,
        "work": series.work,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "points": measured,
        "stopped": stopped,
        "seconds": round(time.perf_counter() - start, 1),
    }


class GraphMemoryError(Exception):
    """Too little memory to capture a call whose time without a graph would be launch overhead."""


def _compile_layers(module: nn.Module) -> None:
    """Compile the layers that a model repeats, for any length."""
    if isinstance(module, NeuralGPU):
        # Most of a step's kernels move cells or change each alone, and can be fused.
        module.unit.compile(dynamic=True, fullgraph=True)
    elif isinstance(module, UniversalReader):
        for stack in (module.encoder, module.decoder):
            stack.layer.compile(dynamic=True)


def _measure_point(
    module: nn.Module,
    series: Series,
    length: int,
    device: torch.device,
    memory: float | None,
    quick: bool,
    *,
    first_length: bool,
) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    x_BN = torch.randint(1, series.symbols, (1, length), generator=generator, device=device)
    is_neural_gpu = isinstance(module, NeuralGPU)

    @torch.no_grad()
    def evaluate() -> Tensor:
        return module(x_BN)

    def train() -> None:
        module.zero_grad(set_to_none=True)
        module(x_BN).sum().backward()

    if isinstance(module, NeuralGPU) and device.type == "cuda" and series.work == "evaluation":
        call, graph = graphed_steps(module, x_BN), True
        peak = peak_bytes(call, device)
        first, _ = time_once(call, device)
    else:
        call = train if series.work == "training" else evaluate
        if first_length or not is_neural_gpu:
            call()  # compiles; the Neural GPU's step is compiled for all lengths at the first one
        first, peak = time_once(call, device)
        wants_graph = device.type == "cuda" and (is_neural_gpu or first < GRAPH_BELOW)
        graph = wants_graph and _graph_fits(peak, memory, device)
        if is_neural_gpu and wants_graph and not graph:
            raise GraphMemoryError
        if graph:
            free_memory()
            call = graphed(call, warm_up=1)  # it has run before, but not on the stream that is captured
            call()
            first, _ = time_once(call, device)
    timing = time_repeated(call, first, device, quick=quick)
    return {**timing.entry(), "peak_bytes": peak, "graph": graph}


def _graph_fits(peak: int | None, memory: float | None, device: torch.device) -> bool:
    """Whether a graph fits beside the memory that a call left cached; a capture that fails cannot be undone."""
    total = torch.cuda.get_device_properties(device).total_memory
    return peak is not None and peak * 1.5 < min(total, memory * 1e9 if memory else total)


@torch.no_grad()
def graphed_steps(model: NeuralGPU, symbols_BN: Tensor) -> Call:
    """Evaluation by replaying a graph of 64 steps: a graph of all steps would have millions of nodes."""
    batch, length = symbols_BN.shape
    assert length % GRAPH_STEPS == 0, f"{length} is no multiple of {GRAPH_STEPS}"
    s_LD, active_L1 = model.initial_state([model.embed(symbols_BN)], [model.active_cells(symbols_BN)])
    state_LD = s_LD.clone()

    @torch.no_grad()
    def some_steps() -> None:
        s_LD = state_LD
        for _ in range(GRAPH_STEPS):
            s_LD = model.unit(s_LD) * active_L1
        state_LD.copy_(s_LD)

    replay = graphed(some_steps)

    @torch.no_grad()
    def call() -> Tensor:
        state_LD.copy_(model.initial_state([model.embed(symbols_BN)], [model.active_cells(symbols_BN)])[0])
        for _ in range(length // GRAPH_STEPS):
            replay()
        return model.read_out(state_LD, batch, length)

    return call


@contextlib.contextmanager
def _attention_kernel(form: SeriesForm, device: torch.device) -> Iterator[None]:
    if form == "materialised":
        # The best that was possible in 2019: no fused kernel, but all of it in the model's own precision.
        before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
        try:
            with sdpa_kernel([SDPBackend.MATH]):
                yield
        finally:
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)
    else:
        flash = form == "compiled" and device.type == "cuda"
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]) if flash else contextlib.nullcontext():
            yield


def limit_memory(gigabytes: float | None, device: torch.device) -> None:
    """Limit the GPU memory of this process; None for no limit."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        share = 1.0 if gigabytes is None else min(1.0, gigabytes * 1e9 / total)
        torch.cuda.set_per_process_memory_fraction(share, device.index)  # it takes no plain "cuda"
