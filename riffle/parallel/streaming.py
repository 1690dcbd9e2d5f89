"""A sequence in host memory, or in a file, through a device that cannot hold it: part by part.

A layer joins cells that differ in one address bit. Take a part of ``2**w`` cells: all those that agree in the other
``k - w`` address bits. Every layer at one of its ``w`` bits can run on it alone, and a Beneš network goes up and down
the bits one by one, so a part serves many layers before the next part is loaded. One pass over the sequence runs each
part through as many layers as it can:

    k = 6, w = 4      0 1 2 3 | 4 5 4 | 3 2 1 0          two more passes for a further block

Where at least half of the address bits lie in a part, that is ``k <= 2 w``, there are 2 passes a block and one at the
end, however long the sequence. No cells are moved in between: a part is gathered from where its cells lie. The bits of
a part that no layer of the pass needs are the lowest, so that its cells lie in long runs. On a GPU two parts take
turns: while one is computed, the other is copied.
"""

# B = batch, N = 2**k cells, D = features per cell, C = 2**w cells of a part
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from tempfile import gettempdir, mkstemp
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from riffle.nn.execute import overwrite_layer, skip_buffers, switch_layer, walk
from riffle.shuffle import Layer

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
            has mapped. Overwritten by the result, unless there is ``out``; then it has no gradient to come.
        part: Cells that are on the device at once, a power of two. From the square root of N on, a block takes two
            passes over the sequence; smaller parts take more.
        out: Takes the result; of the shape and dtype of ``x_BND``, which is then left as it is, in memory of its own.
        scratch: A folder for what skip connections keep, from two blocks on: 2 (k - 1) files of the size of the
            sequence of 2^k cells, without names: they end with the process at the latest. None keeps them in memory.
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
    staging = [_StagingBuffer(2**w, x_BND, device) for _ in range(2 if device.type == "cuda" else 1)]
    layers = network.layers(k)
    passes, buffers = stream_passes(layers, w), skip_buffers(layers)
    switch = switch_layer(network, staging[0].state_BND, k)

    def run(state_BND: Tensor, stream_pass: StreamPass, kept: list[Tensor]) -> None:
        def run_layer(index: int, layer: Layer, state_BND: Tensor, skip: Tensor | None) -> tuple[Tensor, Tensor | None]:
            skip_BND = None if skip is None else torch.empty_like(state_BND).copy_(skip.reshape(state_BND.shape))
            keep = kept[buffers[index]] if index in buffers else None
            if keep is not None:
                keep.copy_(state_BND.view(keep.shape))
            overwrite_layer(state_BND, stream_pass.part_bit(layer.bit), layer.unit, switch, skip_BND)
            return state_BND, keep

        if stream_pass is passes[0]:
            network.relabel_(state_BND)
        inputs = {index: kept[buffer] for index, buffer in buffers.items()}
        walk(layers, state_BND, run_layer, indices=stream_pass.layers, kept=inputs)
        if stream_pass is passes[-1]:
            network.relabel_(state_BND)

    begun, total = 0, len(passes) * x_BND.shape[0] * 2 ** (k - w)
    keep = torch.empty_like if scratch is None else partial(memory_mapped, folder=scratch)
    kept = [keep(x_BND) for _ in set(buffers.values())]
    for stream_pass in passes:
        source_BND = x_BND if stream_pass is passes[0] else target_BND
        sequences = (source_BND, target_BND, *kept)
        for source, target, *kept_parts in zip(*map(stream_pass.parts, sequences), strict=True):
            buffer = staging[begun % len(staging)]
            buffer.start(source, target, partial(run, stream_pass=stream_pass, kept=kept_parts))
            begun += 1
            on_progress(begun, total)
        for buffer in staging:
            buffer.finish()
    return target_BND


@dataclass(frozen=True)
class StreamPass:
    """One pass over the sequence: consecutive layers that run on each part before the next part is loaded.

    A part has the address bits ``window`` to ``window + window_bits - 1``, which include those of all these layers, and
    the lowest ``run_bits`` address bits: runs of ``2**run_bits`` consecutive cells.
    """

    layers: range
    """Which layers of the schedule."""
    window: int
    """The lowest address bit of the window; bit ``run_bits`` of a place in the part."""
    window_bits: int
    """How many bits the window has."""
    run_bits: int
    """How many of the lowest address bits lie in the part too."""

    def part_bit(self, bit: int) -> int:
        """The bit of the place in a part that is this bit of the address."""
        return bit - self.window + self.run_bits

    def parts(self, x_BND: Tensor) -> Iterator[Tensor]:
        """Views ``[2**window_bits, 2**run_bits, D]`` of the parts of contiguous sequences of ``2**k`` cells."""
        shape = (-1, 2**self.window_bits, 2 ** (self.window - self.run_bits), 2**self.run_bits, x_BND.shape[2])
        for high in x_BND.view(shape):
            yield from high.unbind(1)


def stream_passes(layers: tuple[Layer, ...], w: int) -> tuple[StreamPass, ...]:
    """The passes of a schedule over parts of ``2**w`` cells.

    Args:
        layers: What :func:`riffle.shuffle.schedule` gives.
        w: Address bits of a part; 1 to those of the sequence.

    >>> from riffle.shuffle import schedule
    >>> layers = schedule(6)
    >>> [[layers[index].bit for index in stream_pass.layers] for stream_pass in stream_passes(layers, 4)]
    [[0, 1, 2, 3], [4, 5, 4], [3, 2, 1, 0]]
    """
    above = 1 + max(layer.bit for layer in layers) - w
    # Above the lowest w bits, as few windows of bits as there can be, of one size, since a narrow one leaves long runs.
    size = ceil(above / max(1, ceil(above / w)))

    def window_of(index: int) -> int:
        bit = layers[index].bit
        return 0 if bit < w else bit - (bit - w) % size

    passes = []
    for window, group in groupby(range(len(layers)), window_of):
        indices = list(group)
        window_bits = w if window == 0 else min(size, w + above - window)
        passes.append(StreamPass(range(indices[0], indices[-1] + 1), window, window_bits, w - window_bits))
    return tuple(passes)


def memory_mapped(like: Tensor, folder: Path | None = None) -> Tensor:
    """A tensor in a new file, with the shape and dtype of another, which may be a meta tensor.

    The space is taken at once where the system can, so that a full disk is an error here and not a crash later on. The
    file has lost its name when this returns: a process that is killed leaves nothing behind.
    """
    folder = folder or Path(gettempdir())
    try:
        handle, name = mkstemp(dir=folder)
        try:
            if hasattr(os, "posix_fallocate") and like.nbytes:
                os.posix_fallocate(handle, 0, like.nbytes)
            return torch.from_file(name, shared=True, size=like.numel(), dtype=like.dtype).view(like.shape)
        finally:
            os.close(handle)
            with suppress(PermissionError):  # Windows deletes no file that is mapped
                os.unlink(name)
    except OSError as error:
        error.filename = str(folder)
        raise


class _StagingBuffer:
    """Memory for one part on the device, and on the host for its copies to and from there.

    On a GPU the host memory is pinned and the buffer has a stream of its own, so that only :meth:`finish` waits.
    """

    def __init__(self, cells: int, x_BND: Tensor, device: torch.device) -> None:
        gpu = device.type == "cuda"
        self.host_CD = torch.empty(cells, x_BND.shape[2], dtype=x_BND.dtype, pin_memory=gpu)
        self.state_BND = self.host_CD.unsqueeze(0).to(device)  # on a CPU the same memory
        self.stream = torch.cuda.Stream(device) if gpu else None
        self.target: Tensor | None = None

    def start(self, source: Tensor, target: Tensor, compute: Callable[[Tensor], None]) -> None:
        """Finish the part before; load a part, compute it, and copy it back to host memory."""
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
        """Wait for the part, and copy it to its target."""
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
    if target_BND is not x_BND:
        first, second = sorted((cells.data_ptr(), cells.nbytes) for cells in (x_BND, target_BND))
        if first[0] + first[1] > second[0]:
            raise ValueError("out overlaps the input, which is read as it is filled: leave out=, or give other memory")
    k = network.check_in_place(x_BND, target_BND)
    return k, min(k, part_bits(part))


def part_bits(part: int) -> int:
    """The address bits of a part of ``part`` cells; refuses what is no power of two."""
    if part < 2 or part & (part - 1):
        raise ValueError(f"a part must be a power of two of cells, at least 2, got {part}")
    return part.bit_length() - 1
