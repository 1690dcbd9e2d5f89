r"""The schedule as the paper defines it: a layer joins adjacent cells and a physical shuffle follows.

Two equivalent ways are in :mod:`riffle.nn.merge`, for sequences of several lengths at once, and in
:mod:`riffle.nn.execute`, where no cell moves.

One switch layer on adjacent pairs of cells and the shuffle after it, by the reference or by the fused kernels.

The in-place form: cells stay where they are, and every layer overwrites the pairs that differ in its address bit.

A pair is read and written by the same step, so one buffer serves the whole network. Pairs go through the kernels a
chunk at a time: gathered side by side, computed, and put back. Beside the buffer only a chunk's gates and outputs are
held, and from two blocks on what the skip connections bring.

How many bytes a network needs, and the longest sequence that fits into what is free.

Counted in buffers of all cells, :math:`B N D` numbers of the dtype they are computed in, at the moment when most of
them are held; weights are left out, which long sequences dwarf. With k address bits, a network of b blocks has
L = 2 (k - 1) b + 1 layers; with all shuffles in one direction read k for every k - 1. Gates are three buffers, what
the candidates read is two, the candidates are one.

======================  =============================================================================================
without gradients       the input, a layer's input, and as it forms its output: the gates and the output (4 buffers) or,
(fused)                 where the library does the candidates' product, gates, what they read and candidates (6). With
                        skip connections also the inputs of one block's 2 (k - 1) layers, that of the last block and the
                        sum that gates and candidates read: 3 more beside the 2 (k - 1), less the one already let go.
training (fused)        L layers' inputs, with ``recompute=False`` their gates and candidates too (5 L); the output, its
                        gradient, and in the backward pass of one layer: gates, candidates and what they read, unless
                        kept (4 + 2, else 2), and their gradients (4 in all). A skip connection adds 4.
without gradients       the input, a copy that the layers overwrite, and for a chunk of pairs at a time what a unit
(reference)             computes: 6 buffers of the chunk's size, 11 in 16 bits, where nothing is overwritten. With skip
                        connections copies of the inputs of 2 (k - 1) layers.
training (reference)    what autograd keeps of a layer: its input, gates (3), what the candidates read (2), candidates
                        and the swapped pair, together 8 L; 2 (k - 1) (b - 2) more with skip connections, and 8 for the
                        layer in work.
======================  =============================================================================================
"""

# B = batch, N = 2**k cells, D = features per cell
# B = batch, N = cells, C = cells of all groups, one after the other, D = features per cell
# B = batch, N = 2**k cells, D = features per cell, H = pairs' high address bits, L = their low ones, P = pairs
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.cost import MemoryModel, out_of_memory_message
from riffle.environment import free_bytes
from riffle.kernels import resolve
from riffle.kernels.tuning import CHUNK_PAIRS, CHUNK_PAIRS_DEVICE
from riffle.nn.merge import Groups, MergedSwitch, cut, join
from riffle.nn.switch import FUSED_UNITS, PairUnit, SwitchUnit
from riffle.shuffle import SHUFFLES, Layer

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


Units = Mapping[str, PairUnit]


def run_shuffled(x_BND: Tensor, layers: tuple[Layer, ...], units: Units, dropout: float, noise: float) -> Tensor:
    """Run the layers as the paper draws them, with dropout or noise after every switch layer."""
    skips = _skipped(layers)
    kept: dict[int, Tensor] = {}
    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        x_BND = SHUFFLES[layer.shuffle](perturb(units[layer.unit](x_BND, skip_BND), dropout, noise))
    return x_BND


def perturb(y_BND: Tensor, dropout: float, noise: float) -> Tensor:
    """A layer's output with dropout, or else with noise."""
    if dropout:
        return F.dropout(y_BND, dropout)
    return y_BND * (1 + noise * torch.randn_like(y_BND)) if noise else y_BND


def _skipped(layers: tuple[Layer, ...]) -> set[int]:
    return {layer.skip for layer in layers if layer.skip is not None}


class Switch(Protocol):
    """A switch layer of the named unit, dropout or noise, and the shuffle ``turn`` of the cells after it."""

    def __call__(self, x_BND: Tensor, unit: str, shuffle: int, skip_BND: Tensor | None) -> Tensor: ...


def switch_of(network: ShuffleExchange, x_BND: Tensor, k: int) -> Switch:
    """The layers of a network on ``2**k`` cells by the kernels that serve ``x_BND``."""
    return one_group(merged_switch_of(network, x_BND), network.dropout / k if network.training else 0.0)


def merged_switch_of(network: ShuffleExchange, x_BND: Tensor) -> MergedSwitch:
    """The layers of a network for several groups at once, by the kernels that serve ``x_BND``."""
    units: Any = network.units
    noise = network.noise if network.training else 0.0
    if is_fused(network, x_BND):
        return fused_switch(units, compute_dtype(x_BND), noise, network.recompute)
    return reference_switch(units, noise)


def is_fused(network: ShuffleExchange, x_BND: Tensor) -> bool:
    """Whether the layers run on the fused kernels."""
    return network.unit in FUSED_UNITS and resolve(network.backend, x_BND) == "fused"


def compute_dtype(x_BND: Tensor) -> torch.dtype:
    """The dtype in which the fused kernels compute: that of the cells, or autocast's."""
    device = x_BND.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_BND.dtype


def one_group(switch: MergedSwitch, dropout: float) -> Switch:
    """The layer for sequences of one length."""

    def of_one_group(x_BND: Tensor, unit: str, shuffle: int, skip_BND: Tensor | None) -> Tensor:
        skip_CD = None if skip_BND is None else skip_BND.flatten(0, 1)
        groups = Groups([x_BND.shape[0]], [x_BND.shape[1]], [dropout])
        return switch(x_BND.flatten(0, 1), unit, shuffle, skip_CD, groups).reshape(x_BND.shape)

    return of_one_group


def reference_switch(units: Units, noise: float) -> MergedSwitch:
    """The layer as the units define it."""

    def switch(x_CD: Tensor, unit: str, shuffle: int, skip_CD: Tensor | None, groups: Groups) -> Tensor:
        # A unit looks at pairs, so that the longer sequences may come to it cut to the shortest ones' length.
        shape = (-1, groups.cells[-1])
        skip_BND = None if skip_CD is None else skip_CD.unflatten(0, shape)
        y_CD = units[unit](x_CD.unflatten(0, shape), skip_BND).flatten(0, 1)
        parts = zip(cut(y_CD, groups.sizes()), groups.cells, strict=True)
        ys_BND = [part_CD.unflatten(0, (-1, cells)) for part_CD, cells in parts]
        ys_BND = [perturb(y_BND, rate, noise) for y_BND, rate in zip(ys_BND, groups.dropout, strict=True)]
        return join([SHUFFLES[shuffle](y_BND).flatten(0, 1) for y_BND in ys_BND])

    return switch


def fused_switch(units: Units, compute: torch.dtype, noise: float, recompute: bool) -> MergedSwitch:
    """The layer on the fused kernels, in the dtype ``compute``."""
    from riffle.kernels.fused import PreparedUnit, prepare, switch_and_shuffle

    prepared: dict[str, PreparedUnit] = {}

    def switch(x_CD: Tensor, unit: str, shuffle: int, skip_CD: Tensor | None, groups: Groups) -> Tensor:
        if unit not in prepared:
            parameters = units[unit]
            assert isinstance(parameters, SwitchUnit)
            prepared[unit] = prepare(parameters.weights(), parameters.skip_scale, compute)
        y_CD = switch_and_shuffle(
            x_CD.to(compute),
            prepared[unit],
            sequences=groups.sequences,
            cells=groups.cells,
            shuffle=shuffle,
            swap=bool(units[unit].swap),
            skip_CD=None if skip_CD is None else skip_CD.to(compute),
            dropout=groups.dropout,
            recompute=recompute,
        )
        return perturb(y_CD, 0.0, noise)

    return switch


def run_in_place(x_BND: Tensor, layers: tuple[Layer, ...], switch: Switch) -> Tensor:
    """Run the layers on one copy of the input that they overwrite; no gradients."""
    state_BND = x_BND.clone(memory_format=torch.contiguous_format)
    run_overwriting(state_BND, layers, switch)
    return state_BND


def run_overwriting(state_BND: Tensor, layers: tuple[Layer, ...], switch: Switch) -> None:
    """Run the layers in the memory of their input; no gradients."""
    slots = skip_buffers(layers)
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


def skip_buffers(layers: Sequence[Skipping]) -> dict[int | None, int]:
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


def memory_model(network: ShuffleExchange, x_BND: Tensor, training: bool) -> MemoryModel:
    """What decides how many bytes a network needs for inputs such as ``x_BND``."""
    fused = is_fused(network, x_BND)
    return MemoryModel(
        features=network.features,
        blocks=network.blocks,
        skips=network.unit != "no-residual",
        benes=network.unit != "no-benes",
        dtype=compute_dtype(x_BND) if fused else x_BND.dtype,
        fused=fused,
        training=training,
        recompute=network.recompute,
        device=x_BND.device.type,
    )


def out_of_memory_error(network: ShuffleExchange, xs_BND: Sequence[Tensor]) -> torch.OutOfMemoryError:
    """The error to raise where a network ran out of memory on some batches: what it needs, and what would fit."""
    wanted = any(tensor.requires_grad for tensor in (*xs_BND, *network.parameters()))
    training = torch.is_grad_enabled() and wanted
    # The inputs are there already, and at another length they would be others.
    free = free_bytes(xs_BND[0].device) + sum(x_BND.nbytes for x_BND in xs_BND)
    shapes = [(x_BND.shape[0], x_BND.shape[1]) for x_BND in xs_BND]
    return torch.OutOfMemoryError(out_of_memory_message(memory_model(network, xs_BND[0], training), shapes, free))
