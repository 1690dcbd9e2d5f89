"""How long a call takes and how much memory it needs.

A call as a CUDA graph, without launch overhead.

What the device can do at best: the rate of a large matrix product and of a copy.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from riffle.nn.graphed import WARM_UP, capture

Call = Callable[[], object]
LONG = 2000.0
"""A call of this many milliseconds on a GPU is timed once."""
STEADY = 100.0
"""From so many milliseconds on, calls are timed one by one: neither starting them nor the cache matters any more."""
AGREE, FEWEST, MOST = 0.02, 3, 9
"""Such calls are repeated until they agree to 2%, at least three and at most nine times."""


class Timing(NamedTuple):
    """Milliseconds of repeated calls."""

    median: float
    fastest: float
    slowest: float
    repeats: int


def time_call(
    call: Call, device: torch.device, *, quick: bool = False, least: float = 300.0
) -> tuple[Timing, int | None]:
    """Time and peak memory of a call that has been warmed up.

    Args:
        call: What to time.
        device: Where it runs.
        quick: Whether to take fewer repeats.
        least: Milliseconds for which a GPU repeats it, unless ``quick``.
    """
    first, peak = time_once(call, device)
    return time_repeated(call, first, device, quick=quick, least=least), peak


def time_once(call: Call, device: torch.device) -> tuple[float, int | None]:
    """Milliseconds and peak memory of one call."""
    if device.type != "cuda":
        start = time.perf_counter()
        peak = peak_bytes(call, device)
        return (time.perf_counter() - start) * 1e3, peak
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def marked() -> None:
        begun.record()
        call()
        ended.record()

    peak = peak_bytes(marked, device)
    return begun.elapsed_time(ended), peak


def time_repeated(
    call: Call, first: float, device: torch.device, *, quick: bool = False, least: float = 300.0
) -> Timing:
    """Time of a call of which the first took so many milliseconds; the longer it takes, the fewer repeats."""
    times = _cuda_times(call, first, device, quick, least) if device.type == "cuda" else _cpu_times(call, quick)
    return Timing(statistics.median(times), min(times), max(times), len(times))


def _cuda_times(call: Call, first: float, device: torch.device, quick: bool, least: float) -> list[float]:
    if first < STEADY:
        from triton.testing import do_bench

        # It empties the L2 cache before every call, as a long input would.
        rep = max(50, 3 * first) if quick else max(least, 9 * first)
        return do_bench(call, warmup=25, rep=rep, return_mode="all")
    return [first] if first > LONG else until_agreed(lambda: time_once(call, device)[0], FEWEST if quick else MOST)


def until_agreed(measure: Callable[[], float], most: int) -> list[float]:
    """Measurements until the last three of them agree to 2%, or there are enough.

    >>> numbers = iter([9.0, 5.0, 5.05, 5.1, 7.0])
    >>> until_agreed(lambda: next(numbers), 5)
    [9.0, 5.0, 5.05, 5.1]
    """
    times: list[float] = []
    while len(times) < most:
        times.append(measure())
        last = times[-FEWEST:]
        if len(last) == FEWEST and max(last) - min(last) <= AGREE * min(last):
            break
    return times


def _cpu_times(call: Call, quick: bool) -> list[float]:
    seconds, least = (0.2, 3) if quick else (1.0, 5)
    times: list[float] = []
    while len(times) < least or sum(times) < seconds * 1e3:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def peak_bytes(call: Call, device: torch.device) -> int | None:
    """The most memory allocated on a GPU at any time of a call, weights and input included; None on a CPU."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def free_memory() -> None:
    """Give back what the last row left behind."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def replayed(call: Call, warm_up: int = WARM_UP) -> Call:
    """The call as a recording: made when it is first called, after so many runs, then replayed."""
    recordings: list[torch.cuda.CUDAGraph] = []

    def replay() -> None:
        if not recordings:
            recordings.append(capture(call, warm_up=warm_up)[0])
        recordings[0].replay()

    return replay


SUSTAINED = 1500.0
"""Milliseconds of products: under load a GPU lowers its clock, and the long rows run at the lower one."""


class Ceilings(NamedTuple):
    """Rates measured in this run."""

    product: float
    """FLOP a second of a square matrix product: bfloat16 on a GPU, float32 on a CPU."""
    copy: float
    """Bytes read and written a second by a copy that no cache holds."""
    description: str
    """What was run."""

    def floor(self, flops: int) -> float:
        """The milliseconds that so many FLOPs take at the rate of the product."""
        return flops / self.product * 1e3


def measure_ceilings(device: torch.device, *, quick: bool = False) -> Ceilings:
    """Measure both rates."""
    cuda = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if cuda else (1024 if quick else 2048, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    torch.mm(a, b, out=out)
    timing, _ = time_call(lambda: torch.mm(a, b, out=out), device, quick=quick, least=SUSTAINED)
    product = 2 * size**3 / (timing.median / 1e3)
    count = 2**31 if cuda else 2**28
    source, target = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    timing, _ = time_call(lambda: target.copy_(source), device, quick=quick)
    copy = 2 * count / (timing.median / 1e3)
    name = str(dtype).removeprefix("torch.")
    return Ceilings(product, copy, f"{name} product of {size} x {size} matrices; copy of {count} bytes")
