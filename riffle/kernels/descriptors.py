"""Launches of kernels that read and write matrices by tensor descriptors, through the tensor memory accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from riffle.kernels.launches import Launch

MOST_DESCRIBED = 1024
"""Tensor addresses whose descriptors a launch keeps."""


class Matrix(NamedTuple):
    """A matrix that a kernel reads or writes by blocks."""

    rows: int
    columns: int
    block_rows: int
    block_columns: int


class DescriptorLaunch(Launch):
    """One launch of a kernel whose first arguments are descriptors: the tensors that these describe come first.

    Args:
        kernels: The file of the kernel.
        kernel: Its name.
        grid: How many programs.
        matrices: What the descriptors describe, in their order.
        dtype: Of the matrices.
        numbers: As of :class:`Launch`.
        constants: As of :class:`Launch`.
    """

    __slots__ = ("described", "dtype", "kernels", "matrices")

    def __init__(
        self,
        kernels: ModuleType,
        kernel: str,
        grid: tuple[int, ...],
        matrices: Sequence[Matrix],
        dtype: torch.dtype,
        *numbers: Any,
        **constants: Any,
    ) -> None:
        super().__init__(kernel, grid, *numbers, **constants)
        self.kernels, self.matrices, self.dtype = kernels, tuple(matrices), dtype
        self.described: dict[tuple[int | None, ...], list[Any]] = {}
        """What the launcher takes for tensors at these addresses: a descriptor says where a matrix lies, no more."""

    def _described(self, addresses: list[int | None]) -> Sequence[Any]:
        count = len(self.matrices)
        key = tuple(addresses[:count])
        return [*(self.described.get(key) or self._describe(key)), *addresses[count:]]

    def _arguments(self, tensors: Sequence[Tensor | None]) -> Sequence[Any]:
        count = len(self.matrices)
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors[:count]]
        return [*self._descriptors(addresses), *tensors[count:]]

    def _descriptors(self, addresses: Sequence[int | None]) -> list[TensorDescriptor | None]:
        pairs = zip(addresses, self.matrices, strict=True)
        return [None if address is None else describe(address, self.dtype, *matrix) for address, matrix in pairs]

    def _describe(self, addresses: tuple[int | None, ...]) -> list[Any]:
        described: list[Any] = self._descriptors(addresses)
        if self.start is not self.compiled.run:
            from triton.backends.nvidia.driver import make_tensordesc_arg

            # As the driver takes a descriptor, which Triton would make anew for every launch.
            kinds, plain = iter(self.compiled.metadata.tensordesc_meta), described
            described = []
            for descriptor in plain:
                described += [None] if descriptor is None else make_tensordesc_arg(descriptor, next(kinds))
        if len(self.described) >= MOST_DESCRIBED:
            self.described.clear()
        self.described[addresses] = described
        return described


class Constants(dict[str, Any]):
    """The compile-time constants of a kernel by name: one argument instead of twenty.

    A dictionary, so that Triton can pass it to hooks that are called at every compilation.
    """

    def __getattr__(self, name: str) -> gl.constexpr:
        if name not in self:
            raise AttributeError(name)
        return gl.constexpr(self[name])

    def __repr__(self) -> str:
        # Triton tells compiled kernels apart by it.
        return f"Constants({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


class Memory(NamedTuple):
    """The address of a tensor, which is all that a descriptor needs; it does not keep the tensor alive."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """As a tensor has it."""
        return self.address


@lru_cache(maxsize=4096)
def describe(address: int, dtype: torch.dtype, rows: int, columns: int, *block: int) -> TensorDescriptor:
    """The descriptor of a matrix, for copies of blocks."""
    return TensorDescriptor(Memory(address, dtype), [rows, columns], [columns, 1], list(block), _layout(dtype, *block))


@lru_cache(maxsize=256)
def _layout(dtype: torch.dtype, *block: int) -> gl.NVMMASharedLayout:
    """The layout of such blocks, cached since finding it is the slowest part of making a descriptor."""
    element = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}[dtype]
    return gl.NVMMASharedLayout.get_default_for(list(block), element)
