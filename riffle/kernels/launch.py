"""Starting a kernel with little work for the host: launches bound once, and memory that layers share."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from riffle.kernels import gated_switch


class Workspace:
    """Buffers that the layers of one call use one after the other: a name has the same memory in each of them."""

    def __init__(self, cells: Tensor) -> None:
        self.dtype, self.device = cells.dtype, cells.device
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

    def __init__(self, kernel: str, grid: tuple[int, ...], *numbers: Any, **constants: Any) -> None:
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self.compiled: Any = None
        self.trailing: tuple[Any, ...] = ()

    def __call__(self, *tensors: Tensor | None) -> None:
        """Launch it on these tensors, where there is anything to do."""
        if self.grid[0] == 0:
            return
        compiled = self.compiled
        if compiled is None or _hooked():
            kernel = getattr(gated_switch, self.kernel)
            self.compiled = kernel[self.grid](*tensors, *self.numbers, **self.constants)
            if self.compiled is not None:
                names = kernel.arg_names[len(tensors) + len(self.numbers) :]
                self.trailing = (*self.numbers, *(self.constants[name] for name in names))
            return
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        # Addresses instead of tensors: of those the launcher would ask the driver.
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        compiled.run(
            *self.grid, stream, compiled.function, compiled.packed_metadata, None, None, None,
            *addresses, *self.trailing,
        )  # fmt: skip


def _hooked() -> bool:
    """Whether somebody, such as a profiler, wants to hear of every launch."""
    runtime = triton.knobs.runtime
    # A chain of calls, or in older versions of Triton a function or None.
    return any(getattr(hook, "calls", hook) for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook))
