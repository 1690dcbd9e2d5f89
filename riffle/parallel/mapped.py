"""Cells in a file that is mapped into memory, for sequences longer than host memory can hold."""

# B = batch, N = cells, D = features per cell
from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor


def mapped(path: Path, like: Tensor) -> Tensor:
    """A tensor in a new file, with the shape and dtype of another, which may be a meta tensor.

    The space is taken at once where the system can, so that a full disk is an error here and not a crash later on.
    """
    with path.open("xb") as file:
        if hasattr(os, "posix_fallocate") and like.nbytes:
            os.posix_fallocate(file.fileno(), 0, like.nbytes)
    return torch.from_file(str(path), shared=True, size=like.numel(), dtype=like.dtype).view(like.shape)
