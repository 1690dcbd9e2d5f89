"""One measurement: check, then time, then memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from riffle.bench import attention, backward, inference, training
from riffle.bench.check import compare
from riffle.bench.jobs import Results, dtype_of
from riffle.bench.timing import Ceilings, free_memory, peak_bytes, time_call
from riffle.bench.workloads import Measurement, WorkKind, Workload

WORKS: dict[WorkKind, ModuleType] = {
    "inference": inference,
    "forward and backward": backward,
    "training step": training,
    "encoder": attention,
}
"""Each has ``truth(row, device)``, ``job(row, form, device)`` and ``COMPARED``."""
OUT_OF_MEMORY = "out of memory"
WRONG = "wrong result"


class Measurer:
    """Measures steps one after the other; forms of one row share its truth.

    Args:
        device: Where.
        ceilings: Of the same run.
        quick: Whether to take fewer repeats.
    """

    def __init__(self, device: torch.device, ceilings: Ceilings, *, quick: bool = False) -> None:
        self.device, self.ceilings, self.quick = device, ceilings, quick
        self.row: Workload | None = None
        self.truth: Results | None = None

    def __call__(self, step: Measurement) -> dict[str, Any]:
        """The entry of a step: its times and errors, or under "failed" why there are none."""
        start = time.perf_counter()
        entry = _caught(lambda: self._measure(step))
        free_memory()
        return {**entry, "seconds": round(time.perf_counter() - start, 1)}

    def _measure(self, step: Measurement) -> dict[str, Any]:
        row, device = step.row, self.device
        if row != self.row:
            self.row = None
            self.truth = _on_cpu(WORKS[row.work].truth(row, device))
            self.row = row
            free_memory()
        job = WORKS[row.work].job(row, step.form, device)
        first_peak = peak_bytes(lambda: [job.call() for _ in range(job.first_calls)], device)
        entry: dict[str, Any] = {"dtype": str(dtype_of(step.form)).removeprefix("torch."), "errors": None}
        entry["compared"] = WORKS[row.work].COMPARED if self.truth is not None else None
        if self.truth is not None:
            comparison = compare(job.results(), self.truth, dtype_of(step.form))
            entry["errors"] = {name: _digits(error) for name, error in comparison.errors.items()}
            if not comparison.passed:
                return {"failed": WRONG, **entry}
        timing, peak = time_call(job.call, device, quick=self.quick)
        floor = self.ceilings.floor(row.flops)
        return {
            "milliseconds": _digits(timing.median),
            "fastest": _digits(timing.fastest),
            "slowest": _digits(timing.slowest),
            "repeats": timing.repeats,
            "peak_bytes": first_peak if job.graph else peak,
            "floor_milliseconds": _digits(floor),
            "fraction_of_floor": _digits(floor / timing.median),
            "graph": job.graph,
            **entry,
        }


def _digits(number: float) -> float | None:
    """Five digits, which is more than a repetition would reproduce; None for what is not finite."""
    return float(f"{number:.5g}") if math.isfinite(number) else None


def _on_cpu(results: Results | None) -> Results | None:
    """Out of the way of the rows, some of which need all memory of the device."""
    return None if results is None else {name: result.cpu() for name, result in results.items()}


def _caught(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a measurement gives, or why it failed: one form must not cost the run the others."""
    try:
        return measure()
    except torch.OutOfMemoryError:
        return {"failed": OUT_OF_MEMORY}
    except Exception as error:
        first_line = next(iter(str(error).strip().splitlines()), "")
        return {"failed": f"{type(error).__name__}: {first_line}"}
