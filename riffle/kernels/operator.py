"""A whole network on the Triton kernels as one differentiable operator, ``riffle::network``.

Called eagerly, its two passes run inside an ordinary :class:`torch.autograd.Function`. Compilers, exporters and whoever
else wants to see operators see ``riffle::network`` and ``riffle::network_backward``.
"""

# B = batch, N = length, D = features per cell, C = cells of all batches, T = rows of all layers' inputs
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from riffle.kernels import compilation
from riffle.kernels.graphs import GraphCache, Lease, find_cache
from riffle.kernels.passes import (
    Saved,
    backward,
    forward,
    gradient_sizes,
    network_weights,
    rounded,
    saved_rows,
    split_batches,
    weight_sizes,
)
from riffle.kernels.plan import (
    KEEP_GATES,
    KEEP_INPUTS,
    KEEP_NOTHING,
    KEEP_WHAT_FITS,
    NetworkPlan,
    NetworkSpec,
    layers_of,
    plan_network,
    used_units,
    what_to_keep,
)
from riffle.kernels.units import KERNELS
from riffle.shuffle import bits, padded_length

SECOND_DERIVATIVES = b'the fused kernels have no second derivatives: build the network with backend="reference"'


SCHEMA = 3
"""A number that changes with the operators' arguments and results, and is one of them: compilers keep code on disk, and
would otherwise find what they made for others."""
PLAIN = frozenset((Tensor, torch.nn.Parameter))
"""Tensors of any other type see the operators."""
_KEEP = {True: KEEP_INPUTS, False: KEEP_GATES, None: KEEP_WHAT_FITS}


def run_network(
    xs_BND: Sequence[Tensor],
    parameters: Sequence[Tensor],
    spec: NetworkSpec,
    *,
    dtype: torch.dtype,
    dropout: float = 0.0,
    noise: float = 0.0,
    recompute: bool | None = None,
    graphs: GraphCache | None = None,
) -> Tensor:
    """Map batches of sequences: the cells of all batches one after the other, ``[sum of B * N, D]``.

    Args:
        xs_BND: The batches, each of sequences of one length, longer ones first.
        parameters: Of every unit the matrix and bias of its gates, those of its candidates, those of its swap gate and
            the scale of its skip connection where it has them.
        spec: What network it is.
        dtype: In which the kernels compute.
        dropout: Of a layer's output features this share, divided by k, is set to zero.
        noise: In place of dropout, the standard deviation of the noise that a layer's output is multiplied by.
        recompute: Whether the backward pass computes gates and candidates again; None keeps the gates where they take
            little of the device's memory.
        graphs: Captured passes of this network, to be replayed where they can serve.
    """
    seed = torch.randint(2**31, (1,), device=xs_BND[0].device) if dropout or noise else None
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in (*xs_BND, *parameters))
    keep = _KEEP[recompute] if differentiable else KEEP_NOTHING
    if _wants_operators(xs_BND, parameters):
        # What is exported runs elsewhere: at lengths for which nothing is decided here, and without this cache.
        exporting = torch.compiler._is_exporting_flag  # is_exporting() is true in compiled code before torch 2.13
        keep = KEEP_INPUTS if exporting and keep == KEEP_WHAT_FITS else keep
        handle = graphs.handle if graphs is not None and torch.compiler.is_compiling() and not exporting else 0
        return _network(
            list(xs_BND), list(parameters), seed, *_flat(spec), dtype, dropout, noise, keep, handle, SCHEMA
        )[0]
    plan = _plan(xs_BND, spec, dtype, dropout, noise, keep, eager=True)
    if keep == KEEP_NOTHING:
        replayed = None if graphs is None else graphs.forward(plan, xs_BND, parameters, seed)
        return (replayed or forward(plan, xs_BND, network_weights(plan, parameters).units, seed))[0]
    return _Network.apply(plan, graphs, seed, *xs_BND, *parameters)


def _plan(
    xs_BND: Sequence[Tensor],
    spec: NetworkSpec,
    dtype: torch.dtype,
    dropout: float,
    noise: float,
    keep: int,
    eager: bool = False,
) -> NetworkPlan:
    batches, lengths = tuple([x_BND.shape[0] for x_BND in xs_BND]), tuple([x_BND.shape[1] for x_BND in xs_BND])
    x_BND = xs_BND[0]
    device = x_BND.device
    plan = plan_network(batches, lengths, x_BND.shape[2], x_BND.dtype, device, spec, dtype, dropout, noise, keep, eager)
    if x_BND.is_cuda and not plan.compiled:
        compilation.compile_ahead(plan, device, dropout=bool(dropout or noise))
    return plan


def _wants_operators(xs_BND: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
    """Whether operators are traced, transformed or intercepted."""
    if torch.compiler.is_compiling():
        return True
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None:
        return True
    return not PLAIN.issuperset(map(type, (*xs_BND, *parameters)))


class _Network(torch.autograd.Function):
    """The operator as eager autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any, plan: NetworkPlan, graphs: GraphCache | None, seed: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        count = len(plan.batches)
        xs_BND, parameters = tensors[:count], tensors[count:]
        ctx.plan, ctx.lease = plan, None
        replayed = None if graphs is None else graphs.forward(plan, xs_BND, parameters, seed)
        if replayed is not None:
            y_CD, passes = replayed
            ctx.lease = Lease(passes)
            ctx.save_for_backward(*parameters)
        else:
            ctx.weights = network_weights(plan, parameters).units
            y_CD, saved = forward(plan, xs_BND, ctx.weights, seed)
            ctx.sizes = [len(tensors) for tensors in saved]
            ctx.save_for_backward(*parameters, seed, *chain(*saved), *(xs_BND if plan.direct else ()))
        return y_CD

    @staticmethod
    def backward(ctx: Any, grad_CD: Tensor) -> tuple[Any, ...]:
        plan, lease, tensors = ctx.plan, ctx.lease, ctx.saved_tensors
        parameters = tensors[: len(ctx.needs_input_grad) - 3 - len(plan.batches)]
        once = not torch._C._autograd._get_current_graph_task_keep_graph()
        with torch.no_grad():
            if lease is None:
                seed, *rest = tensors[len(parameters) :]
                inputs, gates, sums = accumulate(ctx.sizes)
                saved = Saved(tuple(rest[:inputs]), tuple(rest[inputs:gates]), tuple(rest[gates:sums]))
                grads = backward(plan, grad_CD, rest[sums:], ctx.weights, seed, saved, overwrite=once)
            else:
                grads = lease.passes.backward(grad_CD, last=once)
            shapes = list(zip(plan.batches, plan.lengths, strict=True))
            gradients = _split_gradients(shapes, plan.kind, plan.scaled, plan.used, grads, parameters)
        needed = ctx.needs_input_grad[3:]
        gradients = [grad if wanted else None for grad, wanted in zip(gradients, needed, strict=True)]
        if torch.is_grad_enabled():
            gradients = _once_differentiable(gradients)
        return (None, None, None, *gradients)


def _split_gradients(
    shapes: Sequence[tuple[int, int]],
    kind: str,
    scaled: Sequence[bool],
    used: Sequence[tuple[bool, bool]],
    grads: tuple[Tensor, Tensor],
    parameters: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradient of each batch and of each parameter; None for parameters that took no part."""
    grad_CD, grad_parameters = grads
    features = grad_CD.shape[1]
    gradients: list[Tensor | None] = [*split_batches(grad_CD, shapes)]
    dtype = parameters[0].dtype
    flat = grad_parameters if grad_parameters.dtype == dtype else grad_parameters.to(dtype)
    sizes: list[int] = []
    for first, second, biases, vector in zip(*[iter(gradient_sizes(features, kind, scaled))] * 4, strict=True):
        sizes += (first, second, biases - 2 * features, 2 * features, vector)
    pieces = flat.split_with_sizes(sizes)
    position = 0
    for unit, (takes_part, skips) in enumerate(used):
        first_matrix, second_matrix, first_bias, second_bias, whole = pieces[5 * unit : 5 * unit + 5]
        further: tuple[Tensor, ...] = ()
        if KERNELS[kind].joined:
            matrix, bias = parameters[position].numel(), parameters[position + 1].numel()
            further = first_matrix[matrix:], first_bias[bias:]
            first_matrix, first_bias = first_matrix[:matrix], first_bias[:bias]
        matrices = (first_matrix, first_bias, second_matrix, second_bias, *further)
        for gradient in (*matrices, *((whole,) if scaled[unit] else ())):
            parameter = parameters[position]
            position += 1
            if not (skips if gradient is whole else takes_part):
                gradients.append(None)
                continue
            if gradient is whole and parameter.numel() != whole.numel():
                gradient = whole[: parameter.numel()]
            gradient = gradient.view(parameter.shape)
            gradients.append(gradient if parameter.dtype == dtype else gradient.to(parameter.dtype))
    return gradients


def _once_differentiable(gradients: list[Tensor | None]) -> list[Tensor | None]:
    """Gradients that raise an error when they are differentiated again."""
    error: Any = torch._C._functions.DelayedError(SECOND_DERIVATIVES, len(gradients))
    return list(error(*[None if grad is None else grad.detach().requires_grad_() for grad in gradients]))


def _flat(spec: NetworkSpec) -> tuple[Any, ...]:
    """A network's spec as an operator's arguments."""
    plain = (spec.blocks, spec.sharing, spec.benes, spec.skips)  # torch 2.8 does not trace a slice of a named tuple
    return (*plain, ",".join(spec.units), list(spec.swaps), list(spec.scaled), spec.kind, spec.pad)


def _spec(
    blocks: int, sharing: Any, benes: bool, skips: bool, units: str, swaps: Any, scaled: Any, kind: str, pad: Any
) -> NetworkSpec:
    return NetworkSpec(blocks, sharing, benes, skips, tuple(units.split(",")), tuple(swaps), tuple(scaled), kind, pad)


@torch.library.custom_op("riffle::network", mutates_args=())
def _network(
    xs_BND: list[Tensor],
    parameters: list[Tensor],
    seed: Tensor | None,
    blocks: int,
    sharing: str,
    benes: bool,
    skips: bool,
    units: str,
    swaps: list[bool],
    scaled: list[bool],
    kind: str,
    pad: str,
    dtype: torch.dtype,
    dropout: float,
    noise: float,
    keep: int,
    graphs: int,
    schema: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    spec = _spec(blocks, sharing, benes, skips, units, swaps, scaled, kind, pad)
    plan = _plan(xs_BND, spec, dtype, dropout, noise, keep)
    cache = find_cache(graphs)
    replayed = None if cache is None else cache.forward(plan, xs_BND, parameters, seed)
    # Outputs may alias neither inputs nor each other, and their sizes are those that the fake has.
    keeps_cast = keep and _is_cast(parameters, kind, dtype)
    if replayed is None:
        weights = network_weights(plan, parameters)
        y_CD, saved = forward(plan, xs_BND, weights.units, seed)
        cast = y_CD.new_empty(0, dtype=dtype) if not keeps_cast or weights.cast is None else weights.cast
        return y_CD, saved.inputs[0], saved.gates[0], saved.sums[0], cast, y_CD.new_empty(0)
    y_CD, passes = replayed
    ticket = y_CD.new_empty(0)
    passes.hold_for(ticket)
    # Aliases of what the next replay overwrites, which comes when the ticket is gone.
    inputs_TD, gates, sums = (tensors[0].detach() for tensors in passes.saved)
    captured = passes.weights.cast
    cast = y_CD.new_empty(0, dtype=dtype) if not keeps_cast or captured is None else captured.detach()
    return y_CD, inputs_TD, gates, sums, cast, ticket


def _is_cast(parameters: Sequence[Tensor], kind: str, dtype: torch.dtype) -> bool:
    """Whether parameters are copied, by cast or to lie together, so that the copy is kept for the backward pass."""
    return parameters[0].dtype != dtype or KERNELS[kind].joined


@_network.register_fake
def _fake_network(
    xs_BND: list[Tensor], parameters: list[Tensor], seed: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    spec, (dtype, _, _, keep, _, _) = _spec(*rest[:-6]), rest[-6:]
    x_BND, features = xs_BND[0], xs_BND[0].shape[2]
    y_CD = x_BND.new_empty(sum(x_BND.shape[0] * x_BND.shape[1] for x_BND in xs_BND), features)
    rows, pairs = _saved_shape(xs_BND, spec, dtype) if keep else (0, 0)
    batches, lengths = zip(*[x_BND.shape[:2] for x_BND in xs_BND], strict=True)
    kept = what_to_keep(keep, batches, lengths, features, x_BND.device, spec, dtype)
    pairs, kernels = pairs if kept == KEEP_GATES else 0, KERNELS[spec.kind]
    sizes = ((rows, features), (pairs, kernels.first * features), (2 * pairs * kernels.keeps_sums(dtype), features))
    cast = 0
    if keep and _is_cast(parameters, spec.kind, dtype):
        cast = len(spec.units) * sum(rounded(size) for size in weight_sizes(features, spec.kind))
    saved = [x_BND.new_empty(size, dtype=dtype) for size in (*sizes, (cast,) if cast else (0,))]
    return (y_CD, *saved, x_BND.new_empty(0))


def _saved_shape(xs_BND: Sequence[Tensor], spec: NetworkSpec, dtype: torch.dtype) -> tuple[int, int]:
    """The rows of all layers' inputs, and the pairs of all layers; of one batch for a symbolic shape as well."""
    if len(xs_BND) > 1:
        batches, lengths = (tuple(int(x_BND.shape[axis]) for x_BND in xs_BND) for axis in (0, 1))
        features, device = int(xs_BND[0].shape[2]), xs_BND[0].device
        plan = plan_network(batches, lengths, features, xs_BND[0].dtype, device, spec, dtype, 0.0, 0.0, KEEP_INPUTS)
        return saved_rows(plan), plan.pairs
    length = xs_BND[0].shape[1]
    layers, cells = len(layers_of(spec, bits(length))), xs_BND[0].shape[0] * padded_length(length, spec.pad)
    return rounded(cells) * layers, cells // 2 * layers


@torch.library.custom_op("riffle::network_backward", mutates_args=())
def _network_backward(
    grad_CD: Tensor,
    parameters: list[Tensor],
    seed: Tensor | None,
    inputs_TD: Tensor,
    gates: Tensor,
    sums: Tensor,
    cast: Tensor,
    ticket: Tensor,
    batches: list[int],
    lengths: list[int],
    x_dtype: torch.dtype,
    blocks: int,
    sharing: str,
    benes: bool,
    skips: bool,
    units: str,
    swaps: list[bool],
    scaled: list[bool],
    kind: str,
    pad: str,
    dtype: torch.dtype,
    dropout: float,
    noise: float,
    keep: int,
    graphs: int,
) -> tuple[Tensor, Tensor]:
    cache = find_cache(graphs)
    passes = None if cache is None else cache.held(inputs_TD)
    if passes is not None and not torch._C._autograd._get_current_graph_task_keep_graph():
        return passes.backward(grad_CD, last=True)
    spec = _spec(blocks, sharing, benes, skips, units, swaps, scaled, kind, pad)
    shape = (tuple(batches), tuple(lengths), grad_CD.shape[1])
    plan = plan_network(*shape, x_dtype, grad_CD.device, spec, dtype, dropout, noise, keep)
    weights = network_weights(plan, parameters, cast if cast.numel() else None)
    return backward(plan, grad_CD, (), weights.units, seed, Saved((inputs_TD,), (gates,), (sums,)))


@_network_backward.register_fake
def _fake_network_backward(grad_CD: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    x_dtype, scaled, kind = rest[9], rest[16], rest[17]
    size = sum(gradient_sizes(grad_CD.shape[1], kind, scaled))
    return grad_CD.new_empty(grad_CD.shape, dtype=x_dtype), grad_CD.new_empty(size, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    xs_BND, parameters, seed, *spec, ctx.dtype, ctx.dropout, ctx.noise, ctx.keep, ctx.graphs, _ = inputs
    ctx.spec, ctx.x_dtype = spec, xs_BND[0].dtype
    ctx.shapes = [(x_BND.shape[0], x_BND.shape[1]) for x_BND in xs_BND]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(seed, *output[1:], *parameters)


def _backward(ctx: Any, grad_CD: Tensor | None, *_: None) -> tuple[Any, ...]:
    count = len(ctx.shapes)
    seed, inputs_TD, gates, sums, cast, ticket, *parameters = ctx.saved_tensors
    unused = (None,) * 16
    if grad_CD is None:
        return ([None] * count, [None] * len(parameters), *unused)
    batches, lengths = map(list, zip(*ctx.shapes, strict=True))
    grads = _network_backward(
        grad_CD, parameters, seed, inputs_TD, gates, sums, cast, ticket, batches, lengths, ctx.x_dtype,
        *ctx.spec, ctx.dtype, ctx.dropout, ctx.noise, ctx.keep, ctx.graphs,
    )  # fmt: skip
    spec = _spec(*ctx.spec)
    used = used_units(spec, tuple(bits(length) for length in lengths))
    gradients = _split_gradients(ctx.shapes, spec.kind, spec.scaled, used, grads, parameters)
    return (gradients[:count], gradients[count:], *unused)


_network.register_autograd(_backward, setup_context=_setup_context)
