"""What the device can do at best: the rate of a large matrix product and of a copy."""

from __future__ import annotations

from typing import NamedTuple

import torch

from riffle.bench.timing import timed

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


def measure(device: torch.device, *, quick: bool = False) -> Ceilings:
    """Measure both rates."""
    cuda = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if cuda else (1024 if quick else 2048, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    torch.mm(a, b, out=out)
    timing, _ = timed(lambda: torch.mm(a, b, out=out), device, quick=quick, least=SUSTAINED)
    product = 2 * size**3 / (timing.median / 1e3)
    count = 2**31 if cuda else 2**28
    source, target = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    timing, _ = timed(lambda: target.copy_(source), device, quick=quick)
    copy = 2 * count / (timing.median / 1e3)
    name = str(dtype).removeprefix("torch.")
    return Ceilings(product, copy, f"{name} product of {size} x {size} matrices; copy of {count} bytes")
