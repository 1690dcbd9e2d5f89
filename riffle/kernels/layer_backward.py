"""The backward pass of one switch layer: plain functions on tensors that fill tensors they are given.

Consecutive layers of one unit store the factors of its weights' gradients one below the other (:class:`ShareBuffers`),
and the last of them adds the products. ``docs/kernels.md`` derives the rest.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs; names as in launches.py
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels.launches import Kept, UnitWeights, Workspace, form_candidates
from riffle.kernels.layer_plan import GradientShare, LayerPlan


class UnitGradients(NamedTuple):
    """Where the gradients of a unit's parameters add up, layer by layer, in float32."""

    gates: Tensor
    """``[G * E, E]``."""
    candidates: Tensor
    """``[2, D, E]``."""
    biases: Tensor
    """``[(G + 1) * E]``: of the gates, then of the candidates."""
    skip_scale: Tensor | None
    """``[D]``."""


class SkipGradient(NamedTuple):
    """What goes back through a skip connection to where it began."""

    grad_read: Tensor
    """``[C, D]``: the gradient of what the later layer read."""
    scale: Tensor
    """``[D]``, in float32."""
    grad_scale: Tensor
    """``[D]``: where the gradient of the scale adds up, in float32."""


def unit_gradients(gates: Tensor, candidates: Tensor, biases: Tensor, skip_scale: Tensor | None) -> UnitGradients:
    """Tensors for a unit's gradients as its launches take them."""
    pair = (gates.numel() + candidates.numel()) // biases.numel()
    scale_D = None if skip_scale is None else skip_scale[: pair // 2]
    return UnitGradients(gates.view(-1, pair), candidates.view(2, pair // 2, pair), biases, scale_D)


class GradientRows(NamedTuple):
    """What layers store for the gradients of their unit's parameters, which are products and sums over these rows."""

    grad_gates: Tensor
    """``[P, G * E]``."""
    grad_sums: Tensor
    """``[P, 2, D]``."""
    products: Tensor
    """``[P, 2, E]``."""
    read: Tensor | None
    """``[P, E]``; None where a layer shares with no other and read its input as it is."""
    tile_sums: Tensor
    """``[tiles, (G + 2) * E]``, in float32: see ``update_backward`` and ``reset_backward`` in ``gated_switch``."""
    program_sums: Tensor | None
    """``[programs, 3E]``, in float32: see ``hopper_backward.product_backward``, whose layers leave these."""


class ShareBuffers(NamedTuple):
    """The rows of all layers of a :class:`GradientShare` together, and of each by itself."""

    all: GradientRows
    layers: list[GradientRows]
    half: str
    """Which of two sets of buffers it is, where products run on the side."""
    key: tuple[Any, ...]
    """What it was made for."""


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
    grad_more_CD: Tensor | None = None,
    grad_skip_CD: Tensor | None = None,
    grad_read_CD: Tensor | None = None,
    skip_gradient: SkipGradient | None = None,
) -> None:
    """The gradients of a layer: fills ``grad_CD``, adds to ``gradients``, if only a later layer's.

    With a skip connection it fills ``grad_skip_CD``, too, or else ``grad_read_CD``, of which ``grad_CD`` then lacks its
    part, and the layer where the skip connection began takes a :class:`SkipGradient`.

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
        grad_more_CD: Added to ``grad_out_CD``; None for nothing.
        grad_skip_CD: Takes the gradient of ``skip_CD``.
        grad_read_CD: Takes that of what gates and candidates read; like ``grad_skip_CD`` it may be the memory of
            ``out_CD``, which is not needed again.
        skip_gradient: Added to the gradient of the input, of a layer without a skip connection of its own.
    """
    pairs, pair, joined, alone = plan.pairs, 2 * plan.features, skip_CD is None, share.pairs == plan.pairs
    if share.place == 0:
        _share_buffers(plan, share, workspace, read=not (joined and alone))
    buffers = workspace.share
    assert buffers is not None
    grad_gates, grad_sums, product_P2E, read, tile_sums, program_sums = buffers.layers[share.place]
    formed = out_CD is None and (kept is None or not plan.keep_sums)
    # What the layer read is put together first, or by the launches that read it.
    joins_first = not joined and (kept is None or formed)
    adds_skip, copies = not (joined or joins_first), not joins_first and not (joined and alone)
    read_PE = x_CD
    if joins_first:
        assert read is not None
        read_PE = read
        plan.skip_forward(x_CD, skip_CD, weights.skip_scale, read_PE)
    # The gradients of the gates before the sigmoid take the place of the gates, unless these were kept.
    gates, sums = (grad_gates, None) if kept is None else kept
    if kept is None:
        torch.mm(read_PE.view(pairs, pair), weights.gates_t, out=gates)
    if formed:
        formed_sums = sums = workspace("sums", pairs, 2, plan.features)
        plan.reset_forward(gates, weights.gates_bias, read_PE, product_P2E)
        form_candidates(product_P2E, weights, formed_sums)
    # A launch that has to wait for another stream as well follows the one before it in the usual way.
    dependent = plan.dependent and not (share.place == 0 and workspace.waited)
    plan.update_backward[out_CD is not None, grad_more_CD is not None, dependent](
        gates, weights.gates_bias, grad_gates, sums, out_CD, x_CD, weights.candidates_bias, grad_out_CD,
        grad_more_CD, grad_sums, grad_CD, tile_sums, seed,
    )  # fmt: skip
    grad_read_PE = grad_CD if joined else grad_read_CD
    grad_read_PE = workspace("grad read", pairs, pair) if grad_read_PE is None else grad_read_PE.view(pairs, pair)
    more, more_scale, grad_scale = skip_gradient or (None, None, None)
    flags = (joined, more is not None, not formed, adds_skip, copies)
    skip, scale = (skip_CD, weights.skip_scale) if adds_skip else (None, None)
    copy, product = read if copies else None, None if formed else product_P2E
    if plan.product_backward is None:
        grad_product_P2E = workspace("grad product", pairs, 2, pair)
        torch.bmm(grad_sums.transpose(0, 1), weights.candidates, out=grad_product_P2E.transpose(0, 1))
        plan.reset_backward[flags](
            gates, weights.gates_bias, grad_gates, read_PE, skip, scale, copy, product, grad_product_P2E, grad_read_PE,
            more, more_scale, tile_sums,
        )  # fmt: skip
    else:
        plan.product_backward[flags](
            grad_sums, weights.candidates, gates, grad_gates, read_PE, product, grad_read_PE, skip, more, copy,
            weights.gates_bias, scale, more_scale, program_sums,
        )  # fmt: skip
    grad_read_PE.addmm_(grad_gates, weights.gates)
    if skip_CD is not None and grad_read_CD is None:
        grad_scale = gradients.skip_scale
        plan.skip_backward(skip_CD, weights.skip_scale, grad_read_PE, grad_CD, grad_skip_CD, tile_sums)
    if share.last:
        read_PE = x_CD.view(pairs, pair) if buffers.all.read is None else buffers.all.read
        _add_gradients(
            buffers.all, read_PE, gradients, grad_scale, partial(workspace.aside, buffers.half),
            began_here=more is not None,
        )  # fmt: skip


def _share_buffers(plan: LayerPlan, share: GradientShare, workspace: Workspace, *, read: bool) -> None:
    """Give the workspace the buffers of a run of layers, or those of the run before where they fit."""
    half = workspace.take_set(share)
    sizes = (share.rows, share.rows, share.rows, share.rows, share.summing, share.sums)
    key = (*sizes[3:], read, plan.features)
    workspace.share = workspace.shares.get(half)
    if workspace.share is not None and workspace.share.key == key:
        return
    workspace.share = workspace.shares[half] = None
    pairs, features, pair = share.pairs, plan.features, 2 * plan.features
    rows = GradientRows(
        workspace("gates" + half, pairs, plan.gates * pair),
        workspace("grad sums" + half, pairs, 2, features),
        workspace("product" + half, pairs, 2, pair),
        workspace("read" + half, pairs, pair) if read else None,
        workspace("tile sums" + half, sum(share.summing), (plan.gates + 2) * pair, dtype=torch.float32),
        workspace("program sums" + half, sum(share.sums), 3 * pair, dtype=torch.float32) if plan.sum_rows else None,
    )
    layers = [rows]
    if len(share.rows) > 1:
        nothing = [None] * len(share.rows)
        parts = [
            nothing if buffer is None else buffer.split_with_sizes(size)
            for buffer, size in zip(rows, sizes, strict=True)
        ]
        layers = [GradientRows(*layer) for layer in zip(*parts, strict=True)]
    workspace.share = workspace.shares[half] = ShareBuffers(rows, layers, half, key)


def _add_gradients(
    rows: GradientRows,
    read_PE: Tensor,
    gradients: UnitGradients,
    grad_scale: Tensor | None,
    aside: Callable[[int], AbstractContextManager[None]],
    *,
    began_here: bool,
) -> None:
    """Add the gradients of a unit's parameters over all rows that its layers left.

    ``grad_scale`` takes that of a skip connection's scale: of one that ended here, or of one that ``began_here``.
    """
    grad_gates, grad_sums, products, _, tile_sums, program_sums = rows
    with aside(0):
        add_weight_gradient(grad_gates, read_PE, gradients.gates)
    with aside(1):
        for i in range(2):
            add_weight_gradient(grad_sums[:, i], products[:, i], gradients.candidates[i])
    with aside(2):
        _add_sums(tile_sums, program_sums, gradients, grad_scale, pair=read_PE.shape[1], began_here=began_here)


def _add_sums(
    tile_sums: Tensor,
    program_sums: Tensor | None,
    gradients: UnitGradients,
    grad_scale: Tensor | None,
    *,
    pair: int,
    began_here: bool,
) -> None:
    """Add the gradients of biases and scale."""
    biases = tile_sums.shape[1] - pair
    scale_sums = tile_sums[:, biases:]
    if program_sums is None:
        gradients.biases.add_(tile_sums[:, :biases].sum(0))
    else:
        gradients.biases[: 2 * pair].add_(program_sums[:, : 2 * pair].sum(0))
        gradients.biases[2 * pair :].add_(tile_sums[:, 2 * pair : 4 * pair].sum(0))
        scale_sums = program_sums[:, 2 * pair :] if began_here else scale_sums
    if grad_scale is not None:
        grad_scale.add_(scale_sums.sum(0).view(2, pair // 2).sum(0))


def add_weight_gradient(grad: Tensor, read: Tensor, out: Tensor, *, fresh: bool = False) -> None:
    """Add the gradient of a weight, summed over all pairs in float32; ``fresh`` overwrites ``out``."""
    beta = 0 if fresh else 1
    if grad.dtype == torch.float32:
        out.addmm_(grad.t(), read, beta=beta)
    else:
        torch.addmm(out, grad.t(), read, beta=beta, out_dtype=torch.float32, out=out)
