"""The gated switch layer and the shuffle after it as one differentiable operator, on the Triton kernels.

A layer keeps its input and nothing else: the backward pass forms the gates again.
"""

# B = batch, N = 2**k cells, D = features per cell, E = 2 * D features per pair, P = B * N // 2 pairs
from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from riffle.kernels import gated_switch
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import RESET_COLUMNS, forward_blocks, reset_blocks

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def switch_and_shuffle(
    x_BND: Tensor,
    weights: SwitchWeights,
    *,
    turn: int,
    swap: bool = True,
    skip_BND: Tensor | None = None,
    skip_scale_D: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout, and the shuffle ``turn`` after it.

    Args:
        x_BND: The cells.
        weights: The unit's parameters, in any floating dtype; products are made in the dtype of ``x_BND`` and
            gradients of the weights are summed in the dtype of the weights.
        turn: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        skip_BND: The cells the skip connection brings, unscaled.
        skip_scale_D: Their scale.
        dropout: Share of output features set to zero.
    """
    seed = torch.randint(2**31, (1,), device=x_BND.device) if dropout else None
    return _switch(x_BND, skip_BND, skip_scale_D, *weights, seed, turn, swap, dropout)


@torch.library.custom_op("riffle::switch", mutates_args=())
def _switch(
    x_BND: Tensor,
    skip_BND: Tensor | None,
    skip_scale_D: Tensor | None,
    gates_weight: Tensor,
    gates_bias: Tensor,
    candidates_weight: Tensor,
    candidates_bias: Tensor,
    seed: Tensor | None,
    turn: int,
    swap: bool,
    dropout: float,
) -> Tensor:
    batch, cells, features = x_BND.shape
    state_PE = x_BND.contiguous().view(-1, 2 * features)
    read_PE, gates = _gates(state_PE, skip_BND, skip_scale_D, gates_weight, gates_bias)
    out_BND = torch.empty_like(x_BND, memory_format=torch.contiguous_format)
    pairs = state_PE.shape[0]
    blocks = forward_blocks(features, x_BND.element_size())
    if pairs:
        gated_switch.switch_forward[(2 * triton.cdiv(pairs, blocks.pairs),)](
            gates, read_PE, state_PE, _like(candidates_weight, x_BND), _like(candidates_bias, x_BND), out_BND, seed,
            pairs, cells, dropout,
            D=features, TURN=turn, SWAP=swap, DROPOUT=seed is not None, PRECISION=_precision(),
            BLOCK_P=blocks.pairs, BLOCK_D=_block(features), BLOCK_K=blocks.inner,
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
    return out_BND


@_switch.register_fake
def _(x_BND: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x_BND, memory_format=torch.contiguous_format)


@torch.library.custom_op("riffle::switch_backward", mutates_args=())
def _switch_backward(
    grad_out_BND: Tensor,
    x_BND: Tensor,
    skip_BND: Tensor | None,
    skip_scale_D: Tensor | None,
    gates_weight: Tensor,
    gates_bias: Tensor,
    candidates_weight: Tensor,
    candidates_bias: Tensor,
    seed: Tensor | None,
    turn: int,
    swap: bool,
    dropout: float,
) -> list[Tensor]:
    batch, cells, features = x_BND.shape
    state_PE = x_BND.contiguous().view(-1, 2 * features)
    read_PE, gates = _gates(state_PE, skip_BND, skip_scale_D, gates_weight, gates_bias)
    pairs = state_PE.shape[0]
    weight_2DE = _like(candidates_weight, x_BND)
    grad_candidate_PE = torch.empty_like(state_PE)
    grad_state_PE = torch.empty_like(state_PE)
    blocks = forward_blocks(features, x_BND.element_size())
    tiles = triton.cdiv(pairs, blocks.pairs)
    sums = torch.empty(tiles, 8 * features, dtype=torch.float32, device=x_BND.device)
    precision = _precision()
    if pairs:
        gated_switch.switch_backward_update[(2 * tiles,)](
            gates, read_PE, state_PE, weight_2DE, _like(candidates_bias, x_BND), grad_out_BND.contiguous(),
            grad_candidate_PE, grad_state_PE, sums, seed, pairs, cells, dropout,
            D=features, TURN=turn, SWAP=swap, DROPOUT=seed is not None, PRECISION=precision,
            BLOCK_P=blocks.pairs, BLOCK_D=_block(features), BLOCK_K=blocks.inner,
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
    grad_read_PE = torch.empty_like(state_PE) if skip_BND is not None else grad_state_PE
    product_P2E = torch.empty(pairs, 2, 2 * features, dtype=x_BND.dtype, device=x_BND.device)
    reset = reset_blocks(features, x_BND.element_size())
    assert reset.pairs == blocks.pairs or blocks.pairs % reset.pairs == 0 or reset.pairs % blocks.pairs == 0
    reset_tiles = triton.cdiv(pairs, reset.pairs)
    reset_sums = sums if reset_tiles == tiles else torch.empty(reset_tiles, 8 * features, device=x_BND.device)
    if pairs:
        gated_switch.switch_backward_reset[(reset_tiles, triton.cdiv(2 * features, RESET_COLUMNS))](
            gates, read_PE, weight_2DE, grad_candidate_PE, grad_state_PE, grad_read_PE, product_P2E, reset_sums, pairs,
            D=features, SKIP=skip_BND is not None, PRECISION=precision,
            BLOCK_P=reset.pairs, BLOCK_E=RESET_COLUMNS, BLOCK_K=reset.inner,
            num_warps=reset.warps, num_stages=reset.stages,
        )  # fmt: skip
    # From here on `gates` holds the gradients of the gates' pre-activations.
    grad_read_PE = torch.addmm(grad_read_PE, gates, _like(gates_weight, x_BND))
    grad_gates_weight = _product(gates.t(), read_PE)
    grad_candidates_weight = torch.stack(
        [_product(grad_candidate_PE[:, i * features : (i + 1) * features].t(), product_P2E[:, i]) for i in range(2)]
    )
    grad_gates_bias = torch.cat((reset_sums[:, : 4 * features].sum(0), sums[:, 4 * features : 6 * features].sum(0)))
    grad_candidates_bias = sums[:, 6 * features :].sum(0).view(2, features)
    grads = [grad_gates_weight, grad_gates_bias, grad_candidates_weight, grad_candidates_bias]
    parameters = [gates_weight, gates_bias, candidates_weight, candidates_bias]
    grads = [grad.to(parameter.dtype) for grad, parameter in zip(grads, parameters, strict=True)]
    if skip_BND is None or skip_scale_D is None:
        empty = x_BND.new_empty(0)
        return [grad_read_PE.view_as(x_BND), empty, empty.clone(), *grads]
    grad_BND = grad_read_PE.view_as(x_BND)
    grad_scale_D = (grad_BND.float() * skip_BND.float()).sum((0, 1)).to(skip_scale_D.dtype)
    return [
        (grad_state_PE + grad_read_PE).view_as(x_BND), grad_BND * skip_scale_D.to(grad_BND.dtype), grad_scale_D, *grads
    ]  # fmt: skip


@_switch_backward.register_fake
def _(
    grad_out_BND: Tensor, x_BND: Tensor, skip_BND: Tensor | None, skip_scale_D: Tensor | None, *rest: Any
) -> list[Tensor]:
    empty = x_BND.new_empty(0)
    skips = [empty, empty.clone()] if skip_scale_D is None else [torch.empty_like(x_BND), torch.empty_like(skip_scale_D)]
    contiguous = torch.empty_like(x_BND, memory_format=torch.contiguous_format)
    return [contiguous, *skips, *(torch.empty_like(parameter) for parameter in rest[:4])]


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.turn, ctx.swap, ctx.dropout = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad_out_BND: Tensor) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors
    grad_x, grad_skip, grad_scale, *grad_weights = torch.ops.riffle.switch_backward(
        grad_out_BND, *tensors, ctx.turn, ctx.swap, ctx.dropout
    )
    if tensors[1] is None:
        grad_skip = grad_scale = None
    return (grad_x, grad_skip, grad_scale, *grad_weights, None, None, None, None)


_switch.register_autograd(_backward, setup_context=_keep_inputs)


def _gates(
    state_PE: Tensor, skip_BND: Tensor | None, skip_scale_D: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """What gates and candidates read, and the pre-activations of all gates ``[P, 3E]``."""
    read_PE = state_PE
    if skip_BND is not None and skip_scale_D is not None:
        scaled_BND = skip_BND * skip_scale_D.to(skip_BND.dtype)
        read_PE = state_PE + scaled_BND.view_as(state_PE)
    return read_PE, torch.addmm(_like(bias, state_PE), read_PE, _like(weight, state_PE).t())


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A product over all pairs, summed and given in float32."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b


def _like(parameter: Tensor, x: Tensor) -> Tensor:
    return parameter.to(x.dtype)


def _block(features: int) -> int:
    return max(16, triton.next_power_of_2(features))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
