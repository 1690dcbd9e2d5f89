"""CUDA graphs: the one capture of this package, and the passes of a network captured for shapes that come again.

Starting a kernel costs the host a few microseconds, and a short layer takes the device no longer than that. A captured
pass is started as a whole. :class:`GraphCache` watches the calls of a network, captures the forward pass, with
gradients the backward pass too, of a shape that repeats, and replays them inside the ordinary autograd of whoever
calls. What it cannot serve is launched kernel by kernel as before, and counted.
"""

# B = batch, N = length, D = features per cell, C = cells of all batches
from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from riffle.kernels.plan import KEEP_GATES, KEEP_NOTHING, NetworkPlan

if TYPE_CHECKING:
    from riffle.kernels.passes import Saved

Result = TypeVar("Result")
WARM_UP = 3
"""Calls before a capture: they compile kernels and let the libraries set themselves up."""
SIGHTS = 3
"""Calls of one shape before its passes are captured."""
IDLE_CALLS = 64
"""Captured passes are dropped for others only after this many calls without a replay of theirs."""
SHARE = 16
"""All captured passes keep at most this part of a device's memory, unless ``max_bytes`` is given."""
_caches: WeakValueDictionary[int, GraphCache] = WeakValueDictionary()
_handles = count(1)
_enabled: ContextVar[bool] = ContextVar("graphs_enabled", default=True)


@contextmanager
def use_graphs(enabled: bool) -> Iterator[None]:
    """Whether networks may replay captured passes in this context; False launches every kernel."""
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def on_side_stream(call: Callable[[], Result]) -> Result:
    """Run a call on a stream of its own, as CUDA requires of work that will be captured later."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), use_graphs(False):
        result = call()
    torch.cuda.current_stream().wait_stream(stream)
    return result


def capture(
    call: Callable[[], Result],
    *,
    warm_up: int = WARM_UP,
    pool: Any = None,
    generators: Sequence[torch.Generator] = (),
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Capture a call as a CUDA graph: the one place where this package does.

    Args:
        call: Launches kernels and never waits for the device; what it reads and writes must stay where it lies.
        warm_up: Calls on a side stream before the capture.
        pool: The memory pool of other graphs to share, from ``torch.cuda.graph_pool_handle``.
        generators: Random generators besides the default one whose state advances with every replay.

    Returns:
        The graph, and what the captured call returned: tensors that every replay fills anew.
    """
    for _ in range(warm_up):
        on_side_stream(call)
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = call()
    return graph, result


def on_gpu(x_BND: Tensor) -> bool:
    """Whether there are graphs for these cells at all."""
    return x_BND.is_cuda


class CapturedPasses:
    """The passes of one plan as graphs, with the tensors that they read and write."""

    numbers = count(1)

    def __init__(
        self, plan: NetworkPlan, xs_BND: Sequence[Tensor], parameters: Sequence[Tensor], seed: Tensor | None, pool: Any
    ) -> None:
        from riffle.kernels.passes import forward, network_weights  # Triton is not everywhere

        self.last_call = 0
        self.x_dtype = plan.x_dtype
        # Cells come and go by copies, which can cast them as well.
        direct = plan.eager and len(plan.batches) == 1 and not plan.padded
        self.plan = plan = replace(plan, x_dtype=plan.dtype, direct=direct)
        self.xs_BND = [x_BND.new_empty(x_BND.shape, dtype=plan.dtype).copy_(x_BND) for x_BND in xs_BND]
        self.seed = None if seed is None else seed.clone()
        self.holder = 0
        """The number of the call whose backward pass still needs what the forward pass has saved; 0 for none."""
        self.ticket: StorageWeakRef | None = None
        """A tensor that the call holds until no backward pass can come, where it has no :class:`Lease`."""

        def run_forward() -> tuple[Tensor, Saved]:
            self.weights = network_weights(plan, parameters)
            return forward(plan, self.xs_BND, self.weights.units, self.seed)

        self.forward_graph, (self.y_CD, self.saved) = capture(run_forward, warm_up=1, pool=pool)
        tensors = [*self.xs_BND, self.y_CD, *chain(*self.saved)]
        if plan.keep != KEEP_NOTHING:
            self.grad_CD = torch.zeros_like(self.y_CD)
            self.backward_graph, self.grads = capture(
                lambda: self._run_backward(self.grad_CD, overwrite=True), warm_up=1, pool=pool
            )
            tensors += [self.grad_CD, *self.grads]
        self.bytes = sum(tensor.nbytes for tensor in tensors)

    def forward(self, xs_BND: Sequence[Tensor], seed: Tensor | None) -> Tensor:
        """What :func:`riffle.kernels.passes.forward` returns for these cells."""
        for static_BND, x_BND in zip(self.xs_BND, xs_BND, strict=True):
            static_BND.copy_(x_BND)
        if self.seed is not None and seed is not None:
            self.seed.copy_(seed)
        self.forward_graph.replay()
        return self.y_CD.to(self.x_dtype, copy=True)

    def backward(self, grad_CD: Tensor, *, last: bool) -> tuple[Tensor, Tensor]:
        """What :func:`riffle.kernels.passes.backward` returns; ``last`` replays it, and others may use the passes."""
        if not last:
            grad_x_CD, grad_parameters = self._run_backward(grad_CD.to(self.plan.dtype), overwrite=False)
            return grad_x_CD.to(self.x_dtype), grad_parameters
        self.grad_CD.copy_(grad_CD)
        self.backward_graph.replay()
        grad_x_CD, grad_parameters = self.grads
        self.holder = 0
        return grad_x_CD.to(self.x_dtype, copy=True), grad_parameters.clone()

    def _run_backward(self, grad_CD: Tensor, *, overwrite: bool) -> tuple[Tensor, Tensor]:
        from riffle.kernels.passes import backward

        weights = self.weights.units
        return backward(self.plan, grad_CD, self.xs_BND, weights, self.seed, self.saved, overwrite=overwrite)

    def hold_for(self, ticket: Tensor) -> None:
        """Let the call that uses them hold a tensor: once that is gone, no backward pass comes and they are free."""
        self.ticket = StorageWeakRef(ticket.untyped_storage())

    @property
    def free(self) -> bool:
        """Whether no call needs what the forward pass has saved."""
        return not self.holder or (self.ticket is not None and self.ticket.expired())


class Lease:
    """Captured passes that one call uses, until its backward pass has run or its autograd graph is gone."""

    def __init__(self, passes: CapturedPasses) -> None:
        self.passes, self.number = passes, passes.holder

    def __del__(self) -> None:
        if self.passes.holder == self.number:
            self.passes.holder = 0


class GraphCache:
    """The captured passes of one network, by shape.

    Args:
        max_graphs: Shapes whose passes are kept; the least recently used one is dropped when it was idle for long.
        max_bytes: What their tensors may take together; None for a sixteenth of the device's memory, shared by all
            networks.

    Examples::

        >>> from riffle import ShuffleExchange
        >>> net = ShuffleExchange(16, graphs=GraphCache(max_bytes=2**28))
        >>> net(torch.rand(8, 50, 16)).shape
        torch.Size([8, 50, 16])
        >>> net.graphs.counts  # on a CPU no call was offered to it
        Counter()
    """

    def __init__(self, max_graphs: int = 16, max_bytes: int | None = None) -> None:
        if max_graphs < 1:
            raise ValueError(f"max_graphs must be at least 1, got {max_graphs}")
        self.max_graphs, self.max_bytes = max_graphs, max_bytes
        self.counts: Counter[str] = Counter()
        """How many calls were replayed and how many launched kernel by kernel, by the reason why."""
        self._lock = threading.Lock()
        self._start()
        self.handle = next(_handles)
        """By which :func:`find_cache` finds it."""
        _caches[self.handle] = self

    def reset(self) -> bool:
        """Discard all captured passes; whether there were any."""
        found = bool(self._passes)
        self._start()
        return found

    def _start(self) -> None:
        self._passes: OrderedDict[tuple[Any, ...], CapturedPasses] = OrderedDict()
        self._sights: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._addresses: tuple[int, ...] = ()
        self._pools: dict[int, Any] = {}  # one for each stream, since what is on the same one runs one after the other
        self._calls = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the network has weights of its own.
        return GraphCache, (self.max_graphs, self.max_bytes)

    def forward(
        self, plan: NetworkPlan, xs_BND: Sequence[Tensor], parameters: Sequence[Tensor], seed: Tensor | None
    ) -> tuple[Tensor, CapturedPasses] | None:
        """The forward pass by replay, and the passes, held for the backward pass; None where it must be launched."""
        reason = self._obstacle(plan, xs_BND[0])
        if reason is None and not self._lock.acquire(blocking=False):
            reason = "another thread"
        if reason is not None:
            self.counts[reason] += 1
            return None
        try:
            with torch.inference_mode(False), torch.no_grad():
                passes = self._find(plan, xs_BND, parameters, seed)
                if passes is None:
                    return None
                self.counts["replayed"] += 1
                if plan.keep != KEEP_NOTHING:
                    passes.holder, passes.ticket = next(passes.numbers), None
                return passes.forward(xs_BND, seed), passes
        finally:
            self._lock.release()

    def held(self, inputs_TD: Tensor) -> CapturedPasses | None:
        """The passes whose forward pass saved these inputs, for the holder of a ticket."""
        for passes in list(self._passes.values()):
            if passes.ticket is not None and passes.saved.inputs[0].data_ptr() == inputs_TD.data_ptr():
                return passes
        return None

    def _obstacle(self, plan: NetworkPlan, x_BND: Tensor) -> str | None:
        """Why a call cannot be replayed; None if it might be."""
        if not on_gpu(x_BND) or not _enabled.get():
            return "off"
        if not plan.small:
            return "large"
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return "captured by the caller"
        if plan.keep != KEEP_NOTHING and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            return "hooks on saved tensors"
        return None

    def _stream(self, x_BND: Tensor) -> int:
        return torch._C._cuda_getCurrentRawStream(x_BND.device.index)

    def _find(
        self, plan: NetworkPlan, xs_BND: Sequence[Tensor], parameters: Sequence[Tensor], seed: Tensor | None
    ) -> CapturedPasses | None:
        addresses = (hash(parameters[0].dtype), *[parameter.data_ptr() for parameter in parameters])
        if addresses != self._addresses:
            self._start()
            self._addresses = addresses
        self._calls += 1
        stream = self._stream(xs_BND[0])
        # One after the other, until one is free: a call may come before the backward pass of the one before.
        for copy in range(self.max_graphs):
            key = (plan, stream, copy)
            passes = self._passes.get(key)
            if passes is None:
                return self._seen(key, plan, xs_BND, parameters, seed)
            if passes.free:
                passes.last_call = self._calls
                self._passes.move_to_end(key)
                return passes
        self.counts["busy"] += 1
        return None

    def _seen(
        self,
        key: tuple[Any, ...],
        plan: NetworkPlan,
        xs_BND: Sequence[Tensor],
        parameters: Sequence[Tensor],
        seed: Tensor | None,
    ) -> CapturedPasses | None:
        """Capture the passes of a shape that has been seen often enough."""
        self._sights[key] = self._sights.pop(key, 0) + 1
        if len(self._sights) > 4 * self.max_graphs:
            self._sights.popitem(last=False)
        if self._sights[key] < SIGHTS:
            self.counts["first calls"] += 1
            return None
        if not self._make_room(plan, xs_BND[0]):
            self.counts["no room"] += 1
            return None
        try:
            passes = self._capture(key[1], plan, xs_BND, parameters, seed)
        except RuntimeError as error:  # out of memory, most likely: the launches may fit
            self.counts[f"failed: {error}"] += 1
            self._sights[key] = -(2**31)  # and this is not tried again
            return None
        passes.last_call = self._calls
        self._passes[key] = passes
        self.counts["captured"] += 1
        return passes

    def _capture(
        self,
        stream: int,
        plan: NetworkPlan,
        xs_BND: Sequence[Tensor],
        parameters: Sequence[Tensor],
        seed: Tensor | None,
    ) -> CapturedPasses:
        with torch.cuda.device(xs_BND[0].device):
            pool = self._pools.get(stream) or torch.cuda.graph_pool_handle()
            self._pools[stream] = pool
            return CapturedPasses(plan, xs_BND, parameters, seed, pool)

    @property
    def bytes(self) -> int:
        """What the captured passes keep."""
        return sum(passes.bytes for passes in self._passes.values())

    def _make_room(self, plan: NetworkPlan, x_BND: Tensor) -> bool:
        """Drop passes that were idle for long until those of a plan fit; False if they do not."""
        needed = plan_bytes(plan)
        while len(self._passes) >= self.max_graphs or needed > self._room(x_BND):
            oldest = next(iter(self._passes), None)
            if oldest is None or not self._passes[oldest].free:
                return False
            if self._calls - self._passes[oldest].last_call < IDLE_CALLS:
                return False
            del self._passes[oldest]
        return True

    def _room(self, x_BND: Tensor) -> int:
        """The bytes that further passes may keep; of free memory a quarter, since a capture cannot run out of it."""
        total, free = device_bytes(x_BND)
        bound = total // SHARE - sum(cache.bytes for cache in _caches.values())
        return min(free // 4, bound if self.max_bytes is None else self.max_bytes - self.bytes)


def find_cache(handle: int) -> GraphCache | None:
    """The cache with a handle, which operators take in its place; None for none, or if it is gone."""
    return _caches.get(handle)


def device_bytes(x_BND: Tensor) -> tuple[int, int]:
    """The memory of the device that holds these cells, all and free."""
    from riffle.environment import free_bytes

    return torch.cuda.get_device_properties(x_BND.device).total_memory, free_bytes(x_BND.device)


def plan_bytes(plan: NetworkPlan) -> int:
    """About what the captured passes of a plan keep: all layers' inputs, and input, output and their gradients."""
    rows = sum(plan.regions) + 2 * plan.cells if plan.keep else 2 * plan.cells
    from riffle.kernels.units import KERNELS

    kernels = KERNELS[plan.kind]
    kept = kernels.first + 2 * kernels.keeps_sums(plan.dtype)
    gates = kept * plan.pairs if plan.keep == KEEP_GATES else 0
    return (rows + gates) * plan.features * plan.dtype.itemsize
