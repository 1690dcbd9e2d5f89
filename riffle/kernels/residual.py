"""The launches of one residual switch layer, and its plan: the counterpart of ``launches.py`` and ``layer_plan.py``.

Two products over all pairs are the library's; what lies around them are the passes of ``residual_switch.py``.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, H = 4 * D, P = C // 2 pairs
# hidden [P, H]: the first product, active [P, H]: what the second one reads, candidate [P, E] without its bias
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels import residual_switch
from riffle.kernels.launches import Kept, Launch, Workspace
from riffle.kernels.layer_backward import add_weight_gradient
from riffle.kernels.layer_plan import GradientShare, Variants, dropout_kind, group_numbers, one_pass
from riffle.kernels.reference import CANDIDATE_SCALE, FEATURES_EPSILON, SEQUENCE_EPSILON, Norm
from riffle.kernels.tuning import (
    Blocks,
    RowForm,
    dependent_launch,
    residual_blocks,
    row_blocks,
    row_form,
    sequence_blocks,
)


class ResidualLaunch(Launch):
    """One launch of a kernel of the residual unit."""

    __slots__ = ()
    kernels = residual_switch


class ResidualPlan(NamedTuple):
    """All that a layer's launches need besides tensors."""

    pairs: int
    features: int
    switch_forward: Launch | None
    """All after the first product in one; None where the library's second product serves better."""
    norm_forward: Launch
    norm_backward: Launch
    residual_forward: Launch
    residual_backward: Variants
    """By ``COPY`` and ``PDL``."""
    tile_rows: int
    sum_rows: int
    """Partial sums of B_Z's gradient where each sequence stores one; 0 where each tile does."""
    dependent: bool
    """This and the two above: see :class:`~riffle.kernels.layer_plan.LayerPlan`."""


class ResidualUnitWeights(NamedTuple):
    """A unit's parameters in the dtype of the cells, and in float32 where they are vectors of no product."""

    hidden: Tensor
    """``[H, E]``."""
    hidden_bias: Tensor
    """``[H]``."""
    candidate: Tensor
    """``[E, H]``."""
    candidate_bias: Tensor
    """``[E]``."""
    residual: Tensor
    """``[E]``, in float32."""


class ResidualGradients(NamedTuple):
    """Where the gradients of a unit's parameters add up, layer by layer, in float32."""

    hidden: Tensor
    """``[H, E]``."""
    candidate: Tensor
    """``[E, H]``."""
    vectors: Tensor
    """``[H + 2E]``: of the biases of hidden features and candidate, and of what is kept of a pair."""


def residual_gradients(hidden: Tensor, candidate: Tensor, biases: Tensor, residual: Tensor) -> ResidualGradients:
    """Tensors for a unit's gradients as its launches take them; ``residual`` lies behind ``biases``."""
    pair, offset = residual.numel(), biases.storage_offset()
    assert residual.storage_offset() == offset + biases.numel(), "sums of both are added by one launch"
    vectors = biases.as_strided((4 * pair,), (1,), offset)
    return ResidualGradients(hidden.view(2 * pair, pair), candidate.view(pair, 2 * pair), vectors)


@lru_cache(maxsize=4096)
def plan_residual_layer(
    sequences: tuple[int, ...],
    cells: tuple[int, ...],
    dropout: tuple[float, ...],
    features: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    norm: Norm,
    shuffle: int,
    swap: bool,
    keep: bool,
    skip: bool,
    first: bool,
    noise: bool = False,
) -> ResidualPlan:
    """Plan the layer of a shape, see :func:`riffle.kernels.layer_plan.plan_layer`.

    ``swap``, ``keep``, ``skip`` and ``first`` mean nothing here.
    """
    counts = [count * length // 2 for count, length in zip(sequences, cells, strict=True)]
    pairs, groups = sum(counts), group_numbers(counts, cells, dropout)
    dependent, tile_rows = dependent_launch(device), row_form(pairs, "backward").tile
    fast = {"FAST": dtype != torch.float32, "PDL": dependent}
    if norm == "features":
        norm_forward = _rows_pass("features_forward", row_form(pairs, "forward"), pairs, 4 * features, **fast)
        norm_backward = _rows_pass("features_backward", row_form(pairs, "backward"), pairs, 4 * features, **fast)
    else:
        norm_forward = _sequences_pass("sequence_forward", sequences, groups, 4 * features, **fast)
        norm_backward = _sequences_pass("sequence_backward", sequences, groups, 4 * features, **fast)
    flags: dict[str, Any] = {"SCALE": CANDIDATE_SCALE, "SHUFFLE": shuffle, "DROPOUT": dropout_kind(dropout, noise)}

    def around(kernel: str, **more: Any) -> Launch:
        return one_pass(kernel, pairs, features, groups, launch=ResidualLaunch, **flags, **more)

    blocks = residual_blocks(pairs, features, dtype) if norm == "features" else None
    return ResidualPlan(
        pairs,
        features,
        switch_forward=blocks and _switch(blocks, pairs, features, groups, **flags, **fast),
        norm_forward=norm_forward,
        norm_backward=norm_backward,
        residual_forward=around("residual_forward", PDL=dependent),
        residual_backward=Variants(("COPY", "PDL"), partial(around, "residual_backward", tile_rows=tile_rows)),
        tile_rows=tile_rows,
        sum_rows=0 if norm == "features" else sum(sequences),
        dependent=dependent,
    )


def _switch(blocks: Blocks, pairs: int, features: int, groups: tuple[Any, ...], **flags: Any) -> Launch:
    return ResidualLaunch(
        "features_switch",
        (2 * triton.cdiv(pairs, blocks.rows),),
        pairs,
        *groups,
        D=features,
        EPSILON=FEATURES_EPSILON,
        EVEN=pairs % blocks.rows == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def _rows_pass(kernel: str, form: RowForm, pairs: int, width: int, **flags: Any) -> Launch:
    """A kernel that normalises rows: a program has all columns of some of them."""
    blocks = row_blocks(form, width)
    return ResidualLaunch(
        kernel,
        (triton.cdiv(pairs, form.tile),),
        pairs,
        H=width,
        EPSILON=FEATURES_EPSILON,
        EVEN=pairs % form.tile == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def _sequences_pass(
    kernel: str, sequences: Sequence[int], groups: tuple[tuple[Any, ...], ...], width: int, **flags: Any
) -> Launch:
    """A kernel that normalises sequences: a program has some columns of one of them."""
    starts, lengths, _ = groups
    firsts = [2 * first + 1 for first in accumulate(sequences, initial=0)]
    blocks = sequence_blocks(max(lengths) // 2, width)
    return ResidualLaunch(
        kernel,
        (sum(sequences), triton.cdiv(width, blocks.columns)),
        (*firsts[:-1], *firsts[-1:] * (len(starts) - len(sequences))),
        starts,
        lengths,
        H=width,
        EPSILON=SEQUENCE_EPSILON,
        BLOCK_P=blocks.rows,
        BLOCK_C=blocks.columns,
        **blocks.options,
        **flags,
    )


def forward_residual_layer(
    plan: ResidualPlan,
    x_CD: Tensor,
    skip_CD: None,
    weights: ResidualUnitWeights,
    seed: Tensor | None,
    workspace: Workspace,
    *,
    kept: Kept | None,
    out_CD: Tensor | None,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout and shuffle: see :func:`~riffle.kernels.launches.forward_layer`."""
    pair = 2 * plan.features
    state_PE = x_CD.view(plan.pairs, pair)
    hidden = workspace("hidden", plan.pairs, 2 * pair) if kept is None else kept.gates
    torch.mm(state_PE, weights.hidden.t(), out=hidden)
    if plan.switch_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        plan.switch_forward(
            hidden, weights.hidden_bias, weights.candidate, weights.candidate_bias, state_PE, weights.residual, out_CD,
            seed,
        )  # fmt: skip
        return out_CD
    active = workspace("active", plan.pairs, 2 * pair)
    plan.norm_forward(hidden, weights.hidden_bias, active)
    candidate_PE = workspace("candidate", plan.pairs, pair)
    torch.mm(active, weights.candidate.t(), out=candidate_PE)
    out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
    plan.residual_forward(candidate_PE, weights.candidate_bias, state_PE, weights.residual, out_CD, seed)
    return out_CD


def backward_residual_layer(
    plan: ResidualPlan,
    grad_out_CD: Tensor,
    x_CD: Tensor,
    out_CD: Tensor | None,
    skip_CD: None,
    weights: ResidualUnitWeights,
    seed: Tensor | None,
    workspace: Workspace,
    *,
    kept: Kept | None,
    share: GradientShare,
    gradients: ResidualGradients,
    grad_CD: Tensor,
    **skips: None,
) -> None:
    """The gradients of a layer, see :func:`~riffle.kernels.layer_backward.backward_layer`; without skip connections."""
    pair, here = 2 * plan.features, slice(share.first, share.first + plan.pairs)
    state_PE, grad_state_PE = x_CD.view(plan.pairs, pair), grad_CD.view(plan.pairs, pair)
    half, alone = workspace.take_set(share), share.pairs == plan.pairs
    all_grad_candidates = workspace("grad candidate" + half, share.pairs, pair)
    all_grad_hidden = workspace("grad hidden" + half, share.pairs, 2 * pair)
    all_active = workspace("active" + half, share.pairs, 2 * pair)
    all_states = state_PE if alone else workspace("state" + half, share.pairs, pair)
    tile_sums = workspace("tile sums" + half, sum(share.summing), 4 * pair, dtype=torch.float32)
    tiles, norm_sums = tile_sums[sum(share.summing[: share.place]) :], None
    norm_tiles = tiles
    if plan.sum_rows:
        norm_sums = workspace("norm sums" + half, sum(share.sums), 2 * pair, dtype=torch.float32)
        norm_tiles = norm_sums[sum(share.sums[: share.place]) :]
    if kept is None:
        hidden = workspace("hidden", plan.pairs, 2 * pair)
        torch.mm(state_PE, weights.hidden.t(), out=hidden)
    else:
        hidden = kept.gates
    # A launch that has to wait for another stream as well follows the one before it in the usual way.
    plan.residual_backward[not alone, plan.dependent and not workspace.waited](
        state_PE, weights.residual, grad_out_CD, all_grad_candidates[here], grad_state_PE, all_states[here], tiles, seed
    )
    grad_hidden = all_grad_hidden[here]
    torch.mm(all_grad_candidates[here], weights.candidate, out=grad_hidden)
    plan.norm_backward(hidden, weights.hidden_bias, grad_hidden, all_active[here], norm_tiles)
    grad_state_PE.addmm_(grad_hidden, weights.hidden)
    if not share.last:
        return
    with workspace.aside(half, 1):
        add_weight_gradient(all_grad_candidates, all_active, gradients.candidate, fresh=share.fresh)
    with workspace.aside(half, 2):
        _add_sums(tile_sums, norm_sums, gradients.vectors, fresh=share.fresh)
    with workspace.aside(half):
        add_weight_gradient(all_grad_hidden, all_states, gradients.hidden, fresh=share.fresh)


def _add_sums(tile_sums: Tensor, norm_sums: Tensor | None, vectors: Tensor, *, fresh: bool) -> None:
    """Add the partial sums of the gradients of B_Z, B and S that tiles and sequences stored; ``fresh`` overwrites."""
    parts = [(tile_sums, vectors)]
    if norm_sums is not None:
        first = norm_sums.shape[1]
        parts = [(norm_sums, vectors[:first]), (tile_sums[:, first:], vectors[first:])]
    for shares, out in parts:
        if fresh:
            torch.sum(shares, 0, out=out)
        else:
            out.add_(shares.sum(0))
