"""Compile the kernels of a network's passes side by side, before the first call of a shape launches them.

A kernel that is compiled when it is first launched leaves all cores but one idle. So the passes of a plan are run once
without a result: on tensors without memory, with launches that start nothing and hand what is missing to threads.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from dataclasses import replace
from typing import Any

import torch
import triton
from torch import Tensor
from torch.overrides import TorchFunctionMode
from triton.runtime import driver

from riffle.kernels import INTERPRETED, TRITON_VERSION
from riffle.kernels.launches import Launch
from riffle.kernels.passes import backward, forward
from riffle.kernels.plan import KEEP_NOTHING, NetworkPlan
from riffle.kernels.units import KERNELS

MOST_THREADS = 16
"""Upper bound of the compiling threads."""
MOST_IDLE = 16
"""After this many shapes in a row that needed nothing new, new shapes are no longer checked."""
_idle: Counter[tuple[Any, ...]] = Counter()


def compile_ahead(plan: NetworkPlan, device: torch.device, *, dropout: bool) -> None:
    """Compile the kernels that the passes of a plan launch and that are not compiled yet, once for each plan.

    The backward pass is one of them where the plan keeps something for it. A kernel that cannot be compiled is left to
    its launch, which raises the error.
    """
    if plan.compiled or torch.cuda.is_current_stream_capturing():
        return
    plan.compiled = True
    # Later versions may not have it, earlier ones have it for one thread at a time or not at all.
    if INTERPRETED or TRITON_VERSION < (3, 6) or not hasattr(triton, "AsyncCompileMode"):
        return
    kind = (device, plan.kind, plan.features, plan.dtype, plan.keep, dropout)
    if _idle[kind] < MOST_IDLE:
        with torch.cuda.device(device):
            _idle[kind] = 0 if compile_passes(plan, dropout=dropout) else _idle[kind] + 1


def compile_passes(plan: NetworkPlan, *, dropout: bool, threads: int | None = None) -> int:
    """Compile what is missing for the current device in threads, as many as there are cores; how many kernels it was.

    Args:
        plan: Of the passes.
        dropout: Whether a seed comes with the cells.
        threads: The most threads; None for the number of cores.
    """
    # Triton changes the filters of warnings for a while, which threads may not set back in the same order.
    with warnings.catch_warnings(), _Compilers(threads or min(os.cpu_count() or 1, MOST_THREADS)) as compilers:
        # In a context of its own, where no such mode is active, and none stays so if this is interrupted.
        Context().run(_compile_with, compilers, plan, dropout)
    return compilers.kernels


class _Compilers(ThreadPoolExecutor):
    """Threads that compile kernels, and the launchers in C that start them; a thread starts when it has work."""

    kernels = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Compile a kernel."""
        self.kernels += 1

        def compile_both() -> Any:
            kernel = fn(*args, **kwargs)
            driver.active.launcher_cls(kernel.src, kernel.metadata)  # which Triton finds on disk when it launches
            return kernel

        return super().submit(compile_both)


def _compile_with(compilers: _Compilers, plan: NetworkPlan, dropout: bool) -> None:
    with triton.AsyncCompileMode(compilers, ignore_errors=True):
        dry_run(plan, dropout=dropout)


def dry_run(plan: NetworkPlan, *, dropout: bool) -> None:
    """Run the passes of a plan on tensors without memory, with :meth:`Launch.compile` in the place of every launch."""
    seen: set[Launch] = set()
    layers = [layer._replace(plan=type(layer.plan)(*_compiling(layer.plan, seen))) for layer in plan.layers]
    plan = replace(plan, layers=tuple(layers))
    # Launches look at dtype and alignment of tensors alone, so the weights may have any shape.
    sizes = zip(plan.batches, plan.lengths, strict=True)
    xs_BND = [torch.empty(*size, plan.features, dtype=plan.x_dtype, device="meta") for size in sizes]
    weight, vector = (torch.empty(1, 1, dtype=dtype, device="meta") for dtype in (plan.dtype, torch.float32))
    make = KERNELS[plan.kind].weights
    weights = [make(weight, weight, weight, weight, vector if scaled else None) for scaled in plan.scaled]
    seed = torch.empty(1, dtype=torch.int64, device="meta") if dropout else None
    with torch.no_grad(), _NothingComputed():
        y_CD, saved = forward(plan, xs_BND, weights, seed)
        if plan.keep != KEEP_NOTHING:
            backward(plan, y_CD, xs_BND, weights, seed, saved)


def _compiling(part: Any, seen: set[Launch]) -> Any:
    """A part of a layer's plan, or all of them, with launches that start nothing."""
    if isinstance(part, tuple):
        return tuple(_compiling(each, seen) for each in part)
    return _Compiling(part, seen) if isinstance(part, Launch | dict) else part


class _Compiling:
    """In the place of a launch, or of launches by their flags: compiles, each once, and starts nothing."""

    def __init__(self, launch: Any, seen: set[Launch]) -> None:
        self.launch, self.seen = launch, seen

    def __getitem__(self, flags: Any) -> _Compiling:
        return _Compiling(self.launch[flags], self.seen)

    def __call__(self, *tensors: Tensor | None) -> None:
        if self.launch not in self.seen:
            self.seen.add(self.launch)
            self.launch.compile(*tensors)


class _NothingComputed(TorchFunctionMode):
    """Leaves out what computes: for some of it torch would import its compiler, only to find the shape of a result."""

    writers = (Tensor.add_, Tensor.addmm_, Tensor.copy_, Tensor.__iadd__, Tensor.__setitem__)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if "out" in kwargs:
            return kwargs["out"]
        if func in self.writers or func is torch.empty_like:
            return args[0]
        if func is Tensor.sum:  # over rows
            return args[0].new_empty(args[0].shape[1:])
        if func is torch.cat:
            first, *others = args[0]
            return first.new_empty(len(first) + sum(map(len, others)), *first.shape[1:])
        return func(*args, **kwargs)
