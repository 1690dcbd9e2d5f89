"""A whole module as CUDA graphs, for inference; a network's own passes are in :mod:`riffle.kernels.graphs`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from riffle.kernels.graphs import capture

Recording = tuple[torch.cuda.CUDAGraph, Tensor, Tensor]
"""A CUDA graph with the buffers it reads and writes."""


class Graphed(nn.Module):
    """Run a module by CUDA graphs, one for each shape and dtype of its input, for inference.

    A network of many short layers spends most of its time starting kernels. The first call with a shape records all of
    them; later calls copy the input to where the recording reads it, replay it, and return a copy of the result. That
    pays where the same shapes come again and again.

    A recording reads the weights where they lie, so weights changed in place (an optimiser, ``load_state_dict``) are
    seen. Weights that were moved (``to``) or replaced in their module discard the recordings; after whole submodules
    were replaced, call :meth:`reset`. On a CPU, in training mode, where gradients are asked for, and with any argument
    besides the input, the module is simply called. One call at a time: recordings share their memory.

    Args:
        module: Maps one tensor to one tensor, without waiting for the device on its way.
        max_graphs: Recordings that are kept; the least recently used one is dropped.

    Examples::

        >>> from riffle import Graphed, ShuffleExchange
        >>> net = Graphed(ShuffleExchange(16).eval())
        >>> net(torch.randn(3, 100, 16)).shape
        torch.Size([3, 100, 16])
    """

    def __init__(self, module: nn.Module, max_graphs: int = 16) -> None:
        super().__init__()
        if max_graphs < 1:
            raise ValueError(f"max_graphs must be at least 1, got {max_graphs}")
        self.module, self.max_graphs = module, max_graphs
        self.train(module.training)
        self.reset()

    def reset(self) -> None:
        """Discard all recordings."""
        self._recordings: OrderedDict[tuple[Any, ...], Recording] = OrderedDict()
        self._pool: Any = None
        self._weights: list[tuple[dict[str, Any], str, int]] = []

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The module's output."""
        if args or kwargs or not self._can_replay(x):
            return self.module(x, *args, **kwargs)
        if any(_address(tensors.get(name)) != address for tensors, name, address in self._weights):
            self.reset()
        autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        key = (x.shape, x.dtype, x.device, autocast)
        with torch.inference_mode():
            if key not in self._recordings:
                while len(self._recordings) >= self.max_graphs:
                    self._recordings.popitem(last=False)
                self._recordings[key] = self._record(x)
            self._recordings.move_to_end(key)
            graph, static, output = self._recordings[key]
            static.copy_(x)
            graph.replay()
        return output.clone()

    def _can_replay(self, x: Tensor) -> bool:
        if not x.is_cuda or self.module.training or torch.compiler.is_compiling():
            return False
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.module.parameters())):
            return False
        return not torch.cuda.is_current_stream_capturing()

    def _record(self, x: Tensor) -> Recording:
        static = x.clone()
        # What autocast keeps from one run to the next would be outside the recording.
        dtype, enabled = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        autocast = torch.autocast("cuda", dtype, enabled=enabled, cache_enabled=False)
        with torch.cuda.device(x.device), autocast:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph, output = capture(lambda: self.module(static), pool=self._pool)
        if not isinstance(output, Tensor):
            raise TypeError(f"only a module that returns one tensor can be recorded, not a {type(output).__name__}")
        self._weights = self._addresses()
        return graph, static, output

    def _addresses(self) -> list[tuple[dict[str, Any], str, int]]:
        """Where the module's tensors lie: the dictionary that holds each, its name there, and its address."""
        return [
            (tensors, name, _address(tensor))
            for module in self.module.modules()
            for tensors in (module._parameters, module._buffers)
            for name, tensor in tensors.items()
        ]

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the module has weights of its own.
        return {**super().__getstate__(), "_recordings": OrderedDict(), "_pool": None, "_weights": []}

    def extra_repr(self) -> str:
        return f"max_graphs={self.max_graphs}"


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
