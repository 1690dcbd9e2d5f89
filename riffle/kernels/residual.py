"""The launches of one residual switch layer, and its plan: the counterpart of ``launches.py`` and ``layer_plan.py``.

Two products over all pairs are the library's; what lies around them are the passes of ``residual_switch.py``.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, H = 4 * D, P = C // 2 pairs
# hidden [P, H]: the first product, active [P, H]: what the second one reads, candidate [P, E] without its bias
from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels import residual_switch
from riffle.kernels.launches import Kept, Launch, Workspace
from riffle.kernels.layer_backward import add_weight_gradient
from riffle.kernels.layer_plan import GradientShare, Variants, dropout_kind, group_numbers, one_pass
from riffle.kernels.reference import CANDIDATE_SCALE, FEATURES_EPSILON
from riffle.kernels.tuning import RowForm, dependent_launch, row_blocks, row_form


class ResidualLaunch(Launch):
    """One launch of a kernel of the residual unit."""

    __slots__ = ()
    kernels = residual_switch


class ResidualPlan(NamedTuple):
    """All that a layer's launches need besides tensors."""

    pairs: int
    features: int
    norm_forward: Launch
    norm_backward: Launch
    residual_forward: Launch
    residual_backward: Variants
    """By ``COPY`` and ``PDL``."""
    tile_rows: int
    dependent: bool
    """This and the one above: see :class:`~riffle.kernels.layer_plan.LayerPlan`."""
    sum_rows: int = 0


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
    norm_forward, norm_backward = (
        _rows_pass(f"features_{way}", row_form(pairs, way), pairs, 4 * features, **fast)
        for way in ("forward", "backward")
    )
    flags: dict[str, Any] = {"SCALE": CANDIDATE_SCALE, "SHUFFLE": shuffle, "DROPOUT": dropout_kind(dropout, noise)}

    def around(kernel: str, **more: Any) -> Launch:
        return one_pass(kernel, pairs, features, groups, launch=ResidualLaunch, **flags, **more)

    return ResidualPlan(
        pairs,
        features,
        norm_forward=norm_forward,
        norm_backward=norm_backward,
        residual_forward=around("residual_forward", PDL=dependent),
        residual_backward=Variants(("COPY", "PDL"), partial(around, "residual_backward", tile_rows=tile_rows)),
        tile_rows=tile_rows,
        dependent=dependent,
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
    tiles = tile_sums[sum(share.summing[: share.place]) :]
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
    plan.norm_backward(hidden, weights.hidden_bias, grad_hidden, all_active[here], tiles)
    grad_state_PE.addmm_(grad_hidden, weights.hidden)
    if not share.last:
        return
    with workspace.aside(half, 1):
        add_weight_gradient(all_grad_candidates, all_active, gradients.candidate, fresh=share.fresh)
    with workspace.aside(half, 2):
        if share.fresh:
            torch.sum(tile_sums, 0, out=gradients.vectors)
        else:
            gradients.vectors.add_(tile_sums.sum(0))
    with workspace.aside(half):
        add_weight_gradient(all_grad_hidden, all_states, gradients.hidden, fresh=share.fresh)
