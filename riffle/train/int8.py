"""Weights in a quarter of the room: matrices as int8 with one scale per row."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = ".scale"
"""What is appended to a matrix's name to name its scales."""


def shrink(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Round every matrix to int8, row by row; vectors stay as they are.

    >>> small = shrink({"w": torch.tensor([[1.0, -0.5], [0.0, 0.0]])})
    >>> small["w"].tolist(), restore(small)["w"][0, 0].item()
    ([[127, -64], [0, 0]], 1.0)
    """
    out: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.dim() < 2:
            out[name] = tensor
            continue
        scale = tensor.abs().amax(dim=-1, keepdim=True) / 127
        out[name] = (tensor / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8)
        out[name + SCALE] = scale
    return out


def restore(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo :func:`shrink` up to rounding; weights that were not shrunk pass through."""
    return {
        name: tensor * weights[name + SCALE] if name + SCALE in weights else tensor
        for name, tensor in weights.items()
        if not name.endswith(SCALE)
    }
