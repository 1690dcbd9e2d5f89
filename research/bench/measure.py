"""One measurement of ``bench``: the results of a case are compared with the reference, then it is timed."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from research.bench.jobs import GRADIENT, JOBS, Results, dtype_of
from research.bench.own_loop import OWN_LOOP_JOBS
from research.bench.timing import (
    PeakRates,
    five_digits,
    free_memory,
    measure_peak_rates,
    peak_bytes,
    repeat,
    time_call,
    time_loop,
)
from research.bench.workloads import Case, Workload

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}
"""The largest relative error of a result, in the Euclidean norm."""
GRADIENT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 4e-2}
"""The same for a gradient, which has the rounding of both passes: eager PyTorch in bfloat16 has an error of 0.02."""
OUT_OF_MEMORY = "out of memory"
NOT_INSTALLED = "not installed"
WRONG = "wrong result"


def compare(results: Results, reference: Results, dtype: torch.dtype) -> tuple[dict[str, float], bool]:
    """The relative error of each result computed in ``dtype``, and whether all are within their tolerances."""
    assert results.keys() == reference.keys()
    errors = {name: relative_error(result, reference[name]) for name, result in results.items()}
    # A comparison with NaN is false, so a NaN does not pass.
    limits = {name: (GRADIENT_TOLERANCE if name.startswith(GRADIENT) else TOLERANCE)[dtype] for name in errors}
    return errors, all(error <= limits[name] for name, error in errors.items())


def relative_error(actual: Tensor, exact: Tensor, chunk: int = 2**26) -> float:
    """``|actual - exact| / |exact|`` in the Euclidean norm, in float64; the two may be on different devices.

    A ``chunk`` of numbers is compared at once, so that the comparison fits beside any workload.

    >>> relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    0.1
    """
    assert actual.shape == exact.shape
    difference = norm = 0.0
    for part, exact_part in zip(actual.flatten().split(chunk), exact.flatten().split(chunk), strict=True):
        exact_part = exact_part.to(part.device).double()
        difference += float((part.double() - exact_part).square().sum())
        norm += float(exact_part.square().sum())
    return math.sqrt(difference / norm) if norm else math.inf


class Measurer:
    """Measures cases in turn; the forms of a workload share its reference results. Peak ``rates`` may be given."""

    def __init__(self, device: torch.device, *, quick: bool = False, rates: PeakRates | None = None) -> None:
        torch.set_float32_matmul_precision("highest")  # no TF32
        if device.index is not None:
            torch.cuda.set_device(device)
        self.device, self.quick = device, quick
        self.rates = rates or measure_peak_rates(device, quick=quick)
        self.workload: Workload | None = None
        self.reference: Results | None = None

    def __call__(self, case: Case) -> dict[str, Any]:
        """The entry of a case: its times and errors, or the reason under "failed", so that the run can go on."""
        start = time.perf_counter()
        try:
            entry = self._measure(case)
        except torch.OutOfMemoryError:
            entry = {"failed": OUT_OF_MEMORY}
        except ModuleNotFoundError:
            entry = {"failed": NOT_INSTALLED}
        except Exception as error:
            first_line = next(iter(str(error).strip().splitlines()), "")
            entry = {"failed": f"{type(error).__name__}: {first_line}"}
        free_memory(compiled=True)
        return {**entry, "seconds": round(time.perf_counter() - start, 1)}

    def _measure(self, case: Case) -> dict[str, Any]:
        workload, device, kind = case.workload, self.device, (JOBS | OWN_LOOP_JOBS)[case.workload.kind]
        if workload != self.workload:
            self.workload = None
            reference = kind.reference(workload, device)
            # On the CPU, since some workloads need all memory of the device.
            self.reference = reference and {name: result.cpu() for name, result in reference.items()}
            self.workload = workload
            del reference
            free_memory(compiled=True)
        job = kind.build(workload, case.form, device)
        start = time.perf_counter()
        first_peak = peak_bytes(lambda: repeat(job.call, job.first_calls), device)
        first_seconds = time.perf_counter() - start
        dtype = dtype_of(case.form)
        entry: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch."), "errors": None, "compared": None}
        results = None if self.reference is None else job.results()
        if self.reference is not None and results is not None:
            entry["compared"] = kind.compared
            errors, passed = compare(results, self.reference, dtype)
            del results
            entry["errors"] = {
                name: five_digits(error) if math.isfinite(error) else None for name, error in errors.items()
            }
            if not passed:
                return {"failed": WRONG, **entry}
        timing, peak = (time_loop if job.loop else time_call)(job.call, device, quick=self.quick)
        if job.has_floor:
            floor = self.rates.floor(workload.flops)
            entry |= {"floor_milliseconds": five_digits(floor), "fraction_of_floor": five_digits(floor / timing.median)}
        if job.parameters is not None:
            entry["parameters"] = job.parameters
        return {
            **timing.entry(),
            "first_seconds": round(first_seconds, 2),
            "peak_bytes": first_peak if job.graph else peak,
            "graph": job.graph,
            **entry,
        }
