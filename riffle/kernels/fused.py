"""The gated switch layer and the shuffle after it as one differentiable operator, on the Triton kernels.

A layer keeps its input and nothing else: the backward pass forms the gates again.
"""

# B = batch, N = 2**k cells, D = features per cell, E = 2 * D features per pair, P = B * N // 2 pairs
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels import gated_switch
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import Blocks, candidate_blocks, reset_blocks


class Prepared(NamedTuple):
    """A unit's parameters, ready for every layer that shares them."""

    parameters: SwitchWeights
    """In float32, where the layers' gradients add up."""
    weights: SwitchWeights
    """In the dtype of the cells, for the products."""
    skip_scale: Tensor | None
    """The scale of the unit's skip connection, in float32."""


def prepare(weights: SwitchWeights, skip_scale_D: Tensor | None, dtype: torch.dtype) -> Prepared:
    """Convert a unit's parameters once for all layers."""
    return Prepared(
        SwitchWeights(*(parameter.float() for parameter in weights)),
        SwitchWeights(*(parameter.detach().to(dtype) for parameter in weights)),
        None if skip_scale_D is None else skip_scale_D.float(),
    )


def switch_and_shuffle(
    x_BND: Tensor,
    unit: Prepared,
    *,
    turn: int,
    swap: bool = True,
    skip_BND: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout, and the shuffle ``turn`` after it.

    Args:
        x_BND: The cells.
        unit: The unit's parameters.
        turn: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        skip_BND: The cells the skip connection brings, unscaled.
        dropout: Share of output features set to zero.
    """
    seed = torch.randint(2**31, (1,), device=x_BND.device) if dropout else None
    skip_scale_D = None if skip_BND is None else unit.skip_scale
    return _switch(x_BND, skip_BND, skip_scale_D, *unit.parameters, *unit.weights, seed, turn, swap, dropout)


@torch.library.custom_op("riffle::switch", mutates_args=())
def _switch(
    x_BND: Tensor,
    skip_BND: Tensor | None,
    skip_scale_D: Tensor | None,
    gates_weight_parameter: Tensor,
    gates_bias_parameter: Tensor,
    candidates_weight_parameter: Tensor,
    candidates_bias_parameter: Tensor,
    gates_weight: Tensor,
    gates_bias: Tensor,
    candidates_weight: Tensor,
    candidates_bias: Tensor,
    seed: Tensor | None,
    turn: int,
    swap: bool,
    dropout: float,
) -> Tensor:
    _, cells, features = x_BND.shape
    state_PE = x_BND.contiguous().view(-1, 2 * features)
    read_PE, gates = _gates(state_PE, skip_BND, skip_scale_D, gates_weight, gates_bias)
    out_BND = torch.empty_like(x_BND, memory_format=torch.contiguous_format)
    pairs = state_PE.shape[0]
    blocks, options = _candidate_options(x_BND, pairs)
    if pairs:
        gated_switch.switch_forward[(2 * triton.cdiv(pairs, blocks.pairs),)](
            gates, read_PE, state_PE, candidates_weight, candidates_bias, out_BND, seed, pairs, cells, dropout,
            TURN=turn, SWAP=swap, DROPOUT=seed is not None, **options,
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
    _, cells, features = x_BND.shape
    state_PE = x_BND.contiguous().view(-1, 2 * features)
    read_PE, gates = _gates(state_PE, skip_BND, skip_scale_D, gates_weight, gates_bias)
    pairs = state_PE.shape[0]
    grad_candidate_PE = torch.empty_like(state_PE)
    grad_state_PE = torch.empty_like(state_PE)
    grad_read_PE = torch.empty_like(state_PE) if skip_BND is not None else grad_state_PE
    product_P2E = torch.empty(pairs, 2, 2 * features, dtype=x_BND.dtype, device=x_BND.device)
    blocks, options = _candidate_options(x_BND, pairs)
    reset, reset_options = _reset_options(x_BND, pairs)
    tiles, reset_tiles = triton.cdiv(pairs, blocks.pairs), triton.cdiv(pairs, reset.pairs)
    sums = torch.empty(tiles, 8 * features, dtype=torch.float32, device=x_BND.device)
    reset_sums = torch.empty(reset_tiles, 4 * features, dtype=torch.float32, device=x_BND.device)
    if pairs:
        gated_switch.switch_backward_update[(2 * tiles,)](
            gates, read_PE, state_PE, candidates_weight, candidates_bias, grad_out_BND.contiguous(),
            grad_candidate_PE, grad_state_PE, sums, seed, pairs, cells, dropout,
            TURN=turn, SWAP=swap, DROPOUT=seed is not None, **options,
        )  # fmt: skip
        gated_switch.switch_backward_reset[(reset_tiles * triton.cdiv(2 * features, reset.columns),)](
            gates, read_PE, candidates_weight, grad_candidate_PE, grad_state_PE, grad_read_PE, product_P2E, reset_sums,
            pairs, SKIP=skip_BND is not None, **reset_options,
        )  # fmt: skip
    # From here on `gates` holds the gradients of the gates' pre-activations.
    grad_read_PE = torch.addmm(grad_read_PE, gates, gates_weight)
    grad_gates_weight = _product(gates.t(), read_PE)
    grad_candidates_weight = torch.stack(
        [_product(grad_candidate_PE[:, i * features : (i + 1) * features].t(), product_P2E[:, i]) for i in range(2)]
    )
    grad_gates_bias = torch.cat((reset_sums.sum(0), sums[:, 4 * features : 6 * features].sum(0)))
    grad_candidates_bias = sums[:, 6 * features :].sum(0).view(2, features)
    grads = [grad_gates_weight, grad_gates_bias, grad_candidates_weight, grad_candidates_bias]
    if skip_BND is None or skip_scale_D is None:
        empty = x_BND.new_empty(0)
        return [grad_read_PE.view_as(x_BND), empty, empty.clone(), *grads]
    grad_BND = grad_read_PE.view_as(x_BND)
    grad_scale_D = (grad_BND.float() * skip_BND.float()).sum((0, 1))
    return [
        (grad_state_PE + grad_read_PE).view_as(x_BND), grad_BND * skip_scale_D.to(grad_BND.dtype), grad_scale_D, *grads
    ]  # fmt: skip


@_switch_backward.register_fake
def _(
    grad_out_BND: Tensor, x_BND: Tensor, skip_BND: Tensor | None, skip_scale_D: Tensor | None, *rest: Any
) -> list[Tensor]:
    empty = x_BND.new_empty(0)
    skips = (
        [empty, empty.clone()] if skip_scale_D is None else [torch.empty_like(x_BND), torch.empty_like(skip_scale_D)]
    )
    contiguous = torch.empty_like(x_BND, memory_format=torch.contiguous_format)
    return [contiguous, *skips, *(torch.empty_like(weight, dtype=torch.float32) for weight in rest[:4])]


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.turn, ctx.swap, ctx.dropout = inputs
    ctx.save_for_backward(*tensors[:3], *tensors[7:])


def _backward(ctx: Any, grad_out_BND: Tensor) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors
    grad_x, grad_skip, grad_scale, *grad_weights = torch.ops.riffle.switch_backward(
        grad_out_BND, *tensors, ctx.turn, ctx.swap, ctx.dropout
    )
    if tensors[1] is None:
        grad_skip = grad_scale = None
    return (grad_x, grad_skip, grad_scale, *grad_weights, *[None] * 8)


_switch.register_autograd(_backward, setup_context=_keep_inputs)


def _gates(
    state_PE: Tensor, skip_BND: Tensor | None, skip_scale_D: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """What gates and candidates read, and the pre-activations of all gates ``[P, 3E]``."""
    read_PE = state_PE
    if skip_BND is not None and skip_scale_D is not None:
        scaled_BND = skip_BND * skip_scale_D.to(skip_BND.dtype)
        read_PE = state_PE + scaled_BND.view_as(state_PE)
    return read_PE, torch.addmm(bias, read_PE, weight.t())


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A product over all pairs, summed and given in float32."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b


def _candidate_options(x_BND: Tensor, pairs: int) -> tuple[Blocks, dict[str, Any]]:
    features = x_BND.shape[2]
    blocks = candidate_blocks(features, x_BND.element_size())
    count = triton.cdiv(features, blocks.columns)
    even = pairs % blocks.pairs == 0 and features == count * blocks.columns and 2 * features % blocks.inner == 0
    return blocks, {"BLOCK_D": blocks.columns, "BLOCKS": count, **_options(x_BND, blocks, even)}


def _reset_options(x_BND: Tensor, pairs: int) -> tuple[Blocks, dict[str, Any]]:
    features = x_BND.shape[2]
    blocks = reset_blocks(features, x_BND.element_size())
    even = pairs % blocks.pairs == 0 and 2 * features % blocks.columns == 0 and features % blocks.inner == 0
    return blocks, {"BLOCK_E": blocks.columns, **_options(x_BND, blocks, even)}


def _options(x_BND: Tensor, blocks: Blocks, even: bool) -> dict[str, Any]:
    return {
        "D": x_BND.shape[2],
        "EVEN": even,
        "FAST": x_BND.dtype != torch.float32,  # tanh.approx is right to 11 bits
        # Triton cuts float32 to tf32 where the library rounds: three products make up for it.
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32x3",
        "BLOCK_P": blocks.pairs,
        "BLOCK_K": blocks.inner,
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }
