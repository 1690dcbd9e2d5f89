"""The launches of one switch layer, forward and backward: plain functions on tensors that fill tensors they are given.

The products over all pairs are the library's, what lies between them are the passes of ``gated_switch.py``, and
``docs/kernels.md`` derives the backward pass. What depends on a layer's shape alone is planned once
(:func:`plan_layer`); buffers that only one layer at a time needs are shared by all layers of a call
(:class:`~riffle.kernels.launch.Workspace`). There is no dispatcher and no autograd here:
:mod:`riffle.kernels.operator` and :mod:`riffle.kernels.fused` make operators of it.

Every tensor is contiguous and begins at a multiple of 16 bytes, so that a kernel compiled once serves every call.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs
# state: the pairs, read: the pairs plus the skip connection, gates [P, 3E] before the sigmoid and without their bias,
# product_P2E: r^i * read, sums [P, 2, D]: the candidates before tanh and without their bias
from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels.launch import Launch, Workspace
from riffle.kernels.tuning import GRADIENT_PAIRS, PASS_ROWS, Blocks, pass_blocks, switch_blocks

ALIGNMENT = 16
"""Bytes at whose multiples every tensor begins."""


class UnitWeights(NamedTuple):
    """A unit's parameters in the dtype of the cells, with the transposes that the products read."""

    gates: Tensor
    """``[3E, E]``."""
    gates_t: Tensor
    candidates: Tensor
    """``[2, D, E]``."""
    candidates_t: Tensor
    gates_bias: Tensor
    """``[3E]``."""
    candidates_bias: Tensor
    """``[2, D]``."""
    skip_scale: Tensor | None
    """``[D]``, in float32."""


class UnitGradients(NamedTuple):
    """Where the gradients of a unit's parameters add up, layer by layer, in float32."""

    gates: Tensor
    """``[3E, E]``."""
    candidates: Tensor
    """``[2, D, E]``."""
    biases: Tensor
    """``[4E]``: of the gates, then of the candidates."""
    skip_scale: Tensor | None
    """``[D]``."""


class Kept(NamedTuple):
    """What the forward pass leaves for the backward pass, where that does not compute it again."""

    gates: Tensor
    """``[P, 3E]``."""
    sums: Tensor
    """``[P, 2, D]``, where the plan keeps them."""


def keeps_sums(dtype: torch.dtype) -> bool:
    """Whether a layer's candidates are kept or formed again: from its output they come too inexactly in float32."""
    return dtype == torch.float32


class LayerPlan(NamedTuple):
    """All that a layer's launches need besides tensors."""

    pairs: int
    features: int
    keep: bool
    """Whether the forward pass fills a :class:`Kept`."""
    keep_sums: bool
    """Whether that has the candidates too; in 16 bits the layer's output serves."""
    skip_forward: Launch
    reset_forward: Launch
    update_forward: Launch
    switch_forward: Launch | None
    """Reset, candidates and update in one; None where the library's product serves better."""
    update_backward: dict[bool, Launch]
    """By whether the candidates come from the layer's output."""
    reset_backward: dict[tuple[bool, bool, bool, bool], Launch]
    """By whether the gradient of what was read joins that of the copied state, whether there is more to add, whether
    r * read is to be stored, and whether what was read is to be copied."""
    skip_backward: Launch


@lru_cache(maxsize=4096)
def plan_layer(
    sequences: tuple[int, ...],
    cells: tuple[int, ...],
    dropout: tuple[float, ...],
    features: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    shuffle: int,
    swap: bool,
    keep: bool,
) -> LayerPlan:
    """Plan the layer of a shape.

    Args:
        sequences: How many sequences each group has.
        cells: How many cells each of a group's sequences has: powers of two, falling from group to group.
        dropout: For each group, the share of output features set to zero.
        features: Features per cell.
        dtype: That of the cells.
        device: Theirs; a compiled kernel belongs to one.
        shuffle: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        keep: Whether gates and candidates are kept for the backward pass.
    """
    assert sorted(cells, reverse=True) == list(cells), "longer sequences come first"
    counts = [count * length // 2 for count, length in zip(sequences, cells, strict=True)]
    pairs, groups = sum(counts), ((0, *accumulate(counts))[:-1], cells, dropout)
    fast: dict[str, Any] = {
        "FAST": dtype != torch.float32
    }  # tanh right to 11 bits, which is more than 16-bit numbers hold
    flags: dict[str, Any] = {"SHUFFLE": shuffle, "SWAP": swap, "DROPOUT": any(dropout), **fast}
    blocks = switch_blocks(2 * pairs, features, dtype)
    update = (pairs, features, groups)
    return LayerPlan(
        pairs,
        features,
        keep,
        keep_sums=keep and keeps_sums(dtype),
        skip_forward=_pass("skip_forward", 2 * pairs, features),
        reset_forward=_pass("reset_forward", pairs, 2 * features, **fast),
        update_forward=_pass("update_forward", *update, **flags),
        switch_forward=None if blocks is None else _switch(blocks, *update, **flags),
        update_backward={out: _pass("update_backward", *update, OUT=out, **flags) for out in (False, True)},
        reset_backward={
            (add, more, product, copy): _pass(
                "reset_backward", pairs, 2 * features, ADD=add, MORE=more, PRODUCT=product, COPY=copy, **fast
            )
            for add, more, product, copy in product((False, True), repeat=4)
        },
        skip_backward=_pass("skip_backward", 2 * pairs, features),
    )


def _pass(kernel: str, rows: int, width: int, groups: tuple[Any, ...] = (), **flags: Any) -> Launch:
    """A kernel that makes one pass over memory, on tiles of ``rows`` by ``width``; with groups for both cells."""
    blocks = pass_blocks(width)
    return Launch(
        kernel,
        (_ceil_div(rows, blocks.rows) * _ceil_div(width, blocks.columns), 2 if groups else 1),
        rows,
        *groups,
        WIDTH=width,
        EVEN=rows % blocks.rows == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def _switch(blocks: Blocks, pairs: int, features: int, groups: tuple[Any, ...], **flags: Any) -> Launch:
    return Launch(
        "switch_forward",
        (2 * _ceil_div(pairs, blocks.rows),),
        pairs,
        *groups,
        D=features,
        EVEN=pairs % blocks.rows == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def forward_layer(
    plan: LayerPlan,
    x_CD: Tensor,
    skip_CD: Tensor | None,
    weights: UnitWeights,
    seed: Tensor | None,
    workspace: Workspace,
    *,
    kept: Kept | None,
    out_CD: Tensor | None,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout, and the shuffle after it; fills ``kept`` as well.

    Args:
        plan: Of the layer's shape.
        x_CD: The cells of all groups, one after the other.
        skip_CD: The cells the skip connection adds, unscaled; None for none.
        weights: The unit's parameters.
        seed: Of the dropout; None for none.
        workspace: Of this call.
        kept: Takes what the backward pass will need, where the plan keeps it.
        out_CD: Takes the result; None allocates it, as late as can be.
    """
    pairs, features = plan.pairs, plan.features
    state_PE = x_CD.view(pairs, 2 * features)
    read_PE = _add_skip(plan, state_PE, skip_CD, weights, workspace)
    gates = workspace("gates", pairs, 6 * features) if kept is None else kept.gates
    torch.mm(read_PE, weights.gates_t, out=gates)
    if plan.switch_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        plan.switch_forward(
            gates, weights.gates_bias, read_PE, state_PE, weights.candidates, weights.candidates_bias, out_CD, seed
        )  # fmt: skip
        return out_CD
    sums = workspace("sums", pairs, 2, features) if kept is None or not plan.keep_sums else kept.sums
    product_P2E = workspace("product", pairs, 2, 2 * features)
    _candidates(plan, gates, read_PE, weights, product_P2E, sums)
    if out_CD is None:
        del product_P2E
        workspace.release("product")
        out_CD = torch.empty_like(x_CD)
    plan.update_forward(gates, weights.gates_bias, sums, state_PE, weights.candidates_bias, out_CD, seed)
    return out_CD


class GradientShare(NamedTuple):
    """Where a layer leaves what the gradients of its unit's weights are products of.

    Layers of one unit leave it one after the other, so that one product over the pairs of all of them follows.
    """

    first: int
    """The first of the layer's pairs among those of these layers."""
    pairs: int
    """Of all these layers."""
    first_tile: int
    """The same for the tiles that have a share in the gradients of the biases,"""
    tiles: int
    first_scale_tile: int
    """and in that of the skip connection's scale."""
    scale_tiles: int
    last: bool
    """Whether this layer is the last to leave something."""


def share_gradients(plans: Sequence[LayerPlan], units: Sequence[Hashable]) -> list[GradientShare]:
    """For layers in the order of the backward pass, and what tells their units apart: which of them share products."""
    batches: list[list[LayerPlan]] = []
    for _, group in groupby(range(len(plans)), key=lambda layer: units[layer]):
        batch: list[LayerPlan] = []
        for plan in (plans[layer] for layer in group):
            # Rows of other widths would begin where no kernel expects them.
            if batch and (sum(p.pairs for p in batch) + plan.pairs > GRADIENT_PAIRS or plan.features % 8):
                batches.append(batch)
                batch = []
            batch.append(plan)
        batches.append(batch)
    return [share for batch in batches for share in _shares(batch)]


def _shares(plans: Sequence[LayerPlan]) -> Iterator[GradientShare]:
    pairs = [plan.pairs for plan in plans]
    tiles, scale_tiles = ([_ceil_div(times * count, PASS_ROWS) for count in pairs] for times in (1, 2))
    for layer in range(len(plans)):
        yield GradientShare(
            sum(pairs[:layer]), sum(pairs), sum(tiles[:layer]), sum(tiles), sum(scale_tiles[:layer]), sum(scale_tiles),
            last=layer == len(plans) - 1,
        )  # fmt: skip


def backward_layer(
    plan: LayerPlan,
    grad_out_CD: Tensor,
    x_CD: Tensor,
    out_CD: Tensor | None,
    skip_CD: Tensor | None,
    weights: UnitWeights,
    seed: Tensor | None,
    workspace: Workspace,
    *,
    kept: Kept | None,
    share: GradientShare,
    gradients: UnitGradients,
    grad_CD: Tensor,
    grad_skip_CD: Tensor | None,
    grad_more_CD: Tensor | None = None,
) -> None:
    """The gradients of a layer: fills ``grad_CD`` and ``grad_skip_CD``, adds to ``gradients``, if only a later layer's.

    Args:
        plan: Of the layer's shape.
        grad_out_CD: The gradient of the layer's output.
        x_CD: The layer's input.
        out_CD: The layer's output, from which the candidates can be told but for a rounding of the output, as eager
            PyTorch rounds it in 16 bits; None takes the kept candidates or forms them again.
        skip_CD: The cells the skip connection added, unscaled; None for none.
        weights: The unit's parameters.
        seed: Of the dropout; None for none.
        workspace: Of this call.
        kept: What the forward pass kept, which stays as it is; None computes it again.
        share: Where the layer leaves its part of the gradients of the weights.
        gradients: Of the unit's parameters.
        grad_CD: Takes the gradient of the input.
        grad_skip_CD: Takes that of ``skip_CD``; it may be the memory of ``out_CD``, which nobody needs any more.
        grad_more_CD: Added to the gradient of the input, where there is no skip connection; None for nothing.
    """
    pairs, features = plan.pairs, plan.features
    pair, joined, here = 2 * features, skip_CD is None, slice(share.first, share.first + plan.pairs)
    state_PE, grad_state_PE = x_CD.view(pairs, pair), grad_CD.view(pairs, pair)
    all_grad_gates = workspace("gates", share.pairs, 3 * pair)
    all_grad_sums = workspace("grad sums", share.pairs, 2, features)
    all_products = workspace("product", share.pairs, 2, pair)
    grad_biases = workspace("grad biases", share.tiles, 4 * pair, dtype=torch.float32)
    alone = share.pairs == pairs
    all_read = state_PE if joined and alone else workspace("read", share.pairs, pair)
    grad_gates, grad_sums, product_P2E = all_grad_gates[here], all_grad_sums[here], all_products[here]
    read_PE = state_PE
    if skip_CD is not None:
        read_PE = all_read[here]
        plan.skip_forward(state_PE, skip_CD, weights.skip_scale, read_PE)
    # The gradients of the gates before the sigmoid take the place of the gates, unless these were kept.
    gates, sums = (grad_gates, None) if kept is None else kept
    if kept is None:
        torch.mm(read_PE, weights.gates_t, out=gates)
    formed = out_CD is None and (kept is None or not plan.keep_sums)
    if formed:
        sums = workspace("sums", pairs, 2, features)
        _candidates(plan, gates, read_PE, weights, product_P2E, sums)
    plan.update_backward[out_CD is not None](
        gates, weights.gates_bias, grad_gates, sums, out_CD, state_PE, weights.candidates_bias, grad_out_CD,
        grad_sums, grad_state_PE, grad_biases[share.first_tile :], seed,
    )  # fmt: skip
    grad_product_P2E = workspace("grad product", pairs, 2, pair)
    torch.bmm(grad_sums.transpose(0, 1), weights.candidates, out=grad_product_P2E.transpose(0, 1))
    grad_read_PE = grad_state_PE if joined else workspace("grad read", pairs, pair)
    plan.reset_backward[joined, grad_more_CD is not None, not formed, joined and not alone](
        gates, weights.gates_bias, grad_gates, read_PE, all_read[here], product_P2E, grad_product_P2E, grad_read_PE,
        grad_more_CD, grad_biases[share.first_tile :],
    )  # fmt: skip
    grad_read_PE.addmm_(grad_gates, weights.gates)
    if skip_CD is not None:
        grad_scales = workspace("grad scales", share.scale_tiles, features, dtype=torch.float32)
        plan.skip_backward(
            skip_CD, weights.skip_scale, grad_read_PE, grad_CD, grad_skip_CD, grad_scales[share.first_scale_tile :]
        )
    if not share.last:
        return
    _add_weight_gradient(all_grad_gates, all_read, gradients.gates)
    for i in range(2):
        _add_weight_gradient(all_grad_sums[:, i], all_products[:, i], gradients.candidates[i])
    gradients.biases.add_(grad_biases.sum(0))
    if gradients.skip_scale is not None and not joined:
        gradients.skip_scale.add_(grad_scales.sum(0))


def _add_skip(
    plan: LayerPlan, state_PE: Tensor, skip_CD: Tensor | None, weights: UnitWeights, workspace: Workspace
) -> Tensor:
    """What gates and candidates read, state + scale * skip."""
    if skip_CD is None:
        return state_PE
    read_PE = workspace("read", *state_PE.shape)
    plan.skip_forward(state_PE, skip_CD, weights.skip_scale, read_PE)
    return read_PE


def _candidates(
    plan: LayerPlan, gates: Tensor, read_PE: Tensor, weights: UnitWeights, product_P2E: Tensor, sums: Tensor
) -> None:
    """The candidates before tanh, and what they read, by the library's product."""
    plan.reset_forward(gates, weights.gates_bias, read_PE, product_P2E)
    torch.bmm(product_P2E.transpose(0, 1), weights.candidates_t, out=sums.transpose(0, 1))


def _add_weight_gradient(grad: Tensor, read: Tensor, out: Tensor) -> None:
    """Add the gradient of a weight, summed over all pairs in float32."""
    if grad.dtype == torch.float32:
        out.addmm_(grad.t(), read)
    else:
        torch.addmm(out, grad.t(), read, out_dtype=torch.float32, out=out)


def aligned(x: Tensor) -> Tensor:
    """``x`` as the launches want it, copied where it does not lie so."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNMENT == 0 else x.clone()


def _ceil_div(size: int, block: int) -> int:
    """How many blocks hold ``size``."""
    return -(-size // block)
