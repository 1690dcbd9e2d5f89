"""The precision of the matrix products: fp32, tf32 or bf16."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

from riffle.config import Precision


def arithmetic(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes in the given precision."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def set_matrix_precision(precision: Precision) -> None:
    """Let float32 matrix products use tf32 or not, for the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
