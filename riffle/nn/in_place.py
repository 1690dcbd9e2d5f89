"""The in-place form: cells stay where they are, and every layer overwrites the pairs that differ in its address bit.

A pair is read and written by the same step, so one buffer serves the whole network. Pairs go through the kernels a
chunk at a time: gathered side by side, computed, and put back. Beside the buffer only a chunk's gates and outputs are
held, and from two blocks on what the skip connections bring.
"""

# B = batch, N = 2**k cells, D = features per cell, H = pairs' high address bits, L = their low ones, P = pairs
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from riffle.nn.layer import Switch
from riffle.shuffle import Layer

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

CHUNK_PAIRS = {"cpu": 4096}
"""Pairs that go through a unit at once, so that a CPU's cache holds what they need."""
CHUNK_PAIRS_DEVICE = 2**18
"""The same on any other device: enough to fill it, little beside the sequences that need it."""


def in_place(x_BND: Tensor, layers: tuple[Layer, ...], switch: Switch) -> Tensor:
    """Run the layers on one copy of the input that they overwrite; no gradients."""
    state_BND = x_BND.clone(memory_format=torch.contiguous_format)
    overwrite_layers(state_BND, layers, switch)
    return state_BND


def overwrite_layers(state_BND: Tensor, layers: tuple[Layer, ...], switch: Switch) -> None:
    """Run the layers in the memory of their input; no gradients."""
    slots = slots_of(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        skip_BND = None
        if layer.skip is not None:
            skip_BND = kept[slots[layer.skip]]
        elif index in slots:
            kept[slots[index]] = torch.empty_like(state_BND)
        keep_BND = kept[slots[index]] if index in slots else None
        overwrite_layer(state_BND, layer.bit, layer.unit, switch, skip_BND, keep_BND)


def overwrite_layer(
    state_BND: Tensor,
    bit: int,
    unit: str,
    switch: Switch,
    skip_BND: Tensor | None = None,
    keep_BND: Tensor | None = None,
) -> None:
    """One switch layer on the pairs that differ in address bit ``bit``.

    Args:
        state_BND: The cells, contiguous, to be overwritten.
        bit: The address bit.
        unit: Which switch unit.
        switch: The layer on adjacent pairs.
        skip_BND: The cells the skip connection brings.
        keep_BND: Takes the cells as they were; may be ``skip_BND``, which has been read by then.
    """
    state_chunks, skip_chunks, keep_chunks = (
        repeat(None) if x_BND is None else chunks(x_BND, bit) for x_BND in (state_BND, skip_BND, keep_BND)
    )
    for state_HL2D, skip_HL2D, keep_HL2D in zip(state_chunks, skip_chunks, keep_chunks, strict=False):
        assert state_HL2D is not None
        _overwrite_chunk(state_HL2D, unit, switch, skip_HL2D, keep_HL2D)


def _overwrite_chunk(
    state_HL2D: Tensor, unit: str, switch: Switch, skip_HL2D: Tensor | None, keep_HL2D: Tensor | None
) -> None:
    # To the kernels these are many sequences of two cells.
    skip_P2D = None if skip_HL2D is None else skip_HL2D.flatten(0, 1)
    out_P2D = switch(state_HL2D.flatten(0, 1), unit, 0, skip_P2D)
    if keep_HL2D is not None:
        keep_HL2D.copy_(state_HL2D)
    state_HL2D.copy_(out_P2D.view(state_HL2D.shape))


class Skipping(Protocol):
    """A layer of a schedule, whole or of one rank."""

    @property
    def skip(self) -> int | None:
        """The layer whose input is added to this layer's input."""


def slots_of(layers: Sequence[Skipping]) -> dict[int | None, int]:
    """In which buffer each layer's input is kept, for the layers whose input a later one needs.

    An input is needed once, and the layer that needs it keeps its own in the same buffer: two blocks take as many
    buffers as ten, one for each layer of a block.

    >>> from riffle.shuffle import schedule
    >>> slots_of(schedule(2, blocks=3))
    {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    """
    needed = {layer.skip for layer in layers}
    slots: dict[int | None, int] = {}
    for index, layer in enumerate(layers):
        if index in needed:
            slots[index] = slots.get(layer.skip, len(slots))
    return slots


def chunks(x_BND: Tensor, bit: int) -> Iterator[Tensor]:
    """Views ``[H, L, 2, D]`` of the pairs that differ in address bit ``bit``, a cacheful at a time."""
    size = CHUNK_PAIRS.get(x_BND.device.type, CHUNK_PAIRS_DEVICE)
    low = 1 << bit
    pairs_HL2D = x_BND.view(-1, 2, low, x_BND.shape[-1]).transpose(1, 2)
    for high_part in pairs_HL2D.split(max(1, size // low)):
        yield from high_part.split(min(size, low), dim=1)


def exchange_halves(x_BND: Tensor) -> None:
    """Relabel the features of contiguous cells for ``order="official"`` where they are, a chunk at a time."""
    half, size = x_BND.shape[2] // 2, 2 * CHUNK_PAIRS.get(x_BND.device.type, CHUNK_PAIRS_DEVICE)
    for part_CD in x_BND.view(-1, x_BND.shape[2]).split(size):
        part_CD.copy_(part_CD.roll(half, -1))


def check_in_place(network: ShuffleExchange, x_BND: Tensor) -> int:
    """The address bits of an input that can be overwritten; refuses one that cannot."""
    cells = x_BND.shape[1]
    if cells < 2 or cells & (cells - 1):
        raise ValueError(
            f"a sequence of {cells} cells cannot be overwritten, since the network runs at powers of two: "
            "pad it with zero cells to one"
        )
    if not x_BND.is_contiguous():
        raise ValueError("the input is overwritten where it lies and must be contiguous: give x.contiguous()")
    if network.shards is not None:
        raise ValueError("this network is spread over a sequence_group: build it without one to overwrite its input")
    return cells.bit_length() - 1
