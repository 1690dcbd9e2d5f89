"""The gated switch layer and the shuffle after it as one differentiable operator, on the Triton kernels.

The cells of a layer lie one after the other, whatever sequences they come from: sequences of one length make a group,
longer ones first, and to the unit all their pairs are alike. A layer keeps its input for the backward pass, which
computes gates and candidates again, or keeps them as well. ``docs/kernels.md`` derives the backward pass.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs
# gates [P, 3E] before the sigmoid, sum_P2D: the candidates before tanh and without their bias
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.kernels.launches import Kept, UnitWeights, Workspace, aligned, forward_layer, keeps_sums
from riffle.kernels.layer_backward import UnitGradients, backward_layer
from riffle.kernels.layer_plan import LayerPlan, plan_layer, share_gradients
from riffle.kernels.reference import SwitchWeights


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
    noise: float = 0.0,
    recompute: bool = True,
) -> Tensor:
    """A switch layer on adjacent pairs, dropout or noise, and the shuffle after it.

    Args:
        x_CD: The cells of all sequences, one after the other.
        unit: The unit's parameters.
        sequences: How many sequences each group has.
        cells: How many cells each of a group's sequences has: even numbers, falling from group to group.
        shuffle: +1 unriffle, -1 riffle, 0 none.
        swap: Whether the copied pair exchanges its second halves.
        skip_CD: The cells the skip connection adds, unscaled.
        dropout: For each group, the share of output features set to zero; None for none.
        noise: In place of dropout, the standard deviation of the noise that outputs are multiplied by.
        recompute: Whether the backward pass computes gates and candidates again; False keeps them, for one backward
            pass.
    """
    assert sum(count * length for count, length in zip(sequences, cells, strict=True)) == x_CD.shape[0]
    assert sorted(cells, reverse=True) == list(cells), "longer sequences come first"
    rates = [noise] * len(cells) if noise else list(dropout or [0.0] * len(cells))
    seed = torch.randint(2**31, (1,), device=x_CD.device) if any(rates) else None
    skip_scale_D = None if skip_CD is None else unit.skip_scale
    keep = not recompute and torch.is_grad_enabled()
    out_CD, _, _ = _switch(
        x_CD, skip_CD, skip_scale_D, unit.parameters, unit.weights, seed, sequences, cells, rates, noise > 0, shuffle,
        swap, keep,
    )  # fmt: skip
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
    rates: list[float],
    noise: bool,
    shuffle: int,
    swap: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    x_CD, plan = aligned(x_CD), _plan(x_CD, sequences, cells, rates, noise, shuffle, swap, keep, skip_CD)
    kept = None
    if keep:
        sum_P2D = x_CD.new_empty(plan.pairs if plan.keep_sums else 0, 2, plan.features)
        kept = Kept(x_CD.new_empty(plan.pairs, 6 * plan.features), sum_P2D)
    skip_CD = None if skip_CD is None else aligned(skip_CD)
    unit = _unpack(weights, skip_scale_D, plan.features)
    out_CD = forward_layer(plan, x_CD, skip_CD, unit, seed, Workspace(x_CD), kept=kept, out_CD=None)
    return (out_CD, *(kept or _two_empty(x_CD)))


@_switch.register_fake
def _fake_switch(x_CD: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (count, features), keep = x_CD.shape, rest[-1]
    out_CD = torch.empty_like(x_CD, memory_format=torch.contiguous_format)
    if not keep:
        return out_CD, *_two_empty(x_CD)
    pairs = count // 2
    sum_P2D = x_CD.new_empty(pairs * int(keeps_sums(x_CD.dtype)), 2, features)
    return out_CD, x_CD.new_empty(pairs, 6 * features), sum_P2D


@torch.library.custom_op("riffle::switch_backward", mutates_args=())
def _switch_backward(
    grad_out_CD: Tensor,
    gates: Tensor | None,
    sum_P2D: Tensor | None,
    x_CD: Tensor,
    skip_CD: Tensor | None,
    skip_scale_D: Tensor | None,
    weights: Tensor,
    seed: Tensor | None,
    sequences: list[int],
    cells: list[int],
    rates: list[float],
    noise: bool,
    shuffle: int,
    swap: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kept = None if gates is None or sum_P2D is None else Kept(gates, sum_P2D)
    keep = kept is not None
    x_CD, plan = aligned(x_CD), _plan(x_CD, sequences, cells, rates, noise, shuffle, swap, keep, skip_CD)
    skip_CD = None if skip_CD is None else aligned(skip_CD)
    grad_CD, grad_skip_CD = torch.empty_like(x_CD), None if skip_CD is None else torch.empty_like(x_CD)
    grad_parameters = torch.zeros_like(weights, dtype=torch.float32)
    grad_scale_D = None if skip_scale_D is None else torch.zeros_like(skip_scale_D)
    pair = 2 * plan.features
    gates_weight, candidates_weight, biases = grad_parameters.split([3 * pair * pair, pair * pair, 4 * pair])
    candidates_weight = candidates_weight.view(2, plan.features, pair)
    backward_layer(
        plan, aligned(grad_out_CD), x_CD, None, skip_CD, _unpack(weights, skip_scale_D, plan.features), seed,
        Workspace(x_CD), kept=kept, share=share_gradients([plan], [0])[0], grad_CD=grad_CD, grad_skip_CD=grad_skip_CD,
        gradients=UnitGradients(gates_weight.view(3 * pair, pair), candidates_weight, biases, grad_scale_D),
    )  # fmt: skip
    if grad_skip_CD is None or grad_scale_D is None:
        return grad_CD, *_two_empty(x_CD), grad_parameters
    return grad_CD, grad_skip_CD, grad_scale_D, grad_parameters


@_switch_backward.register_fake
def _fake_switch_backward(
    grad_out_CD: Tensor, gates: Tensor | None, sum_P2D: Tensor | None, x_CD: Tensor, skip_CD: Tensor | None,
    skip_scale_D: Tensor | None, weights: Tensor, *rest: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    grad_CD = torch.empty_like(x_CD, memory_format=torch.contiguous_format)
    skips = _two_empty(x_CD) if skip_scale_D is None else (torch.empty_like(grad_CD), torch.empty_like(skip_scale_D))
    return grad_CD, *skips, torch.empty_like(weights, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.sequences, ctx.cells, ctx.rates, ctx.noise, ctx.shuffle, ctx.swap, keep = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # the gates have no gradient, and zeros of their size would be large
    ctx.save_for_backward(*(output[1:] if keep else (None, None)), *tensors[:3], *tensors[4:])


def _backward(ctx: Any, grad_out_CD: Tensor | None, *_: None) -> tuple[Any, ...]:
    if grad_out_CD is None:
        return (None,) * 13
    gates, sum_P2D, *tensors = ctx.saved_tensors
    grad_x, grad_skip, grad_scale, grad_parameters = torch.ops.riffle.switch_backward(
        grad_out_CD, gates, sum_P2D, *tensors, ctx.sequences, ctx.cells, ctx.rates, ctx.noise, ctx.shuffle, ctx.swap
    )
    if tensors[1] is None:
        grad_skip = grad_scale = None
    return (grad_x, grad_skip, grad_scale, grad_parameters, *[None] * 9)


_switch.register_autograd(_backward, setup_context=_setup_context)


def _plan(
    x_CD: Tensor, sequences: list[int], cells: list[int], rates: list[float], noise: bool, shuffle: int, swap: bool,
    keep: bool, skip_CD: Tensor | None,
) -> LayerPlan:  # fmt: skip
    flags = {"shuffle": shuffle, "swap": swap, "keep": keep, "skip": skip_CD is not None, "noise": noise}
    return plan_layer(
        tuple(sequences), tuple(cells), tuple(rates), x_CD.shape[1], x_CD.dtype, x_CD.device, **flags
    )  # fmt: skip


def _unpack(flat: Tensor, skip_scale_D: Tensor | None, features: int) -> UnitWeights:
    """A unit's parameters as views of the tensor that :func:`pack` makes of them."""
    pair = 2 * features
    gates, candidates, gates_bias, candidates_bias = flat.split([3 * pair * pair, pair * pair, 3 * pair, pair])
    gates, candidates = gates.view(3 * pair, pair), candidates.view(2, features, pair)
    return UnitWeights(
        gates, gates.t(), candidates, candidates.mT, gates_bias, candidates_bias.view(2, features), skip_scale_D
    )


def _two_empty(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two outputs that stay empty; an operator may not return the same tensor twice."""
    return x.new_empty(0), x.new_empty(0)
