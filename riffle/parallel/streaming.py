"""How a sequence that does not fit a device passes through it: which cells together, for which layers.

A layer joins cells that differ in one address bit. Take a part of ``2**w`` cells: all those that agree in the other
``k - w`` address bits. Every layer at one of its ``w`` bits can run on it alone, and a Beneš network goes up and down
the bits one by one, so a part serves many layers before it goes back to where it came from. One pass over the sequence,
part by part, is a visit:

    k = 6, w = 4      0 1 2 3 | 4 5 4 | 3 2 1 0          two more visits for a further block

Where at least half of the address bits lie in a part, that is ``k <= 2 w``, there are 2 visits a block and one at the
end, however long the sequence. No cells are moved in between: a part is gathered from where its cells lie. The bits of
a part for which no layer asks are the lowest, so that its cells lie in long runs.

Cells in a file that is mapped into memory, for sequences longer than host memory can hold.

A sequence in host memory, or in a file, through a device that cannot hold it: part by part.

:func:`stream_passes` says which cells come together. On a GPU two parts take turns: while one is computed, the
other is copied.
"""

# N = 2**k cells, D = features per cell
# B = batch, N = cells, D = features per cell
# B = batch, N = 2**k cells, D = features per cell, C = 2**w cells of a part
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from riffle.nn.execute import check_in_place, exchange_halves, overwrite_layer, skip_buffers, switch_of
from riffle.shuffle import Layer

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


@dataclass(frozen=True)
class StreamPass:
    """Consecutive layers that run on each part before the next part comes."""

    layers: range
    """Which layers of the schedule."""
    low: int
    """The lowest address bit of a window that has the bits of all these layers; bit ``run`` of a place in the part."""
    span: int
    """How many bits the window has."""
    run: int
    """How many of the lowest address bits lie in it too: it has runs of ``2**run`` consecutive cells."""

    def place(self, bit: int) -> int:
        """The bit of the place in a part which is this bit of the address."""
        return bit - self.low + self.run

    def parts(self, x_BND: Tensor) -> Iterator[Tensor]:
        """Views ``[2**span, 2**run, D]`` of the parts of contiguous sequences of ``2**k`` cells."""
        shape = (-1, 2**self.span, 2 ** (self.low - self.run), 2**self.run, x_BND.shape[2])
        for high in x_BND.view(shape):
            yield from high.unbind(1)


def stream_passes(layers: tuple[Layer, ...], w: int) -> tuple[StreamPass, ...]:
    """The visits of a schedule to parts of ``2**w`` cells.

    Args:
        layers: What :func:`riffle.shuffle.schedule` gives.
        w: Address bits of a part; 1 to those of the sequence.

    >>> from riffle.shuffle import schedule
    >>> layers = schedule(6)
    >>> [[layers[index].bit for index in visit.layers] for visit in visits(layers, 4)]
    [[0, 1, 2, 3], [4, 5, 4], [3, 2, 1, 0]]
    """
    above = 1 + max(layer.bit for layer in layers) - w
    # Above the lowest w bits, as few windows of bits as there can be, of one size, since a narrow one leaves long runs.
    size = ceil(above / max(1, ceil(above / w)))
    found = []
    for window, group in groupby(range(len(layers)), lambda index: _window(layers[index].bit, w, size)):
        indices = list(group)
        span = w if window == 0 else min(size, w + above - window)
        found.append(StreamPass(range(indices[0], indices[-1] + 1), window, span, w - span))
    return tuple(found)


def _window(bit: int, w: int, size: int) -> int:
    """The lowest bit of the window in which a bit lies."""
    return 0 if bit < w else bit - (bit - w) % size


def memory_mapped(path: Path, like: Tensor) -> Tensor:
    """A tensor in a new file, with the shape and dtype of another, which may be a meta tensor.

    The space is taken at once where the system can, so that a full disk is an error here and not a crash later on.
    """
    with path.open("xb") as file:
        if hasattr(os, "posix_fallocate") and like.nbytes:
            os.posix_fallocate(file.fileno(), 0, like.nbytes)
    return torch.from_file(str(path), shared=True, size=like.numel(), dtype=like.dtype).view(like.shape)


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
    passes, slots = stream_passes(layers, w), skip_buffers(layers)
    switch = switch_of(network, lanes[0].state_BND, k)
    official = network.order == "official"

    def run(state_BND: Tensor, visit: StreamPass, kept: list[Tensor]) -> None:
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
        kept = [
            torch.empty_like(x_BND) if folder is None else memory_mapped(Path(folder, str(n)), x_BND) for n in names
        ]
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
