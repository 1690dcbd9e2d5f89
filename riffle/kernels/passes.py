"""The forward and the backward pass of a whole network, as planned: the launches of all layers in one loop.

Parameters are cast once for both. For the backward pass the layers' inputs are kept in one tensor, with
``recompute=False`` their gates and candidates in two more.
"""

# B = batch, N = length, W >= N the cells on which it runs, D = features per cell, E = 2 * D, P = pairs,
# C = cells of all groups, T = rows of all regions
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels import tuning
from riffle.kernels.launches import Kept, Workspace, aligned, forward_layers
from riffle.kernels.layer_backward import SkipGradient
from riffle.kernels.merge import INPUT, OUTPUT, Copy, Piece, adjacent
from riffle.kernels.plan import KEEP_GATES, NetworkPlan
from riffle.kernels.units import KERNELS

ROW_MULTIPLE = 8
"""Regions begin at multiples of this many rows, so at multiples of 16 bytes however narrow a row is."""
SEED_STEP = 0x9E3779B9
"""Between the seeds of two layers; far from the small numbers by which a kernel changes its seed."""


class Saved(NamedTuple):
    """What the forward pass leaves for the backward pass: one tensor for all layers, or one for each."""

    inputs: tuple[Tensor, ...]
    """``[T, D]``: the layers' inputs, region by region."""
    gates: tuple[Tensor, ...]
    """``[P, 3E]``, or as wide as the unit's first product."""
    sums: tuple[Tensor, ...]
    """``[2 * P, D]``; in 16 bits none, since there the layers' outputs serve."""


def forward(
    plan: NetworkPlan, xs_BND: Sequence[Tensor], weights: Sequence[Any], seed: Tensor | None
) -> tuple[Tensor, Saved]:
    """The cells after all layers, of all batches one after the other, and what the backward pass needs.

    ``weights`` are the units of :func:`network_weights`.
    """
    x_BND, kernels = xs_BND[0], KERNELS[plan.kind]
    with _on_device_of(x_BND):
        regions, pairs = (_kept_regions(plan) if plan.keep else []), [layer.plan.pairs for layer in plan.layers]
        pairs = pairs if plan.keep == KEEP_GATES else []
        saved = Saved(
            _allocate(plan, x_BND, [rounded(rows) for rows in regions], plan.features),
            _allocate(plan, x_BND, pairs, kernels.first * plan.features),
            _allocate(plan, x_BND, _sum_rows(plan) if pairs else [], plan.features),
        )
        regions_of_cells = _saved_regions(plan, saved) if plan.keep else ()
        cells = Cells(saved.inputs[0], plan.regions, regions_of_cells, few_copies=plan.small)
        # In small calls, a batch that later layers take is stored at once where they read it.
        copies = [copy for layer in plan.layers for copy in layer.step.before] if plan.small else []
        workspace = Workspace(cells.enter(plan, xs_BND, [copy for copy in copies if copy.source.region == INPUT]))
        seeds, kept = _seeds(plan, seed), _kept(plan, saved)
        counters = _counters(plan, x_BND)
        for index, layer in enumerate(plan.layers):
            step = layer.step
            if layer.run != 1:
                if layer.run:
                    _forward_run(plan, index, cells, weights[layer.unit], workspace, next(counters))
                continue
            cells.copy(step.before)
            # Where the result is all that its region holds, the layer can allocate it when it is needed.
            target = step.target.region
            late = plan.large and cells.regions[target] is None and step.target.rows == plan.regions[target]
            out_CD = kernels.forward_layer(
                layer.plan, cells.rows(step.source), cells.join(layer.skip), weights[layer.unit], seeds[index],
                workspace, kept=kept[index], out_CD=None if late else cells.room(step.target),
            )  # fmt: skip
            if late:
                cells.regions[target] = out_CD
            cells.copy(step.after)
            if not plan.keep:
                del out_CD
                cells.release(layer.last, reuse=not plan.large)
        return cells.leave(plan), saved


def _forward_run(
    plan: NetworkPlan, first: int, cells: Cells, weights: Any, workspace: Workspace, counters: Tensor
) -> None:
    """Consecutive layers in one launch."""
    layer = plan.layers[first]
    run = plan.layers[first : first + layer.run]
    cells.copy(layer.step.before)
    x_CD = cells.rows(layer.step.source)
    out_LCD = x_CD.new_empty(layer.run, *x_CD.shape)
    skips_LCD = None
    if layer.skips is not None:
        # What such layers made lies one after the other.
        made_CD = cells.rows(plan.layers[layer.skips].step.target)
        skips_LCD = made_CD.as_strided(out_LCD.shape, out_LCD.stride())
    forward_layers(
        layer.plan, x_CD, cells.join(layer.skip), skips_LCD, weights, workspace, counters=counters, out_LCD=out_LCD
    )
    for each, out_CD in zip(run, out_LCD.unbind(), strict=True):
        cells.regions[each.step.target.region] = out_CD
    cells.copy(run[-1].step.after)
    for each in run:
        cells.release(each.last)


def _counters(plan: NetworkPlan, x: Tensor) -> Iterator[Tensor]:
    """For each launch of several layers, what it counts in: all zeros of a call together."""
    pairs = [layer.plan.pairs for layer in plan.layers if layer.run > 1]
    if not pairs:
        return iter(())
    from riffle.kernels.hopper_resident import counters

    return iter(x.new_zeros(len(pairs), counters(max(pairs)), dtype=torch.int32).unbind())


def backward(
    plan: NetworkPlan,
    grad_CD: Tensor,
    xs_BND: Sequence[Tensor],
    weights: Sequence[Any],
    seed: Tensor | None,
    saved: Saved,
    *,
    overwrite: bool = False,
) -> tuple[Tensor, Tensor]:
    """The gradients of the cells, all batches one after the other, and of the parameters as one float32 tensor.

    Args:
        plan: Of the call.
        grad_CD: The gradient of what :func:`forward` returned.
        xs_BND: The batches; only where they are the first layer's input as they lie.
        weights: As before.
        seed: As before.
        saved: What the forward pass left.
        overwrite: Whether ``saved`` is not needed again, so that gradients of skip connections may overwrite it.
    """
    kernels, (steps, regions) = KERNELS[plan.kind], plan.backward
    with _on_device_of(grad_CD):
        inputs = Cells(saved.inputs[0], plan.regions, _saved_regions(plan, saved))
        if plan.direct:
            inputs.enter(plan, xs_BND)
        grads = Cells(saved.inputs[0], regions, few_copies=plan.small)
        workspace = Workspace(grads.enter_whole(plan, grad_CD), _side_streams(plan, grad_CD))
        seeds, kept = _seeds(plan, seed), _kept(plan, saved)
        sizes = gradient_sizes(plan.features, plan.kind, plan.scaled)
        fills = kernels.fills and all(used for used, _ in plan.used)
        allocate = grad_CD.new_empty if fills else grad_CD.new_zeros
        grad_parameters = allocate(sum(sizes), dtype=torch.float32)
        gradients = _network_gradients(plan, grad_parameters)
        grad_skips: dict[int, Tensor] = {}
        carried_CD: Tensor | None = None
        for index, step, share, adds, added, more, defers, carries, last in steps:
            layer = plan.layers[index]
            grads.copy(step.before)
            x_CD, grad_x_CD = inputs.rows(layer.step.source), grads.room(step.target)
            # The output is the next layer's input; that of the last layer is the caller's.
            out_CD = None if layer.step.target.region == OUTPUT else inputs.rows(layer.step.target)
            if layer.skip:
                grad_skips[index] = out_CD if overwrite and out_CD is not None else torch.empty_like(x_CD)
            skip_gradient = None
            if more is not None:
                later = plan.layers[more].unit
                scale, grad_scale = weights[later].skip_scale, gradients[later].skip_scale
                assert scale is not None
                assert grad_scale is not None
                skip_gradient = SkipGradient(grad_skips[more], scale, grad_scale)
            kernels.backward_layer(
                layer.plan, grads.rows(step.source), x_CD, None if kernels.keeps_sums(plan.dtype) else out_CD,
                inputs.join(layer.skip), weights[layer.unit], seeds[index], workspace, kept=kept[index], share=share,
                gradients=gradients[layer.unit], grad_CD=grad_x_CD, grad_more_CD=carried_CD,
                grad_skip_CD=None if defers else grad_skips.get(index),
                grad_read_CD=grad_skips[index] if defers else None,
                skip_gradient=skip_gradient,
            )  # fmt: skip
            carried_CD = grad_skips[index] if carries else None
            if defers and not carries:
                grad_x_CD += grad_skips[index]
            for source, row, piece in adds:
                grad_x_CD[piece.row : piece.row + piece.rows] += grad_skips[source][row : row + piece.rows]
            grads.copy_out(step.after)
            del grad_x_CD, x_CD, out_CD
            grads.release(last, reuse=True)
            for source in added:
                del grad_skips[source]
        grads.copy(grads.waiting)
        workspace.join()
        return grads.leave(plan), grad_parameters


class Cells:
    """The cells of all groups, or their gradients, in the regions that a plan assigns to them."""

    def __init__(
        self,
        like: Tensor,
        sizes: Sequence[int],
        regions: Sequence[Tensor | None] = (),
        *,
        few_copies: bool = False,
    ) -> None:
        self.like, self.sizes, self.few_copies = like, sizes, few_copies
        self.waiting: list[Copy] = []
        """Copies to be made at the end."""
        self.entered: Sequence[Copy] = ()
        """Copies that were made when the batches entered."""
        self.spare: Tensor | None = None
        self.regions: list[Tensor | None] = list(regions) or [None] * len(sizes)

    def rows(self, piece: Piece) -> Tensor:
        """Rows of a region."""
        region = self.regions[piece.region]
        assert region is not None
        return region if piece.rows == region.shape[0] else region.narrow(0, piece.row, piece.rows)

    def join(self, pieces: Sequence[Piece]) -> Tensor | None:
        """Rows of several regions, copied only where they are several; None for none."""
        if not pieces:
            return None
        return self.rows(pieces[0]) if len(pieces) == 1 else torch.cat([self.rows(piece) for piece in pieces])

    def room(self, piece: Piece) -> Tensor:
        """Rows to be written, in a region that is allocated where it is not there yet."""
        if self.regions[piece.region] is None:
            region, self.spare = self.spare, None
            if region is None or region.shape[0] != self.sizes[piece.region]:
                region = self.like.new_empty(self.sizes[piece.region], self.like.shape[1])
            self.regions[piece.region] = region
        return self.rows(piece)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy rows between regions: those that lie side by side there in one launch, where copies are to be few."""
        copies = [copy for copy in copies if copy not in self.entered]
        if not self.few_copies or len(copies) < 2:
            for source, target in copies:
                self.room(target).copy_(self.rows(source))
            return
        ordered = sorted(copies, key=lambda copy: copy.target)
        for target in adjacent([copy.target for copy in ordered]):
            end = target.row + target.rows
            there = [(source, at) for source, at in ordered if at.region == target.region]
            parts = [self.rows(source) for source, at in there if target.row <= at.row < end]
            room = self.room(target)
            if parts:  # of groups without sequences there are none
                torch.cat(parts, out=room)

    def copy_out(self, copies: Sequence[Copy]) -> None:
        """Copy rows of which no layer reads the copy: at the end, where copies are to be few."""
        if self.few_copies:
            self.waiting += copies
        else:
            self.copy(copies)

    def release(self, regions: Sequence[int], *, reuse: bool = False) -> None:
        """Free regions that are not read again; ``reuse`` keeps one for the next, unless it is the caller's."""
        held = {copy.source.region for copy in self.waiting}
        for region in regions:
            if region in held:
                continue
            self.spare = self.regions[region] if reuse and region != INPUT else None
            self.regions[region] = None

    def enter_whole(self, plan: NetworkPlan, x_CD: Tensor) -> Tensor:
        """:meth:`enter` for batches that lie one after the other already; those that are padded are copied."""
        if plan.padded or not self.few_copies:
            return self.enter(plan, split_batches(x_CD, list(zip(plan.batches, plan.lengths, strict=True))))
        self.regions[INPUT] = entered = aligned(x_CD.to(plan.dtype))
        return entered

    def enter(self, plan: NetworkPlan, xs_BND: Sequence[Tensor], waiting: Sequence[Copy] = ()) -> Tensor:
        """Put the batches one after the other, padded with zero cells, where the first layers find them.

        Those of which ``waiting`` has copies go to where these would be.
        """
        if len(xs_BND) == 1 and xs_BND[0].dtype == plan.dtype and not plan.padded and self.regions[INPUT] is None:
            entered = aligned(xs_BND[0]).view(-1, plan.features)
        else:
            entered = self.room(Piece(INPUT, 0, self.sizes[INPUT]))
            rows = [batch * width for batch, width in zip(plan.batches, plan.widths, strict=True)]
            parts_CD, self.entered = list(entered.split(rows)), waiting
            for source, target in waiting:
                room, row = self.room(target), 0
                for index, size in enumerate(rows):
                    if source.row <= row < source.row + source.rows:
                        parts_CD[index] = room.narrow(0, row - source.row, size)
                    row += size
            for part_CD, x_BND, width in zip(parts_CD, xs_BND, plan.widths, strict=True):
                batch, length, features = x_BND.shape
                part_BWD = part_CD.view(batch, width, features)
                part_BWD[:, :length] = x_BND
                if length < width:
                    part_BWD[:, length:] = 0
        self.regions[INPUT] = entered
        return entered

    def leave(self, plan: NetworkPlan) -> Tensor:
        """The cells of all batches without those that were padded, in the dtype in which they came."""
        y_CD = self.regions[OUTPUT]
        assert y_CD is not None
        y_CD = y_CD.to(plan.x_dtype)
        if not plan.padded:
            return y_CD
        parts = split_batches(y_CD, list(zip(plan.batches, plan.widths, strict=True)))
        cropped = [part_BWD[:, :length].flatten(0, 1) for part_BWD, length in zip(parts, plan.lengths, strict=True)]
        return torch.cat(cropped)


def split_batches(x_CD: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Each batch of the given shape, where the cells of all lie one after the other."""
    parts = x_CD.split([batch * length for batch, length in shapes]) if len(shapes) > 1 else [x_CD]
    return [part_CD.view(*shape, x_CD.shape[1]) for part_CD, shape in zip(parts, shapes, strict=True)]


def _kept_regions(plan: NetworkPlan) -> list[int]:
    """The rows of the regions in which layers find their inputs, that of the first one at the end."""
    return [*plan.regions[OUTPUT + 1 :], *(() if plan.direct else (plan.regions[INPUT],))]


def saved_rows(plan: NetworkPlan) -> int:
    """Rows of the tensor that holds all of them."""
    return sum(rounded(rows) for rows in _kept_regions(plan))


def _allocate(plan: NetworkPlan, x: Tensor, rows: Sequence[int], width: int) -> tuple[Tensor, ...]:
    sizes = rows if plan.separate and rows else [sum(rows)]
    return tuple(x.new_empty(size, width, dtype=plan.dtype) for size in sizes)


def _each(tensors: tuple[Tensor, ...], rows: Sequence[int]) -> list[Tensor]:
    """What :func:`_allocate` made, as a tensor for each."""
    return list(tensors if len(tensors) == len(rows) else tensors[0].split(rows))


def rounded(rows: int) -> int:
    """``rows`` rounded up, so that the next region begins at a multiple of 16 bytes."""
    return (rows + ROW_MULTIPLE - 1) // ROW_MULTIPLE * ROW_MULTIPLE


def _saved_regions(plan: NetworkPlan, saved: Saved) -> list[Tensor | None]:
    """The regions of the forward pass that were kept; not that of the output."""
    sizes = _kept_regions(plan)
    parts = _each(saved.inputs, [rounded(rows) for rows in sizes]) if sizes else []
    for index, rows in enumerate(sizes):
        if rows % ROW_MULTIPLE:
            parts[index] = parts[index][:rows]
    entered = None if plan.direct else parts.pop()
    return [entered, None, *parts]


def _kept(plan: NetworkPlan, saved: Saved) -> list[Kept | None]:
    """The gates and candidates of each layer, where they are kept."""
    if plan.keep != KEEP_GATES:
        return [None] * len(plan.layers)
    gates, rows = _each(saved.gates, [layer.plan.pairs for layer in plan.layers]), _sum_rows(plan)
    if not rows:
        return [Kept(gate, None) for gate in gates]
    sums = [total.view(-1, 2, plan.features) for total in _each(saved.sums, rows)]
    return [Kept(*tensors) for tensors in zip(gates, sums, strict=True)]


def _sum_rows(plan: NetworkPlan) -> list[int]:
    """Rows of the candidates of each layer, where they are kept with the gates."""
    keeps_sums = KERNELS[plan.kind].keeps_sums(plan.dtype)
    return [2 * layer.plan.pairs for layer in plan.layers] if keeps_sums else []


class Weights(NamedTuple):
    """Every unit's parameters as its launches take them."""

    units: list[Any]
    cast: Tensor | None
    """The memory of those that had to be cast, one after the other; None where they lie as they are."""


def network_weights(plan: NetworkPlan, parameters: Sequence[Tensor], cast: Tensor | None = None) -> Weights:
    """Every unit's parameters in the dtype of the cells, cast together where they are not, or ``cast`` before."""
    kernels = KERNELS[plan.kind]
    groups: list[Sequence[Tensor]] = []  # those of a group lie one below the other
    scales: list[Tensor | None] = []
    position = 0
    for scaled in plan.scaled:
        vector = position + (6 if kernels.joined else 4)
        unit = parameters[position:vector]
        groups += [unit[index::4] for index in range(4)]
        scales.append(aligned(parameters[vector].float()) if scaled else None)
        position = vector + 1 if scaled else vector
    weights = [group[0] for group in groups]
    other = kernels.joined or any(weight.dtype != plan.dtype or aligned(weight) is not weight for weight in weights)
    copy = cast is None and other
    if copy or cast is not None:
        sizes = weight_sizes(plan.features, plan.kind) * len(scales)
        cast = weights[0].new_empty(sum(map(rounded, sizes)), dtype=plan.dtype) if cast is None else cast
        parts = [
            (part if part.numel() == size else part[:size]).view(-1, *weight.shape[1:])
            for part, size, weight in zip(cast.split_with_sizes([*map(rounded, sizes)]), sizes, weights, strict=True)
        ]
        if copy:
            targets = parts
            if kernels.joined:
                rows = [[len(parameter) for parameter in group] for group in groups]
                targets = [piece for part, each in zip(parts, rows, strict=True) for piece in part.split(each)]
            with torch.no_grad():
                sources = [parameter for group in groups for parameter in group]
                torch._foreach_copy_(targets, sources)
        weights = parts
    make = kernels.weights
    return Weights([make(*weights[4 * index : 4 * index + 4], scale) for index, scale in enumerate(scales)], cast)


def weight_sizes(features: int, kind: str) -> tuple[int, int, int, int]:
    """Of a unit's matrices and biases as its launches take them, in the order of its parameters."""
    kernels = KERNELS[kind]
    return 2 * kernels.first * features**2, kernels.first * features, kernels.second * features**2, 2 * features


def gradient_sizes(features: int, kind: str, scaled: Sequence[bool]) -> list[int]:
    """Of the gradients of each unit's matrices, of its biases together, and of its vector."""
    first, first_bias, second, second_bias = weight_sizes(features, kind)
    sizes = (first, second, first_bias + second_bias)
    return [size for has_vector in scaled for size in (*sizes, 2 * features * int(has_vector))]


def _network_gradients(plan: NetworkPlan, flat: Tensor) -> list[Any]:
    """Every unit's gradients as views of one tensor."""
    parts, make = flat.split(gradient_sizes(plan.features, plan.kind, plan.scaled)), KERNELS[plan.kind].gradients
    units = []
    for unit, scaled in enumerate(plan.scaled):
        *products, vector = parts[4 * unit : 4 * unit + 4]
        units.append(make(*products, vector if scaled else None))
    return units


def _side_streams(plan: NetworkPlan, x: Tensor) -> list[torch.cuda.Stream]:
    """In a graph of small work, products beside the other launches fill the gaps between them."""
    if plan.small and x.is_cuda and torch.cuda.is_current_stream_capturing():
        return [torch.cuda.Stream(x.device) for _ in range(tuning.SIDE_STREAMS)]
    return []


def _seeds(plan: NetworkPlan, seed: Tensor | None) -> Sequence[Tensor | None]:
    """A seed for each layer."""
    if seed is None:
        return [None] * len(plan.layers)
    steps_L2 = torch.arange(2 * len(plan.layers), device=seed.device).mul_(SEED_STEP).add_(seed).view(-1, 2)
    return steps_L2.unbind()


@contextmanager
def _on_device_of(x: Tensor) -> Iterator[None]:
    """Launches go to the device of ``x``, and no product is cast."""
    with torch._C._DisableAutocast(), torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        yield
