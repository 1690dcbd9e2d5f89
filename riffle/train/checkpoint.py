"""Checkpoints: named tensors in one safetensors file, and int8 quantisation of weights for shipping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from riffle.files import write_atomically

FORMAT = "riffle-checkpoint-1"
SCALE_SUFFIX = ".scale"
"""Appended to the name of a quantised matrix to name its scales."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as safetensors, atomically."""
    # Safetensors refuses tensors that share memory or are not contiguous; copies are neither.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(copies, {"format": FORMAT}))


def read_checkpoint(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, which is removed."""
    try:
        with safe_open(path, framework="pt") as file:
            form = (file.metadata() or {}).get("format")
            if form != FORMAT:
                raise ValueError(
                    f"{path} is no checkpoint of riffle: its format is {form!r}, not {FORMAT!r}; "
                    "restore it or train again"
                )
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118, it is no dict
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: the run has not written a checkpoint yet") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}); restore it or train again") from None


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, which is removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def add_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors with ``prefix`` before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def quantize(weights: Mapping[str, Tensor], bits: int = 8) -> dict[str, Tensor]:
    """Round every matrix to ``bits`` bits, stored as int8, with one scale per row; vectors are left as they are.

    Fewer bits take as much space in the file and less in a compressed one, such as a wheel.

    >>> quantized = quantize({"w": torch.tensor([[1.0, -0.5], [0.0, 0.0]])})
    >>> quantized["w"].tolist(), dequantize(quantized)["w"][0, 0].item()
    ([[127, -64], [0, 0]], 1.0)
    """
    out: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.dim() < 2:
            out[name] = tensor
            continue
        scale = tensor.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
        out[name] = (tensor / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8)
        out[name + SCALE_SUFFIX] = scale
    return out


def quantized_bits(weights: Mapping[str, Tensor]) -> int:
    """The bits that matrices were rounded to by :func:`quantize`.

    >>> quantized_bits(quantize({"w": torch.randn(2, 3)}, bits=6))
    6
    """
    largest = max(int(weights[name.removesuffix(SCALE_SUFFIX)].abs().max()) for name in weights if SCALE_SUFFIX in name)
    return 1 + largest.bit_length()


def dequantize(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo :func:`quantize` up to rounding; weights that are not quantised are left as they are."""
    return {
        name: tensor * weights[name + SCALE_SUFFIX] if name + SCALE_SUFFIX in weights else tensor
        for name, tensor in weights.items()
        if not name.endswith(SCALE_SUFFIX)
    }
