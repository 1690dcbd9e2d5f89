"""The launches of one switch layer, forward and backward: plain functions on tensors that fill tensors they are given.

The products over all pairs are the library's, what lies between them are the passes of ``gated_switch.py``, and
``docs/kernels.md`` derives the backward pass. What depends on a layer's shape alone is planned once
(:mod:`riffle.kernels.layer_plan`); buffers that only one layer at a time needs are shared by all layers of a call
(:class:`Workspace`). There is no dispatcher and no autograd here:
:mod:`riffle.kernels.operator` and :mod:`riffle.kernels.fused` make operators of it.

Every tensor is contiguous and begins at a multiple of 16 bytes, so that a kernel compiled once serves every call.
"""

# C = cells of all groups, D = features per cell, E = 2 * D features per pair, P = C // 2 pairs, G = gates: 3, or 4 with
# a swap gate; state: the pairs, read: the pairs plus the skip connection, gates [P, G * E] before the sigmoid, without
# their bias, product_P2E: r^i * read, sums [P, 2, D]: the candidates before tanh and without their bias
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch import Tensor

from riffle.kernels import gated_switch

if TYPE_CHECKING:
    from riffle.kernels.layer_backward import ShareBuffers
    from riffle.kernels.layer_plan import GradientShare, LayerPlan

_runtime = triton.knobs.runtime
DIRECT_ARGUMENTS = "iiiKKppOOOOOO"
"""What Triton's launchers in C take before a kernel's arguments: grid, stream, function, cooperative launch, dependent
launch, two scratch buffers, metadata of kernel and launch, two hooks."""
ALIGNMENT = 16
"""Bytes at whose multiples every tensor begins."""


class UnitWeights(NamedTuple):
    """A unit's parameters in the dtype of the cells, with the transposes that the products read."""

    gates: Tensor
    """``[G * E, E]``."""
    gates_t: Tensor
    candidates: Tensor
    """``[2, D, E]``."""
    candidates_t: Tensor
    gates_bias: Tensor
    """``[G * E]``."""
    candidates_bias: Tensor
    """``[2, D]``."""
    skip_scale: Tensor | None
    """``[D]``, in float32."""


def unit_weights(
    gates: Tensor, gates_bias: Tensor, candidates: Tensor, candidates_bias: Tensor, skip_scale: Tensor | None
) -> UnitWeights:
    """The parameters of a unit as its launches take them."""
    return UnitWeights(gates, gates.t(), candidates, candidates.mT, gates_bias, candidates_bias, skip_scale)


class Kept(NamedTuple):
    """What the forward pass leaves for the backward pass, where that does not compute it again."""

    gates: Tensor
    """``[P, G * E]``."""
    sums: Tensor | None
    """``[P, 2, D]``, where the plan keeps them."""


def keeps_sums(dtype: torch.dtype) -> bool:
    """Whether a layer's candidates are kept or formed again: from its output they come too inexactly in float32."""
    return dtype == torch.float32


class Workspace:
    """Buffers that the layers of one call use one after the other: a name has the same memory in each of them.

    Args:
        cells: Whose dtype and device the buffers have.
        sides: Side streams for the products of weights' gradients, until :meth:`join`; without any, these run on the
            main stream.
    """

    def __init__(self, cells: Tensor, sides: Sequence[torch.cuda.Stream] = ()) -> None:
        self.dtype, self.device, self.sides = cells.dtype, cells.device, sides
        self.read: dict[str, list[torch.cuda.Event]] = {}
        """For each set of buffers, events after which products on side streams have read it."""
        self.share: ShareBuffers | None = None
        """Of the layers that share gradients now."""
        self.shares: dict[str, ShareBuffers | None] = {}
        """The last one of each set of buffers."""
        self.waited = False
        """Whether the first of these layers had to wait for a side stream."""
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

    def take_set(self, share: GradientShare) -> str:
        """Which of two sets of buffers these layers fill, since side streams may still read the other one."""
        if not self.sides:
            return ""
        name = f" {share.number % 2}"
        events = self.read.pop(name, []) if share.place == 0 else []
        self.waited = bool(events)
        for event in events:
            event.wait()
        return name

    @contextmanager
    def aside(self, name: str, number: int = 0) -> Iterator[None]:
        """Run launches that read a set of buffers on the side stream of this number, if there are side streams."""
        if not self.sides:
            yield
            return
        side = self.sides[number % len(self.sides)]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            yield
            self.read.setdefault(name, []).append(side.record_event())

    def join(self) -> None:
        """Wait for the side streams."""
        for side in self.sides:
            torch.cuda.current_stream().wait_stream(side)

    def release(self, name: str) -> None:
        """Free a buffer, where memory matters more than the time to allocate it again."""
        self.buffers = {key: buffer for key, buffer in self.buffers.items() if key[0] != name}
        self.views = {key: view for key, view in self.views.items() if key[0] != name}


class Launch:
    """One launch of a Triton kernel.

    Binding arguments anew costs the host several times what the launch itself does. So the kernel that the first call
    compiled is kept and started directly, by Triton's launcher in C where that is the one known here. Triton's
    interpreter compiles none, and every call goes through it.
    """

    __slots__ = ("compiled", "constants", "grid", "head", "kernel", "numbers", "start", "stream", "trailing")
    kernels: ModuleType = gated_switch

    def __init__(self, kernel: str, grid: tuple[int, ...], *numbers: Any, **constants: Any) -> None:
        if constants.get("PDL"):  # what the kernel is told, the launch has to do
            constants["launch_pdl"] = True
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self.compiled: Any = None
        self.start: Callable[..., None] | None = None
        self.stream: int | None = None
        self.head: tuple[Any, ...] = ()
        self.trailing: tuple[Any, ...] = ()

    def __call__(self, *tensors: Tensor | None) -> None:
        """Launch it on these tensors, where there is anything to do."""
        if self.start is None or _hooked():
            self._run(tensors)
            return
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        if stream != self.stream:
            self._bind(stream)
        # Addresses instead of tensors: of those the launcher would ask the driver.
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self.start(*self.head, *self._described(addresses), *self.trailing)

    def _run(self, tensors: Sequence[Tensor | None]) -> None:
        """Launch it by way of Triton, which compiles it if need be."""
        if self.grid[0] == 0:
            return
        kernel = getattr(self.kernels, self.kernel)
        arguments = self._arguments(tensors)
        self.compiled = kernel[self.grid](*arguments, *self.numbers, **self.constants)
        if self.compiled is not None:
            names = kernel.arg_names[len(arguments) + len(self.numbers) :]
            self.trailing = (*self.numbers, *(self.constants[name] for name in names))
            self.start = direct_launcher(self.compiled.run) or self.compiled.run
            self.stream = None

    def compile(self, *tensors: Tensor | None) -> None:
        """Compile it for tensors like these, whose memory is not read, and start nothing."""
        if self.start is None and self.grid[0]:
            kernel = getattr(self.kernels, self.kernel)
            kernel.warmup(*self._arguments(tensors), *self.numbers, grid=self.grid, **self.constants)

    def _arguments(self, tensors: Sequence[Tensor | None]) -> Sequence[Any]:
        """The kernel's first arguments."""
        return tensors

    def _described(self, addresses: list[int | None]) -> Sequence[Any]:
        """The same as the launcher takes them."""
        return addresses

    def _bind(self, stream: int) -> None:
        """Put together what comes before a kernel's arguments."""
        compiled, launcher = self.compiled, self.compiled.run
        self.stream = stream
        if self.start is launcher:
            self.head = (*self.grid, stream, compiled.function, compiled.packed_metadata, None, None, None)
            return
        options = (launcher.launch_cooperative_grid, launcher.launch_pdl, None, None)
        self.head = (*self.grid, stream, compiled.function, *options, compiled.packed_metadata, None, None, None)


def direct_launcher(launcher: Any) -> Callable[..., None] | None:
    """Triton's launcher in C, without what it does for scratch buffers and descriptors; None where it is another."""
    from triton.backends.nvidia import driver

    # Versions differ here: 3.6 is the one that this was written for.
    known = type(launcher) is driver.CudaLauncher and getattr(driver, "_BASE_ARGS_FORMAT", "") == DIRECT_ARGUMENTS
    if not known or launcher.global_scratch_size or launcher.profile_scratch_size:
        return None
    launch: Callable[..., None] = launcher.launch
    # Where there are descriptors, a function around it makes them anew each time.
    return inspect.getclosurevars(launch).nonlocals.get("launcher", launch) if inspect.isfunction(launch) else launch


def _hooked() -> bool:
    """Whether a hook, such as a profiler's, is called at every launch."""
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
    if plan.layer_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        gates = None if kept is None else kept.gates
        scale = None if skip_CD is None else weights.skip_scale
        plan.layer_forward(
            weights.gates, weights.gates, weights.candidates, gates, gates, x_CD, weights.gates_bias,
            weights.candidates_bias, x_CD, skip_CD, scale, out_CD, seed,
        )  # fmt: skip
        return out_CD
    pairs, features = plan.pairs, plan.features
    state_PE = x_CD.view(pairs, 2 * features)
    read_PE = _add_skip(plan, state_PE, skip_CD, weights, workspace)
    gates = workspace("gates", pairs, 2 * plan.gates * features) if kept is None else kept.gates
    torch.mm(read_PE, weights.gates_t, out=gates)
    if plan.switch_forward is not None:
        out_CD = torch.empty_like(x_CD) if out_CD is None else out_CD
        plan.switch_forward(
            gates, weights.gates_bias, read_PE, state_PE, weights.candidates, weights.candidates_bias, out_CD, seed
        )  # fmt: skip
        return out_CD
    product_P2E = workspace("product", pairs, 2, 2 * features)
    plan.reset_forward(gates, weights.gates_bias, read_PE, product_P2E)
    sums = None if kept is None or not plan.keep_sums else kept.sums
    if sums is None:
        sums = workspace("sums", pairs, 2, features)
    form_candidates(product_P2E, weights, sums)
    if out_CD is None:
        del product_P2E
        workspace.release("product")
        out_CD = torch.empty_like(x_CD)
    plan.update_forward(gates, weights.gates_bias, sums, state_PE, weights.candidates_bias, out_CD, seed)
    return out_CD


def forward_layers(
    plan: LayerPlan,
    x_CD: Tensor,
    skip_CD: Tensor | None,
    skips_LCD: Tensor | None,
    weights: UnitWeights,
    workspace: Workspace,
    *,
    counters: Tensor,
    out_LCD: Tensor,
) -> None:
    """Consecutive layers of one unit in one launch, as :func:`forward_layer` does each; nothing is kept.

    Args:
        plan: Of each of the layers.
        x_CD: The cells of all groups, one after the other.
        skip_CD: The cells that the first layer's skip connection adds, unscaled; None for none.
        skips_LCD: Those that the other layers' add; one entry for each layer, of which the last is not read.
        weights: The unit's parameters.
        workspace: Of this call.
        counters: Zeros, :func:`riffle.kernels.hopper_resident.counters` of them.
        out_LCD: Takes what each layer makes.
    """
    assert plan.layers_forward is not None
    pairs, features = plan.pairs, plan.features
    read_PE = _add_skip(plan, x_CD.view(pairs, 2 * features), skip_CD, weights, workspace)
    product_P2E = workspace("product", pairs, 2, 2 * features)
    reads, scale = None, None
    if skip_CD is not None:
        reads, scale = workspace("reads", 2 * pairs, 2 * features), weights.skip_scale
    plan.layers_forward[len(out_LCD),](
        weights.gates, weights.gates, weights.candidates, read_PE, out_LCD if reads is None else reads, product_P2E,
        weights.gates_bias, weights.candidates_bias, x_CD, out_LCD, reads, skips_LCD, scale, product_P2E, counters,
    )  # fmt: skip


def _add_skip(
    plan: LayerPlan, state_PE: Tensor, skip_CD: Tensor | None, weights: UnitWeights, workspace: Workspace
) -> Tensor:
    """What gates and candidates read, state + scale * skip."""
    if skip_CD is None:
        return state_PE
    read_PE = workspace("read", *state_PE.shape)
    plan.skip_forward(state_PE, skip_CD, weights.skip_scale, read_PE)
    return read_PE


def form_candidates(product_P2E: Tensor, weights: UnitWeights, sums: Tensor) -> None:
    """The candidates before tanh from what they read, by the library's product."""
    torch.bmm(product_P2E.transpose(0, 1), weights.candidates_t, out=sums.transpose(0, 1))


def aligned(x: Tensor) -> Tensor:
    """``x`` as the launches want it, copied where it does not lie so."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNMENT == 0 else x.clone()
