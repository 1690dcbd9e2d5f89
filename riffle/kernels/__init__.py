"""Kernels of the switch layer: :mod:`riffle.kernels.reference` is the definition, and :func:`resolve` chooses."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

Backend = Literal["auto", "reference", "fused"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST_TRITON = (3, 4)
"""The first Triton that the fused kernels run on; it comes with torch 2.8."""


def _triton_version() -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return OLDEST_TRITON


HAS_TRITON = find_spec("triton") is not None
TRITON_VERSION = _triton_version()  # a constant, which compilers do not have to trace
"""The first two numbers of Triton's version; that of the oldest that will do where the package has another name."""
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "on", "true", "y", "yes")
"""Whether Triton runs its kernels on the CPU, as the tests do; it reads the variable when a kernel is defined."""


def resolve(backend: Backend, x: Tensor) -> Literal["reference", "fused"]:
    """The kernels that serve ``x``: the one place where they are chosen."""
    if backend == "auto":
        return "fused" if x.is_cuda and _obstacle(x) is None else "reference"
    if backend == "fused" and (reason := _obstacle(x)):
        raise ValueError(f"backend='fused' {reason}; backend='auto' would use the reference here")
    return backend


def _obstacle(x: Tensor) -> str | None:
    """Why the fused kernels cannot run on ``x``; None if they can."""
    if not HAS_TRITON:
        return "needs Triton, which is not installed"
    if TRITON_VERSION < OLDEST_TRITON:
        needed, found = (".".join(map(str, numbers)) for numbers in (OLDEST_TRITON, TRITON_VERSION))
        return f"needs Triton {needed} or later, found {found}"
    if not x.is_cuda and not INTERPRETED:
        return f"needs a CUDA tensor, got one on {x.device}"
    if x.is_cuda and torch.cuda.get_device_capability(x.device) < (8, 0):
        return "needs a GPU of compute capability 8.0 or later"
    if x.dtype not in FUSED_DTYPES:
        return f"takes float32, bfloat16 or float16, got {x.dtype}"
    return None
