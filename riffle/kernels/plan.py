"""The plan of a call: every layer with its launches, where its cells lie, and what is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch

from riffle.kernels.merge import INPUT, OUTPUT, MergedLayer, Piece, Step, adjacent, merge, place
from riffle.shuffle import Layer, Pad, Sharing, bits, padded_length, schedule

if TYPE_CHECKING:
    from riffle.kernels.layer_plan import GradientShare, LayerPlan

KEEP_NOTHING, KEEP_INPUTS, KEEP_GATES, KEEP_WHAT_FITS = range(4)
"""What is kept for the backward pass: nothing; each layer's input; its gates, too; or these where they take little
memory."""
KEPT_SHARE = 32
"""Little memory is at most this part of the device's."""
SMALL_WORK = 2**23
"""Features of all cells of a call up to which starting its kernels takes longer than running them."""
LARGE_BYTES = 2**20
"""From this size of a layer's cells on, memory is worth more than the time to allocate it."""


class NetworkSpec(NamedTuple):
    """What a network is, apart from its parameters: the same for every call of it."""

    blocks: int
    sharing: Sharing
    benes: bool
    """Whether blocks have a reverse half."""
    skips: bool
    """Whether there are skip connections."""
    units: tuple[str, ...]
    """Names of the units."""
    swaps: tuple[bool, ...]
    """Whether each of them exchanges second halves."""
    scaled: tuple[bool, ...]
    """Whether each of them has a vector, such as the scale of a skip connection: one more parameter."""
    kind: str = "gated"
    """Which kernels compute the units: an entry of :data:`riffle.kernels.units.KERNELS`."""
    pad: Pad = "power"
    """To which length sequences are padded, see :func:`riffle.shuffle.padded_length`."""


class LayerStep(NamedTuple):
    """One layer in the forward pass."""

    plan: LayerPlan
    unit: int
    step: Step
    skip: tuple[Piece, ...]
    """The rows that the skip connection adds; empty without one."""
    kept: int
    """The first pair of this layer among those of all layers."""
    last: tuple[int, ...]
    """The regions that no later layer reads."""
    run: int = 1
    """Layers from this one on that are one launch; 0 where an earlier layer's launch does this one."""
    skips: int | None = None
    """Where these layers have skip connections: the second one adds this layer's output, the third the next one's."""


class BackwardStep(NamedTuple):
    """One layer in the backward pass."""

    layer: int
    step: Step
    """Where the gradients lie."""
    share: GradientShare
    """Where the layer's part of its unit's gradients lies."""
    adds: tuple[tuple[int, int, Piece], ...]
    """Of the gradients of the skip connections that began at this layer's input: the layer they lead to, the first row
    there, and the rows here."""
    added: tuple[int, ...]
    """The layers whose skip connections' gradients have all been added after this one."""
    more: int | None
    """The layer whose skip connection began at this layer's input, where the launches add its gradients: the usual
    case, all rows in their places and no skip connection here."""
    defers: bool
    """Whether this layer is such a layer, and leaves the gradient of what it read to others."""
    carries: bool
    """Whether the layer after this one in the backward pass takes that part of its output's gradient as it lies."""
    last: tuple[int, ...]
    """The regions that no later layer reads."""


@dataclass(eq=False)
class NetworkPlan:
    """All that a call needs besides tensors; equal to itself alone, so that it is a key of what belongs to it."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    features: int
    x_dtype: torch.dtype
    dtype: torch.dtype
    keep: int
    kind: str
    scaled: tuple[bool, ...]
    used: tuple[tuple[bool, bool], ...]
    """Whether each unit takes part, and whether its vector does, the scale of a skip connection."""
    padded: bool
    """Whether some batch is shorter than the width at which it runs."""
    direct: bool
    """Whether the only batch is the first layer's input as it lies, and is kept as such for the backward pass."""
    small: bool
    """Whether starting its kernels takes longer than running them."""
    large: bool
    """Whether a layer's cells take so much memory that it is worth time to allocate late and to let go early."""
    eager: bool
    """Whether no operator's schema limits what is kept for the backward pass."""
    separate: bool
    """Whether what is kept for the backward pass is a tensor for each layer, not one for all: large ones leave gaps."""
    layers: tuple[LayerStep, ...]
    regions: tuple[int, ...]
    """Rows of the regions in the forward pass."""
    merged: tuple[MergedLayer, ...]
    sizes: tuple[int, ...]
    """Cells of each group."""
    pairs: int
    """Of all layers together."""
    compiled: bool = False
    """Whether :func:`~riffle.kernels.compilation.compile_ahead` has nothing left to do for it."""

    @cached_property
    def backward(self) -> tuple[tuple[BackwardStep, ...], tuple[int, ...]]:
        """The layers in the order of the backward pass, and the rows of its regions; found when it first runs."""
        return _plan_backward(self.merged, self.sizes, self.layers)

    @property
    def cells(self) -> int:
        """Of all batches at the widths at which they run."""
        return self.regions[INPUT]


@lru_cache(maxsize=256)
def plan_network(
    batches: tuple[int, ...],
    lengths: tuple[int, ...],
    features: int,
    x_dtype: torch.dtype,
    device: torch.device,
    spec: NetworkSpec,
    dtype: torch.dtype,
    dropout: float,
    noise: float,
    keep: int,
    eager: bool = False,
) -> NetworkPlan:
    """Plan the call for batches of these shapes, longer ones first; ``eager`` where no operator's schema limits it."""
    from riffle.kernels.units import KERNELS  # Triton is not everywhere, and :func:`merge` is

    widths = [padded_length(length, spec.pad) for length in lengths]
    assert sorted(widths, reverse=True) == widths, "longer sequences come first"
    groups = sorted(set(widths), reverse=True)
    sequences = [sum(batch for batch, width in zip(batches, widths, strict=True) if width == group) for group in groups]
    sizes = [count * width for count, width in zip(sequences, groups, strict=True)]
    ks = [bits(width) for width in groups]
    merged = merge(tuple(layers_of(spec, k) for k in ks))
    spans = [(layer.first, layer.end) for layer in merged]
    offsets = (0, *accumulate(sizes))
    placed = place(spans, sizes)
    keep = what_to_keep(keep, batches, lengths, features, device, spec, dtype)
    layers, pairs = [], 0
    skips = [_skip_pieces(index, merged, placed.steps, offsets) for index in range(len(merged))]
    last_reader = {
        piece.region: index for index in range(len(merged)) for piece in _read(placed.steps[index], skips[index])
    }
    for index, (layer, step) in enumerate(zip(merged, placed.steps, strict=True)):
        span = slice(layer.first, layer.end)
        unit = spec.units.index(layer.unit)
        plan = KERNELS[spec.kind].plan_layer(
            tuple(sequences[span]),
            tuple(groups[span]),
            tuple(noise or dropout / k for k in ks[span]),
            features,
            dtype,
            device,
            shuffle=layer.shuffle,
            swap=spec.swaps[unit],
            keep=keep == KEEP_GATES,
            skip=bool(skips[index]),
            first=index == 0,
            noise=bool(noise),
        )
        last = tuple(region for region, reader in last_reader.items() if reader == index)
        layers.append(LayerStep(plan, unit, step, tuple(skips[index]), pairs, last))
        pairs += plan.pairs
    if keep == KEEP_NOTHING:
        layers = join_layers(layers, merged, placed.regions)
    small = sum(sizes) * features <= SMALL_WORK
    large = sum(sizes) * features * dtype.itemsize >= LARGE_BYTES
    return NetworkPlan(
        batches,
        lengths,
        tuple(widths),
        features,
        x_dtype,
        dtype,
        keep,
        spec.kind,
        spec.scaled,
        used_units(spec, tuple(ks)),
        padded=tuple(widths) != lengths,
        direct=eager and len(batches) == 1 and x_dtype == dtype and widths[0] == lengths[0],
        small=small,
        large=large,
        eager=eager,
        separate=eager and not small,
        layers=tuple(layers),
        regions=placed.regions,
        merged=merged,
        sizes=tuple(sizes),
        pairs=pairs,
    )


def join_layers(layers: Sequence[LayerStep], merged: Sequence[MergedLayer], regions: Sequence[int]) -> list[LayerStep]:
    """The same layers, those joined that one launch does.

    They have a unit, groups, a shuffle and a plan with such a launch in common, and each reads what the one before
    made. Their skip connections, if any, add what such layers made one after the other.
    """

    def kind(index: int) -> tuple[object, ...]:
        layer = merged[index]
        return layer.unit, layer.first, layer.end, layer.shuffle, bool(layers[index].skip)

    def joins(index: int) -> bool:
        """Whether a launch of several layers can do it: its output is all that a region holds, and not the caller's."""
        plan, target = layers[index].plan, layers[index].step.target
        alone = target.region != OUTPUT and target.rows == regions[target.region]
        return alone and getattr(plan, "layers_forward", None) is not None

    def follows(index: int) -> bool:
        before, step = layers[index - 1].step, layers[index].step
        return kind(index) == kind(index - 1) and not (before.after or step.before) and before.target == step.source

    def added(begin: int, end: int) -> int | None:
        """The layer with which those joined layers begin whose outputs all skip connections but the first one add."""
        made = [layer.step.target for layer in layers]
        pieces = [layers[index].skip for index in range(begin + 1, end)]
        for source, count in runs.items():
            if count >= end - begin and pieces == [(piece,) for piece in made[source : source + len(pieces)]]:
                return source
        return None

    joined, begin, runs = list(layers), 0, dict[int, int]()
    while begin < len(layers):
        end = begin + 1
        while end < len(layers) and joins(begin) and joins(end) and follows(end):
            end += 1
        skips = added(begin, end) if layers[begin].skip else None
        if end - begin > 1 and (skips is not None or not layers[begin].skip):
            runs[begin] = end - begin
            joined[begin] = layers[begin]._replace(run=end - begin, skips=skips)
            joined[begin + 1 : end] = [layer._replace(run=0) for layer in layers[begin + 1 : end]]
        begin = end
    return joined


def what_to_keep(
    keep: int,
    batches: Sequence[int],
    lengths: Sequence[int],
    features: int,
    device: torch.device,
    spec: NetworkSpec,
    dtype: torch.dtype,
) -> int:
    """``keep``, decided for batches of these shapes; of symbolic ones as well."""
    if keep != KEEP_WHAT_FITS:
        return keep
    from riffle.kernels.units import KERNELS

    widths = [padded_length(length, spec.pad) for length in lengths]
    cells = sum(batch * width * len(layers_of(spec, bits(width))) for batch, width in zip(batches, widths, strict=True))
    kept = cells // 2 * KERNELS[spec.kind].first * features * dtype.itemsize
    fits = kept <= memory_bytes(device) // KEPT_SHARE
    return KEEP_GATES if fits else KEEP_INPUTS


@lru_cache(maxsize=64)
def memory_bytes(device: torch.device) -> int:
    """The memory of a GPU; of others, which run these kernels in tests alone, nothing is counted."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


@lru_cache(maxsize=1024)
def used_units(spec: NetworkSpec, ks: tuple[int, ...]) -> tuple[tuple[bool, bool], ...]:
    """For each unit, whether it takes part on these address bits, and whether its vector does."""
    layers = [layer for k in ks for layer in layers_of(spec, k)]
    used, skipping = {layer.unit for layer in layers}, {layer.unit for layer in layers if layer.skip is not None}
    return tuple((unit in used, unit in (skipping if spec.skips else used)) for unit in spec.units)


def layers_of(spec: NetworkSpec, k: int) -> tuple[Layer, ...]:
    """The schedule that a network follows on ``2**k`` cells."""
    return schedule(k, spec.blocks, spec.sharing, benes=spec.benes, skips=spec.skips)


def _skip_pieces(
    index: int, merged: Sequence[MergedLayer], steps: Sequence[Step], offsets: Sequence[int]
) -> list[Piece]:
    """The rows that a layer's skip connection adds, of the inputs of earlier layers."""
    layer = merged[index]
    pieces = []
    for group, source in zip(range(layer.first, layer.end), layer.skip or (), strict=False):
        row = offsets[group] - offsets[merged[source].first]
        pieces.append(steps[source].source.part(row, offsets[group + 1] - offsets[group]))
    return adjacent(pieces)


def _read(step: Step, skip: Sequence[Piece] = ()) -> Iterator[Piece]:
    yield from (copy.source for copy in step.before)
    yield step.source
    yield from skip
    yield from (copy.source for copy in step.after)


def _plan_backward(
    merged: Sequence[MergedLayer], sizes: Sequence[int], layers: Sequence[LayerStep]
) -> tuple[tuple[BackwardStep, ...], tuple[int, ...]]:
    """The same the other way: what a layer reads is the gradient of its output."""
    from riffle.kernels.layer_plan import share_gradients

    offsets = (0, *accumulate(sizes))
    order = range(len(layers) - 1, -1, -1)
    placed = place([(merged[index].first, merged[index].end) for index in order], sizes)
    adds: dict[int, list[tuple[int, int, Piece]]] = {}
    for index, layer in enumerate(merged):
        for group, source in zip(range(layer.first, layer.end), layer.skip or (), strict=False):
            there, size = offsets[group] - offsets[layer.first], sizes[group]
            here = Piece(0, offsets[group] - offsets[merged[source].first], size)
            known = adds.setdefault(source, [])
            if known and known[-1][0] == index and known[-1][2].row + known[-1][2].rows == here.row:
                known[-1] = (index, known[-1][1], known[-1][2]._replace(rows=known[-1][2].rows + size))
            else:
                known.append((index, there, here))
    first_source = {index: min(layer.skip) for index, layer in enumerate(merged) if layer.skip}
    # Skip connections whose gradients the launches of the layer add where they began: source by layer.
    joined = {
        known[0][0]: source
        for source, known in adds.items()
        if len(known) == 1 and not merged[source].skip
        and known[0][1] == 0 and known[0][2].rows == layers[source].plan.pairs * 2 == layers[known[0][0]].plan.pairs * 2
    }  # fmt: skip
    more = {source: index for index, source in joined.items()}
    last_reader = {piece.region: place for place, step in enumerate(placed.steps) for piece in _read(step)}
    units = [
        (layers[i].unit, not layers[i].skip, i in joined, layers[more[i]].unit if i in more else None) for i in order
    ]
    shares = share_gradients([layers[i].plan for i in order], units)
    steps = []
    for place_index, index in enumerate(order):
        last = tuple(region for region, reader in last_reader.items() if reader == place_index)
        added = tuple(layer for layer, source in first_source.items() if source == index)
        step, share = placed.steps[place_index], shares[place_index]
        following = placed.steps[place_index + 1] if index else None
        carries = index in joined and following is not None and not (step.after or following.before)
        carries = carries and following is not None and following.source == step.target
        rest = () if index in more else tuple(adds.get(index, ()))
        steps.append(BackwardStep(index, step, share, rest, added, more.get(index), index in joined, carries, last))
    return tuple(steps), placed.regions
