"""How long a call takes and how much memory it needs."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

Call = Callable[[], object]
LONG = 2000.0
"""A call of this many milliseconds on a GPU is timed once."""


class Timing(NamedTuple):
    """Milliseconds of repeated calls."""

    median: float
    fastest: float
    slowest: float
    repeats: int


def timed(call: Call, device: torch.device, *, quick: bool = False, least: float = 300.0) -> tuple[Timing, int | None]:
    """Time and peak memory of a call that has been warmed up.

    Args:
        call: What to time.
        device: Where it runs.
        quick: Whether to take fewer repeats.
        least: Milliseconds for which a GPU repeats it, unless ``quick``.
    """
    times, peak = _cuda_times(call, quick, least) if device.type == "cuda" else (_cpu_times(call, quick), None)
    return Timing(statistics.median(times), min(times), max(times), len(times)), peak


def _cuda_times(call: Call, quick: bool, least: float) -> tuple[list[float], int | None]:
    from triton.testing import do_bench

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> None:
        start.record()
        call()
        end.record()

    peak = peak_bytes(once, torch.device("cuda"))
    first = start.elapsed_time(end)
    if first > LONG:
        return [first], peak
    # It empties the L2 cache before every call, as a long input would.
    rep = max(50, 3 * first) if quick else max(least, 9 * first)
    return do_bench(call, warmup=25, rep=rep, return_mode="all"), peak


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


def free() -> None:
    """Give back what the last row left behind."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
