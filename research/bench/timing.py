"""How long a call takes, how much memory it needs, and what the device reaches at best.

Short calls on a GPU are timed by ``triton.testing.do_bench``, longer ones by CUDA events, calls on a CPU by the wall
clock. A call can be captured as a CUDA graph, which is then timed without launch overhead.
"""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from riffle.kernels.graphs import WARM_UP, capture

Call = Callable[[], object]
LONG = 2000.0
"""Milliseconds from which a call on a GPU is timed once."""
STEADY = 100.0
"""Milliseconds from which calls are timed one by one: neither launch overhead nor the cache matters any more."""
STABLE, FEWEST, MOST = 0.02, 3, 9
"""Such calls are repeated until the last three are within 2% of each other, at most nine times."""
LOOP, LOOP_CALLS = 150.0, 100
"""Milliseconds that a loop of short calls takes, and the most calls of a loop."""
SUSTAINED = 1500.0
"""Milliseconds of matrix products: under load a GPU lowers its clock, and long workloads run at the lower one."""


class Timing(NamedTuple):
    """Milliseconds of repeated calls."""

    median: float
    fastest: float
    slowest: float
    repeats: int

    def entry(self) -> dict[str, float]:
        """The timing for a result file, with five digits."""
        times = {"milliseconds": self.median, "fastest": self.fastest, "slowest": self.slowest}
        return {name: five_digits(value) for name, value in times.items()} | {"repeats": self.repeats}


def five_digits(number: float) -> float:
    """A number rounded to five digits, more than a repetition reproduces."""
    return float(f"{number:.5g}")


def time_call(
    call: Call, device: torch.device, *, quick: bool = False, at_least: float = 300.0
) -> tuple[Timing, int | None]:
    """Time and peak memory of a warmed-up call; short ones are repeated for ``at_least`` milliseconds on a GPU."""
    first, peak = time_once(call, device)
    return time_repeated(call, first, device, quick=quick, at_least=at_least), peak


def time_once(call: Call, device: torch.device) -> tuple[float, int | None]:
    """Milliseconds and peak memory of one call."""
    if device.type != "cuda":
        return wall_times(call, repeats=1)[0], None
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed() -> None:
        begin.record()
        call()
        end.record()

    peak = peak_bytes(timed, device)
    return begin.elapsed_time(end), peak


def time_repeated(
    call: Call, first: float, device: torch.device, *, quick: bool = False, at_least: float = 300.0
) -> Timing:
    """Time of a call whose first run took ``first`` milliseconds: the longer it takes, the fewer repeats."""
    if device.type != "cuda":
        times = wall_times(call, repeats=3, seconds=0.2) if quick else wall_times(call, repeats=5, seconds=1.0)
    elif first < STEADY:
        from triton.testing import do_bench

        # It empties the L2 cache before every call, as a long input would.
        rep = max(50, 3 * first) if quick else max(at_least, 9 * first)
        times = do_bench(call, warmup=25, rep=rep, return_mode="all")
    elif first > LONG:
        times = [first]
    else:
        times = repeat_until_stable(lambda: time_once(call, device)[0], FEWEST if quick else MOST)
    return Timing(statistics.median(times), min(times), max(times), len(times))


def time_loop(call: Call, device: torch.device, *, quick: bool = False) -> tuple[Timing, int | None]:
    """Time and peak memory of a warmed-up call in a loop that waits for the device at its end alone, by the wall clock.

    That is what a user sees: the host runs ahead of the device, or the device waits for the host.
    """
    first, peak = time_once(call, device)
    calls = max(1, min(LOOP_CALLS, round((LOOP / 3 if quick else LOOP) / first)))
    repeats = 1 if first > LONG else 3 if quick else 5
    synchronize = torch.cuda.synchronize if device.type == "cuda" else _nothing
    loops = wall_times(lambda: repeat(call, calls), repeats=repeats, synchronize=synchronize)
    times = [milliseconds / calls for milliseconds in loops]
    return Timing(statistics.median(times), min(times), max(times), calls * repeats), peak


def repeat(call: Call, times: int) -> None:
    """Call repeatedly, and keep no result."""
    for _ in range(times):
        call()


def _nothing() -> None:
    pass


def repeat_until_stable(measure: Callable[[], float], most: int) -> list[float]:
    """Measurements until the last three are within 2% of each other, at most ``most``.

    >>> numbers = iter([9.0, 5.0, 5.05, 5.1, 7.0])
    >>> repeat_until_stable(lambda: next(numbers), 5)
    [9.0, 5.0, 5.05, 5.1]
    """
    times: list[float] = []
    while len(times) < most:
        times.append(measure())
        last = times[-FEWEST:]
        if len(last) == FEWEST and max(last) - min(last) <= STABLE * min(last):
            break
    return times


def wall_times(call: Call, *, repeats: int, seconds: float = 0.0, synchronize: Call = _nothing) -> list[float]:
    """Milliseconds of each of at least ``repeats`` calls and until ``seconds`` have passed, by the wall clock.

    ``synchronize`` is called before each reading of the clock, to wait for a GPU or for other ranks.
    """
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds * 1e3:
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def peak_bytes(call: Call, device: torch.device) -> int | None:
    """The peak of memory allocated on a GPU during a call, weights and input included; None on a CPU."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def free_memory(*, compiled: bool = False) -> None:
    """Return cached memory to the GPU, and drop what ``torch.compile`` has ``compiled``."""
    if compiled:
        torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def graphed(call: Call, warm_up: int = WARM_UP) -> Call:
    """The call as a CUDA graph: captured when it is first called, after ``warm_up`` runs, and replayed every time."""
    graph = functools.cache(lambda: capture(call, warm_up=warm_up)[0])
    return lambda: graph().replay()


class PeakRates(NamedTuple):
    """What the device reached in this run; result files have it under "ceilings"."""

    product: float
    """FLOP/s of a square matrix product: bfloat16 on a GPU, float32 on a CPU."""
    copy: float
    """Bytes per second read and written by a copy too large for any cache."""
    description: str

    def floor(self, flops: int) -> float:
        """The milliseconds that these FLOPs take at the rate of the matrix product."""
        return flops / self.product * 1e3


def measure_peak_rates(device: torch.device, *, quick: bool = False) -> PeakRates:
    """Time a large matrix product and a large copy."""
    cuda = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if cuda else (1024 if quick else 2048, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    torch.mm(a, b, out=out)
    timing, _ = time_call(lambda: torch.mm(a, b, out=out), device, quick=quick, at_least=SUSTAINED)
    product = 2 * size**3 / (timing.median / 1e3)
    count = 2**31 if cuda else 2**28
    source, target = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    timing, _ = time_call(lambda: target.copy_(source), device, quick=quick)
    copy = 2 * count / (timing.median / 1e3)
    name = str(dtype).removeprefix("torch.")
    return PeakRates(product, copy, f"{name} product of {size} x {size} matrices; copy of {count} bytes")
