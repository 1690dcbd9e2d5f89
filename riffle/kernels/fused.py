"""The gated switch layer and the shuffle after it as one differentiable operator, on the Triton kernels.

The cells of a layer lie one after the other, whatever sequences they come from: sequences of one length make a group,
longer ones first, and to the unit all their pairs are alike. A layer keeps its input for the backward pass, which
computes gates and candidates again, or keeps them as well. ``docs/kernels.md`` derives the backward pass.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs
# state: the pairs, read: the pairs plus the skip connection, gates [P, 3E] before the sigmoid,
# product_2PE: r^i * read, sum_2PD: the candidates before tanh and without their bias
from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels import gated_switch
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import PASS_ROWS, pass_blocks, switch_blocks


class PackedUnit(NamedTuple):
    """A unit's parameters in one tensor, ready for every layer that shares them."""

    parameters: Tensor
    """In float32, where the layers' gradients add up."""
    weights: Tensor
    """In the dtype of the cells, for the products."""
    skip_scale: Tensor | None
    """The scale of the unit's skip connection, in float32."""


def pack(weights: SwitchWeights, skip_scale_D: Tensor | None, dtype: torch.dtype) -> PackedUnit:
    """Convert a unit's parameters once for all layers: one tensor, so that a layer adds its gradients in one step."""
    ordered = (weights.gates_weight, weights.candidates_weight, weights.gates_bias, weights.candidates_bias)
    scale_D = None if skip_scale_D is None else skip_scale_D.float()
    if not torch.is_grad_enabled():
        flat = torch.cat([parameter.to(dtype).flatten() for parameter in ordered])
        return PackedUnit(flat, flat, scale_D)
    flat = torch.cat([parameter.float().flatten() for parameter in ordered])
    return PackedUnit(flat, flat.detach().to(dtype), scale_D)


def switch_and_shuffle(
    x_CD: Tensor,
    unit: PackedUnit,
    *,
    sequences: list[int],
    cells: list[int],
    shuffle: int,
    swap: bool = True,
    skip_CD: Tensor | None = None,
    dropout: list[float] | None = None,
    recompute: bool = True,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout, and the shuffle after it.

    Args:
        x_CD: The cells of all sequences, one after the other.
        unit: The unit's parameters.
        sequences: How many sequences each group has.
        cells: How many cells each of a group's sequences has: powers of two, falling from group to group.
        shuffle: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        skip_CD: The cells the skip connection adds, unscaled.
        dropout: For each group, the share of output features set to zero; None for none.
        recompute: Whether the backward pass computes gates and candidates again; False keeps them, for one backward
            pass.
    """
    assert sum(count * length for count, length in zip(sequences, cells, strict=True)) == x_CD.shape[0]
    assert sorted(cells, reverse=True) == list(cells), "longer sequences come first"
    rates = list(dropout or [0.0] * len(cells))
    seed = torch.randint(2**31, (1,), device=x_CD.device) if any(rates) else None
    skip_scale_D = None if skip_CD is None else unit.skip_scale
    keep = not recompute and torch.is_grad_enabled()
    out_CD, _, _ = _switch(
        x_CD, skip_CD, skip_scale_D, unit.parameters, unit.weights, seed, sequences, cells, rates, shuffle, swap, keep
    )
    return out_CD


@torch.library.custom_op("riffle::switch", mutates_args=())
def _switch(
    x_CD: Tensor,
    skip_CD: Tensor | None,
    skip_scale_D: Tensor | None,
    parameters: Tensor,
    weights: Tensor,
    seed: Tensor | None,
    sequences: list[int],
    cells: list[int],
    dropout: list[float],
    shuffle: int,
    swap: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    epilogue = _epilogue(sequences, cells, dropout, seed, shuffle, swap)
    gates_weight, gates_bias, candidates_weight, candidates_bias = _unpack(weights, x_CD.shape[1])
    state_PE = _pairs(x_CD)
    read_PE = _add_skip(state_PE, skip_CD, skip_scale_D)
    gates = torch.addmm(gates_bias, read_PE, gates_weight.t())
    (pairs, features), fast = (len(state_PE), x_CD.shape[1]), _fast(x_CD)
    blocks = switch_blocks(2 * pairs, features, x_CD.dtype)
    if blocks is None:
        sum_2PD = torch.bmm(_reset(gates, read_PE), candidates_weight.mT)
        out_CD = torch.empty_like(sum_2PD).flatten(0, 1)
        arguments = (gates, sum_2PD, state_PE, candidates_bias, out_CD)
        _launch(gated_switch.update_forward, sum_2PD[0], *arguments, epilogue=epilogue, FAST=fast)
    else:
        sum_2PD = x_CD.new_empty(2, pairs if keep else 0, features)
        out_CD = state_PE.new_empty(2 * pairs, features)
        gated_switch.switch_forward[(2 * _ceil_div(pairs, blocks.rows),)](
            gates, read_PE, state_PE, candidates_weight, candidates_bias, sum_2PD, out_CD, seed, pairs,
            *epilogue.groups, D=features, KEEP=keep, FAST=fast, EVEN=pairs % blocks.rows == 0,
            BLOCK_P=blocks.rows, BLOCK_C=blocks.columns, **blocks.options, **epilogue.flags,
        )  # fmt: skip
    return (out_CD, gates, sum_2PD) if keep else (out_CD, *_two_empty(x_CD))


@_switch.register_fake
def _(x_CD: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (count, features), keep = x_CD.shape, rest[-1]
    out_CD = torch.empty_like(x_CD, memory_format=torch.contiguous_format)
    if not keep:
        return out_CD, *_two_empty(x_CD)
    return out_CD, x_CD.new_empty(count // 2, 6 * features), x_CD.new_empty(2, count // 2, features)


@torch.library.custom_op("riffle::switch_backward", mutates_args=("gates",))
def _switch_backward(
    grad_out_CD: Tensor,
    gates: Tensor | None,
    sum_2PD: Tensor | None,
    x_CD: Tensor,
    skip_CD: Tensor | None,
    skip_scale_D: Tensor | None,
    weights: Tensor,
    seed: Tensor | None,
    sequences: list[int],
    cells: list[int],
    dropout: list[float],
    shuffle: int,
    swap: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    epilogue = _epilogue(sequences, cells, dropout, seed, shuffle, swap)
    gates_weight, gates_bias, candidates_weight, candidates_bias = _unpack(weights, x_CD.shape[1])
    state_PE, fast = _pairs(x_CD), _fast(x_CD)
    read_PE = _add_skip(state_PE, skip_CD, skip_scale_D)
    kept = gates is not None
    if gates is None or sum_2PD is None:
        gates = torch.addmm(gates_bias, read_PE, gates_weight.t())
        product_2PE = _reset(gates, read_PE)
        sum_2PD = torch.bmm(product_2PE, candidates_weight.mT)
    else:
        product_2PE = read_PE.new_empty(2, *read_PE.shape)
    # The two launches below overwrite `gates` by the gradients of the gates before the sigmoid: u, then r.
    grad_biases = _tile_sums(state_PE, gates.shape[1] + state_PE.shape[1])
    grad_sum_2PD, grad_state_PE = torch.empty_like(sum_2PD), torch.empty_like(state_PE)
    _launch(
        gated_switch.update_backward, sum_2PD[0], gates, sum_2PD, state_PE, candidates_bias, grad_out_CD.contiguous(),
        grad_sum_2PD, grad_state_PE, grad_biases, epilogue=epilogue, FAST=fast,
    )  # fmt: skip
    grad_product_2PE = torch.bmm(grad_sum_2PD, candidates_weight)
    grad_read_PE = grad_state_PE if skip_CD is None else torch.empty_like(read_PE)
    arguments = (gates, read_PE, product_2PE, grad_product_2PE, grad_read_PE)
    add = skip_CD is None
    _launch(gated_switch.reset_backward, read_PE, *arguments, grad_biases, ADD=add, PRODUCT=kept, FAST=fast)
    grad_read_PE.addmm_(gates, gates_weight)
    grad_parameters = torch.empty_like(weights, dtype=torch.float32)
    grads = _unpack(grad_parameters, x_CD.shape[1])
    _weight_gradient(gates, read_PE, grads.gates_weight)
    for i in range(2):
        _weight_gradient(grad_sum_2PD[i], product_2PE[i], grads.candidates_weight[i])
    torch.sum(grad_biases, dim=0, out=grad_parameters[-grad_biases.shape[1] :])
    if skip_CD is None or skip_scale_D is None:
        return grad_read_PE.view_as(x_CD), *_two_empty(x_CD), grad_parameters
    grad_CD, grad_read_CD, skip_CD = grad_state_PE.view_as(x_CD), grad_read_PE.view_as(x_CD), skip_CD.contiguous()
    grad_skip_CD, grad_scales = torch.empty_like(grad_read_CD), _tile_sums(skip_CD, skip_CD.shape[1])
    arguments = (skip_CD, skip_scale_D, grad_read_CD, grad_CD, grad_skip_CD)
    _launch(gated_switch.skip_backward, skip_CD, *arguments, grad_scales)
    return grad_CD, grad_skip_CD, grad_scales.sum(0), grad_parameters


@_switch_backward.register_fake
def _(
    grad_out_CD: Tensor, gates: Tensor | None, sum_2PD: Tensor | None, x_CD: Tensor, skip_CD: Tensor | None,
    skip_scale_D: Tensor | None, weights: Tensor, *rest: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    grad_CD = torch.empty_like(x_CD, memory_format=torch.contiguous_format)
    skips = _two_empty(x_CD) if skip_scale_D is None else (torch.empty_like(grad_CD), torch.empty_like(skip_scale_D))
    return grad_CD, *skips, torch.empty_like(weights, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.sequences, ctx.cells, ctx.dropout, ctx.shuffle, ctx.swap, keep = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # the gates have no gradient, and zeros of their size would be large
    ctx.spent = False
    ctx.save_for_backward(*(output[1:] if keep else (None, None)), *tensors[:3], *tensors[4:])


def _backward(ctx: Any, grad_out_CD: Tensor | None, *_: None) -> tuple[Any, ...]:
    if grad_out_CD is None:
        return (None,) * 12
    if ctx.spent:
        raise RuntimeError(
            "the gates kept by recompute=False serve one backward pass, which overwrites them: "
            "to go back through the same graph twice, build the network with recompute=True"
        )
    gates, sum_2PD, *tensors = ctx.saved_tensors
    ctx.spent = gates is not None
    grad_x, grad_skip, grad_scale, grad_parameters = torch.ops.riffle.switch_backward(
        grad_out_CD, gates, sum_2PD, *tensors, ctx.sequences, ctx.cells, ctx.dropout, ctx.shuffle, ctx.swap
    )
    if tensors[1] is None:
        grad_skip = grad_scale = None
    return (grad_x, grad_skip, grad_scale, grad_parameters, *[None] * 8)


_switch.register_autograd(_backward, setup_context=_setup_context)


class _Epilogue(NamedTuple):
    """What follows the candidates' product: dropout by group, the copied pair, and the shuffle as a store address."""

    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
    """For each group of sequences its first pair, the cells of a sequence and the dropout rate."""
    seed: Tensor | None
    """Seed of the dropout; None for none."""
    flags: dict[str, Any]
    """What the kernels are compiled for."""


def _epilogue(
    sequences: list[int], cells: list[int], dropout: list[float], seed: Tensor | None, shuffle: int, swap: bool
) -> _Epilogue:
    pairs = (count * length // 2 for count, length in zip(sequences, cells, strict=True))
    groups = ((0, *accumulate(pairs))[:-1], tuple(cells), tuple(dropout))
    return _Epilogue(groups, seed, {"SHUFFLE": shuffle, "SWAP": swap, "DROPOUT": seed is not None})


def _launch(kernel: Any, tiled: Tensor, *arguments: Tensor, epilogue: _Epilogue | None = None, **flags: bool) -> None:
    """Launch a kernel that makes one pass over memory, on tiles of a matrix of the shape of ``tiled``."""
    rows, width = tiled.shape
    if rows == 0:
        return
    blocks = pass_blocks(width)
    seed, groups, more = ((), (), {}) if epilogue is None else ((epilogue.seed,), epilogue.groups, epilogue.flags)
    # A pass with an epilogue goes over a cell's columns, for both cells of a pair.
    kernel[(_ceil_div(rows, blocks.rows) * _ceil_div(width, blocks.columns), 1 if epilogue is None else 2)](
        *arguments, *seed, rows, *groups, WIDTH=width,
        EVEN=rows % blocks.rows == 0 and width % blocks.columns == 0,
        BLOCK_P=blocks.rows, BLOCK_C=blocks.columns, **blocks.options, **flags, **more,
    )  # fmt: skip


def _reset(gates: Tensor, read_PE: Tensor) -> Tensor:
    """What the candidates read, r^i * read, as ``[2, P, E]``."""
    product_2PE = read_PE.new_empty(2, *read_PE.shape)
    _launch(gated_switch.reset_forward, read_PE, gates, read_PE, product_2PE, FAST=_fast(read_PE))
    return product_2PE


def _add_skip(state_PE: Tensor, skip_CD: Tensor | None, skip_scale_D: Tensor | None) -> Tensor:
    """What gates and candidates read, state + scale * skip."""
    if skip_CD is None or skip_scale_D is None:
        return state_PE
    state_CD = state_PE.view_as(skip_CD)
    read_CD = torch.empty_like(state_CD)
    _launch(gated_switch.skip_forward, state_CD, state_CD, skip_CD.contiguous(), skip_scale_D, read_CD)
    return read_CD.view_as(state_PE)


def _unpack(flat: Tensor, features: int) -> SwitchWeights:
    """A unit's parameters as views of the tensor that :func:`pack` makes of them."""
    pair = 2 * features
    gates_weight, candidates_weight, gates_bias, candidates_bias = flat.split(
        [3 * pair * pair, pair * pair, 3 * pair, pair]
    )
    return SwitchWeights(
        gates_weight.view(3 * pair, pair),
        gates_bias,
        candidates_weight.view(2, features, pair),
        candidates_bias.view(2, features),
    )


def _pairs(x_CD: Tensor) -> Tensor:
    return x_CD.contiguous().view(-1, 2 * x_CD.shape[1])


def _weight_gradient(grad: Tensor, read: Tensor, out: Tensor) -> None:
    """The gradient of a weight, summed over all pairs in float32."""
    if grad.dtype == torch.float32:
        torch.mm(grad.t(), read, out=out)
    else:
        torch.mm(grad.t(), read, out_dtype=torch.float32, out=out)


def _tile_sums(rows: Tensor, width: int) -> Tensor:
    """A row of float32 for each tile of a pass over ``rows``, to be summed over the tiles in a fixed order."""
    return torch.empty(_ceil_div(rows.shape[0], PASS_ROWS), width, dtype=torch.float32, device=rows.device)


def _two_empty(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two outputs that stay empty; an operator may not return the same tensor twice."""
    return x.new_empty(0), x.new_empty(0)


def _fast(x: Tensor) -> bool:
    """Whether tanh may be approximate: right to 11 bits, more than 16-bit numbers hold."""
    return x.dtype != torch.float32


def _ceil_div(size: int, block: int) -> int:
    """How many blocks hold ``size``; Triton's own function for it takes microseconds."""
    return -(-size // block)
