"""A whole bench: ceilings first, then step after step, each saved as it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from riffle.bench.measure import OUT_OF_MEMORY, Measurer
from riffle.bench.record import Record
from riffle.bench.timing import Ceilings, measure_ceilings
from riffle.bench.workloads import Measurement


def run_bench(
    steps: Sequence[Measurement],
    record: Record,
    device: torch.device,
    *,
    quick: bool = False,
    on_ceilings: Callable[[Ceilings], None] = lambda ceilings: None,
    on_start: Callable[[Measurement], None] = lambda step: None,
    on_entry: Callable[[Measurement, Mapping[str, Any]], None] = lambda step, entry: None,
) -> bool:
    """Measure the steps into the record.

    Args:
        steps: What to measure.
        record: Where it is written, after every step.
        device: Where to measure.
        quick: Whether to take fewer repeats.
        on_ceilings: Called once the ceilings are known.
        on_start: Called before a step.
        on_entry: Called with a step and what came of it.

    Returns:
        Whether every step gave a time or ran out of memory; False after a wrong result or another failure.
    """
    torch.set_float32_matmul_precision("highest")  # float32 means float32 here
    if device.index is not None:
        torch.cuda.set_device(device)
    ceilings = measure_ceilings(device, quick=quick)
    record.begin(ceilings)
    on_ceilings(ceilings)
    measurer, well = Measurer(device, ceilings, quick=quick), True
    for step in steps:
        on_start(step)
        entry = measurer(step)
        record.put(step, entry)
        on_entry(step, entry)
        well = well and entry.get("failed") in (None, OUT_OF_MEMORY)
    return well
