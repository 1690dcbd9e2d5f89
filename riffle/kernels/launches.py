"""The launches of one switch layer, forward and backward: plain functions on tensors that fill tensors they are given.

The products over all pairs are the library's, what lies between them are the passes of ``gated_switch.py``, and
``docs/kernels.md`` derives the backward pass. What depends on a layer's shape alone is planned once
(:mod:`riffle.kernels.layer_plan`); buffers that only one layer at a time needs are shared by all layers of a call
(:class:`Workspace`). There is no dispatcher and no autograd here:
:mod:`riffle.kernels.operator` and :mod:`riffle.kernels.fused` make operators of it.

Every tensor is contiguous and begins at a multiple of 16 bytes, so that a kernel compiled once serves every call.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs
# state: the pairs, read: the pairs plus the skip connection, gates [P, 3E] before the sigmoid and without their bias,
# product_P2E: r^i * read, sums [P, 2, D]: the candidates before tanh and without their bias
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels import gated_switch

if TYPE_CHECKING:
    from riffle.kernels.layer_plan import GradientShare, LayerPlan

_runtime = triton.knobs.runtime
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


class SkipGradient(NamedTuple):
    """What goes back through a skip connection to where it began."""

    grad_read: Tensor
    """``[C, D]``: the gradient of what the later layer read."""
    scale: Tensor
    """``[D]``, in float32."""
    grad_scale: Tensor
    """``[D]``: where the gradient of the scale adds up, in float32."""


def unit_weights(
    gates: Tensor, gates_bias: Tensor, candidates: Tensor, candidates_bias: Tensor, skip_scale: Tensor | None
) -> UnitWeights:
    """The parameters of a unit as its launches take them."""
    return UnitWeights(gates, gates.t(), candidates, candidates.mT, gates_bias, candidates_bias, skip_scale)


def unit_gradients(gates: Tensor, candidates: Tensor, biases: Tensor, skip_scale: Tensor | None) -> UnitGradients:
    """Tensors for a unit's gradients as its launches take them."""
    pair = biases.numel() // 4
    scale_D = None if skip_scale is None else skip_scale[: pair // 2]
    return UnitGradients(gates.view(3 * pair, pair), candidates.view(2, pair // 2, pair), biases, scale_D)


class Kept(NamedTuple):
    """What the forward pass leaves for the backward pass, where that does not compute it again."""

    gates: Tensor
    """``[P, 3E]``."""
    sums: Tensor | None
    """``[P, 2, D]``, where the plan keeps them."""


def keeps_sums(dtype: torch.dtype) -> bool:
    """Whether a layer's candidates are kept or formed again: from its output they come too inexactly in float32."""
    return dtype == torch.float32


class Workspace:
    """Buffers that the layers of one call use one after the other: a name has the same memory in each of them.

    Args:
        cells: Whose dtype and device the buffers have.
        side: A stream for the products of weights' gradients, which nobody waits for until :meth:`join`; None launches
            them among all others.
    """

    def __init__(self, cells: Tensor, side: torch.cuda.Stream | None = None) -> None:
        self.dtype, self.device, self.side = cells.dtype, cells.device, side
        self.read: dict[str, torch.cuda.Event] = {}
        """For each set of buffers that products on the side read, when they have."""
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}
        self.views: dict[tuple[Any, ...], Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer of the given shape, of unknown content; ``dtype`` is that of the cells where None."""
        dtype = dtype or self.dtype
        view = self.views.get((name, dtype, shape))
        if view is None:
            size = torch.Size(shape).numel()
            buffer = self.buffers.get((name, dtype))
            if buffer is None or buffer.numel() < size:
                self.views = {key: view for key, view in self.views.items() if key[:2] != (name, dtype)}
                self.buffers.pop((name, dtype), None)
                buffer = self.buffers[name, dtype] = torch.empty(size, dtype=dtype, device=self.device)
            view = self.views[name, dtype, shape] = buffer[:size].view(shape)
        return view

    def set_of(self, share: GradientShare) -> str:
        """The set of buffers in which layers leave what products sum: on the side, the next ones take the other set."""
        if self.side is None:
            return ""
        name = f" {share.number % 2}"
        if share.first == 0 and name in self.read:
            self.read.pop(name).wait()
        return name

    @contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Launch what reads a set of buffers on the side, if there is one."""
        if self.side is None:
            yield
            return
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield
            self.read[name] = self.side.record_event()

    def join(self) -> None:
        """Wait for what was launched on the side."""
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)

    def release(self, name: str) -> None:
        """Let a buffer go, where memory is worth more than the time to allocate it again."""
        self.buffers = {key: buffer for key, buffer in self.buffers.items() if key[0] != name}
        self.views = {key: view for key, view in self.views.items() if key[0] != name}


class Launch:
    """One launch of a Triton kernel: all that is the same from call to call is put together once.

    Binding arguments anew costs the host several times what the launch itself does. So the kernel that the first call
    compiled is kept and started directly. Triton's interpreter compiles none, and every call goes through it.
    """

    __slots__ = ("compiled", "constants", "grid", "kernel", "numbers", "trailing")
    kernels: ModuleType = gated_switch

    def __init__(self, kernel: str, grid: tuple[int, ...], *numbers: Any, **constants: Any) -> None:
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self.compiled: Any = None
        self.trailing: tuple[Any, ...] = ()

    def __call__(self, *tensors: Any) -> None:
        """Launch it on these tensors or descriptors of tensors or None, where there is anything to do."""
        if self.grid[0] == 0:
            return
        compiled = self.compiled
        if compiled is None or _hooked():
            kernel = getattr(self.kernels, self.kernel)
            self.compiled = kernel[self.grid](*tensors, *self.numbers, **self.constants)
            if self.compiled is not None:
                names = kernel.arg_names[len(tensors) + len(self.numbers) :]
                self.trailing = (*self.numbers, *(self.constants[name] for name in names))
            return
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        # Addresses instead of tensors: of those the launcher would ask the driver.
        addresses = [tensor.data_ptr() if isinstance(tensor, Tensor) else tensor for tensor in tensors]
        compiled.run(
            *self.grid, stream, compiled.function, compiled.packed_metadata, None, None, None,
            *addresses, *self.trailing,
        )  # fmt: skip


def _hooked() -> bool:
    """Whether somebody, such as a profiler, wants to hear of every launch."""
    enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    # A chain of calls, or in older versions of Triton a function or None.
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


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
    if plan.layer_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        plan.layer_forward[skip_CD is not None, kept is not None](
            weights.gates, weights.candidates, weights.gates_bias, weights.candidates_bias, state_PE, skip_CD,
            weights.skip_scale, None if kept is None else kept.gates, out_CD, seed,
        )  # fmt: skip
        return out_CD
    read_PE = _add_skip(plan, state_PE, skip_CD, weights, workspace)
    gates = workspace("gates", pairs, 6 * features) if kept is None else kept.gates
    torch.mm(read_PE, weights.gates_t, out=gates)
    if plan.switch_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        plan.switch_forward(
            gates, weights.gates_bias, read_PE, state_PE, weights.candidates, weights.candidates_bias, out_CD, seed
        )  # fmt: skip
        return out_CD
    sums = None if kept is None or not plan.keep_sums else kept.sums
    if sums is None:
        sums = workspace("sums", pairs, 2, features)
    product_P2E = workspace("product", pairs, 2, 2 * features)
    _candidates(plan, gates, read_PE, weights, product_P2E, sums)
    if out_CD is None:
        del product_P2E
        workspace.release("product")
        out_CD = torch.empty_like(x_CD)
    plan.update_forward(gates, weights.gates_bias, sums, state_PE, weights.candidates_bias, out_CD, seed)
    return out_CD


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
            ``out_CD``, which nobody needs any more.
        skip_gradient: Added to the gradient of the input, of a layer without a skip connection of its own.
    """
    pairs, features = plan.pairs, plan.features
    pair, joined, here = 2 * features, skip_CD is None, slice(share.first, share.first + plan.pairs)
    state_PE, grad_state_PE = x_CD.view(pairs, pair), grad_CD.view(pairs, pair)
    half = workspace.set_of(share)
    all_grad_gates = workspace("gates" + half, share.pairs, 3 * pair)
    all_grad_sums = workspace("grad sums" + half, share.pairs, 2, features)
    all_products = workspace("product" + half, share.pairs, 2, pair)
    all_tile_sums = workspace("tile sums" + half, share.summing_tiles, 5 * pair, dtype=torch.float32)
    tile_sums = all_tile_sums[share.first_summing :]
    alone = share.pairs == pairs
    all_read = state_PE if joined and alone else workspace("read" + half, share.pairs, pair)
    grad_gates, grad_sums, product_P2E = all_grad_gates[here], all_grad_sums[here], all_products[here]
    formed = out_CD is None and (kept is None or not plan.keep_sums)
    read_PE = state_PE
    if skip_CD is not None and (kept is None or formed):
        read_PE = all_read[here]
        plan.skip_forward(state_PE, skip_CD, weights.skip_scale, read_PE)
    # The gradients of the gates before the sigmoid take the place of the gates, unless these were kept.
    gates, sums = (grad_gates, None) if kept is None else kept
    if kept is None:
        torch.mm(read_PE, weights.gates_t, out=gates)
    if formed:
        formed_sums = sums = workspace("sums", pairs, 2, features)
        _candidates(plan, gates, read_PE, weights, product_P2E, formed_sums)
    plan.update_backward[out_CD is not None, grad_more_CD is not None](
        gates, weights.gates_bias, grad_gates, sums, out_CD, state_PE, weights.candidates_bias, grad_out_CD,
        grad_more_CD, grad_sums, grad_state_PE, tile_sums, seed,
    )  # fmt: skip
    grad_product_P2E = workspace("grad product", pairs, 2, pair)
    torch.bmm(grad_sums.transpose(0, 1), weights.candidates, out=grad_product_P2E.transpose(0, 1))
    grad_read_PE = grad_state_PE
    if not joined:
        grad_read_PE = workspace("grad read", pairs, pair) if grad_read_CD is None else grad_read_CD.view(pairs, pair)
    more, more_scale, grad_scale = skip_gradient or (None, None, None)
    adds_skip = not joined and read_PE is state_PE
    plan.reset_backward[joined, more is not None, not formed, adds_skip, adds_skip or (joined and not alone)](
        gates, weights.gates_bias, grad_gates, read_PE, skip_CD, weights.skip_scale, all_read[here], product_P2E,
        grad_product_P2E, grad_read_PE, more, more_scale, tile_sums,
    )  # fmt: skip
    grad_read_PE.addmm_(grad_gates, weights.gates)
    if skip_CD is not None and grad_read_CD is None:
        grad_scale = gradients.skip_scale
        plan.skip_backward(skip_CD, weights.skip_scale, grad_read_PE, grad_CD, grad_skip_CD, tile_sums)
    if not share.last:
        return
    with workspace.aside(half):
        add_weight_gradient(all_grad_gates, all_read, gradients.gates)
        for i in range(2):
            add_weight_gradient(all_grad_sums[:, i], all_products[:, i], gradients.candidates[i])
        gradients.biases.add_(all_tile_sums[:, : 4 * pair].sum(0))
        if grad_scale is not None:
            grad_scale.add_(all_tile_sums[:, 4 * pair :].sum(0).view(2, features).sum(0))


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


def add_weight_gradient(grad: Tensor, read: Tensor, out: Tensor) -> None:
    """Add the gradient of a weight, summed over all pairs in float32."""
    if grad.dtype == torch.float32:
        out.addmm_(grad.t(), read)
    else:
        torch.addmm(out, grad.t(), read, out_dtype=torch.float32, out=out)


def aligned(x: Tensor) -> Tensor:
    """``x`` as the launches want it, copied where it does not lie so."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNMENT == 0 else x.clone()
