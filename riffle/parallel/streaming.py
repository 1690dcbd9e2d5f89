"""A sequence in host memory, or in a file, through a device that cannot hold it: part by part.

:mod:`riffle.parallel.visits` says which cells come together. On a GPU two parts take turns: while one is computed, the
other is copied.
"""

# B = batch, N = 2**k cells, D = features per cell, C = 2**w cells of a part
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from riffle.nn.in_place import check_in_place, exchange_halves, overwrite_layer, slots_of
from riffle.nn.layer import switch_of
from riffle.parallel.mapped import mapped
from riffle.parallel.visits import Visit, visits

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

PART = 2**22
"""Cells that are on the device at once, unless said otherwise."""


@torch.no_grad()
def stream(
    network: ShuffleExchange,
    x_BND: Tensor,
    *,
    part: int = PART,
    out: Tensor | None = None,
    scratch: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, parts: None,
) -> Tensor:
    """What ``network(x_BND)`` gives without gradients, for a sequence longer than the network's device can hold.

    Args:
        network: The network, on the device that computes.
        x_BND: The cells, on the CPU, contiguous, with N a power of two: in memory, or a file that ``torch.from_file``
            has mapped. Overwritten by the result, unless there is ``out``.
        part: Cells that are on the device at once, a power of two. From the square root of N on, a block takes two
            passes over the sequence; smaller parts take more.
        out: Takes the result; of the shape and dtype of ``x_BND``, which is then left as it is.
        scratch: A folder for what skip connections keep, from two blocks on: 2 (k - 1) files of the size of the
            sequence of 2^k cells, deleted at the end. None keeps them in memory.
        on_progress: Called with the number of parts begun and of all parts, over all passes.

    Examples::

        >>> from riffle import ShuffleExchange
        >>> net, x = ShuffleExchange(8), torch.rand(1, 64, 8)
        >>> torch.allclose(stream(net, x.clone(), part=16), net(x), atol=1e-6)
        True
    """
    target_BND = x_BND if out is None else out
    k, w = _check(network, x_BND, target_BND, part)
    device = next(network.parameters()).device
    lanes = [_Lane(2**w, x_BND, device) for _ in range(2 if device.type == "cuda" else 1)]
    layers = network.layers(k)
    passes, slots = visits(layers, w), slots_of(layers)
    switch = switch_of(network, lanes[0].state_BND, k)
    official = network.order == "official"

    def run(state_BND: Tensor, visit: Visit, kept: list[Tensor]) -> None:
        if official and visit is passes[0]:
            exchange_halves(state_BND)
        for index in visit.layers:
            layer, skip_BND = layers[index], None
            if layer.skip is not None:
                skip = kept[slots[layer.skip]]
                skip_BND = torch.empty_like(state_BND).copy_(skip.reshape(state_BND.shape))
            if index in slots:
                keep = kept[slots[index]]
                keep.copy_(state_BND.view(keep.shape))
            overwrite_layer(state_BND, visit.place(layer.bit), layer.unit, switch, skip_BND)
        if official and visit is passes[-1]:
            exchange_halves(state_BND)

    begun, total = 0, len(passes) * x_BND.shape[0] * 2 ** (k - w)
    with nullcontext() if scratch is None else TemporaryDirectory(dir=scratch) as folder:
        names = range(len(set(slots.values())))
        kept = [torch.empty_like(x_BND) if folder is None else mapped(Path(folder, str(n)), x_BND) for n in names]
        for visit in passes:
            source_BND = x_BND if visit is passes[0] else target_BND
            buffers = (source_BND, target_BND, *kept)
            for source, target, *kept_parts in zip(*(visit.parts(buffer) for buffer in buffers), strict=True):
                lane = lanes[begun % len(lanes)]
                lane.start(source, target, partial(run, visit=visit, kept=kept_parts))
                begun += 1
                on_progress(begun, total)
            for lane in lanes:
                lane.finish()
    return target_BND


class _Lane:
    """A place for a part on the device, and the host memory through which it comes and goes.

    On a GPU that memory is pinned and the lane has a stream of its own, so that nothing waits but :meth:`finish`.
    """

    def __init__(self, cells: int, x_BND: Tensor, device: torch.device) -> None:
        gpu = device.type == "cuda"
        self.host_CD = torch.empty(cells, x_BND.shape[2], dtype=x_BND.dtype, pin_memory=gpu)
        self.state_BND = self.host_CD.unsqueeze(0).to(device)  # on a CPU the same memory
        self.stream = torch.cuda.Stream(device) if gpu else None
        self.target: Tensor | None = None

    def start(self, source: Tensor, target: Tensor, compute: Callable[[Tensor], None]) -> None:
        """Bring a part, compute it, and send it back to host memory; first the part before it is finished."""
        self.finish()
        self.host_CD.view(source.shape).copy_(source)
        self.target = target
        if self.stream is None:
            compute(self.state_BND)
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.state_BND.device))  # for the weights
        with torch.cuda.stream(self.stream):
            self.state_BND.copy_(self.host_CD, non_blocking=True)
            compute(self.state_BND)
            self.host_CD.copy_(self.state_BND[0], non_blocking=True)

    def finish(self) -> None:
        """Wait for the part, and put it in its place."""
        if self.target is None:
            return
        if self.stream is not None:
            self.stream.synchronize()
        self.target.copy_(self.host_CD.view(self.target.shape))
        self.target = None


def _check(network: ShuffleExchange, x_BND: Tensor, target_BND: Tensor, part: int) -> tuple[int, int]:
    """The address bits of the sequence and of a part."""
    network.check_cells(x_BND)
    if not x_BND.device.type == target_BND.device.type == "cpu":
        raise ValueError(
            f"the sequence is on {x_BND.device}, its result on {target_BND.device}, and both are to be in host memory: "
            "give x.cpu(), or call overwrite for a sequence that fits the device"
        )
    if target_BND.shape != x_BND.shape or target_BND.dtype != x_BND.dtype or not target_BND.is_contiguous():
        raise ValueError(
            f"out must be contiguous, of shape {tuple(x_BND.shape)} and {x_BND.dtype}, "
            f"got {tuple(target_BND.shape)} and {target_BND.dtype}"
        )
    k = check_in_place(network, x_BND)
    return k, min(k, part_bits(part))


def part_bits(part: int) -> int:
    """The address bits of a part of so many cells; refuses what is no power of two."""
    if part < 2 or part & (part - 1):
        raise ValueError(f"a part must be a power of two of cells, at least 2, got {part}")
    return part.bit_length() - 1
