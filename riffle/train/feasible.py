"""Whether a model can be run at a length in a time one would wait, asked before it is tried."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from riffle.models.base import SymbolModel
from riffle.train.evaluate import rows_at_once
from riffle.wording import span

LONGEST = 3600.0
"""Seconds that all examples of one length may take."""
SURE = 1e12
"""So many operations take no hour on any machine."""
PROBE = 0.1
"""Seconds that a short run takes at least from which a long one is estimated."""


def refuse_too_heavy(model: SymbolModel, lengths: Sequence[int], examples: int) -> None:
    """Raise a ``ValueError`` with the estimated time and memory where a length takes too much of either."""
    device = next(model.parameters()).device
    for length in lengths:
        rows = rows_at_once(length, examples, device)
        space = rows * model.memory(length)
        free = available(device)
        too_large = space > free
        heavy = examples * model.operations(length) > SURE
        if not (too_large or heavy):
            continue
        seconds = estimate(model, length, examples)
        if too_large or seconds > LONGEST:
            what = "would run out of memory" if too_large else "would take too long"
            raise ValueError(
                f"{type(model).__name__} at length {length} {what}: about {span(seconds)} for {examples} examples and "
                f"{space / 1e9:,.1f} GB of memory, of which {free / 1e9:,.1f} GB are free; choose shorter lengths or "
                "fewer examples, or insist with --force"
            )


@torch.inference_mode()
def estimate(model: SymbolModel, length: int, examples: int) -> float:
    """Seconds for the examples of a length, from a run of a shorter one and the operations of both."""
    device = next(model.parameters()).device
    size, seconds, work = 4, 0.0, 1.0
    while seconds < PROBE and 2 * size <= length:
        size *= 2
        rows = rows_at_once(size, examples, device)
        symbols_BN = torch.ones(rows, size, dtype=torch.int64, device=device)
        seconds = min(_seconds(model, symbols_BN) for _ in range(3))  # the first run sets the libraries up
        work = rows * model.operations(size)
    return seconds * examples * model.operations(length) / work


def _seconds(model: SymbolModel, symbols_BN: Tensor) -> float:
    start = time.perf_counter()
    model(symbols_BN).argmax(dim=-1).cpu()  # waits for the device
    return time.perf_counter() - start


def available(device: torch.device) -> float:
    """Bytes of memory that are free on a device."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
