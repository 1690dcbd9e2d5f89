"""Kernels of the switch layer: :mod:`riffle.kernels.reference` is the definition, and :func:`resolve` chooses."""

from __future__ import annotations

from types import ModuleType
from typing import Literal, get_args

from torch import Tensor

from riffle.kernels import reference

Backend = Literal["auto", "reference"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


def resolve(backend: Backend, x: Tensor) -> ModuleType:
    """The kernel module that serves ``x``: the one place where a kernel is chosen."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; this version has {', '.join(BACKENDS)}")
    return reference
