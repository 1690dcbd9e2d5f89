"""Quantisation of weights to be shipped; :mod:`riffle.train.checkpoint` reads them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

from riffle.train.checkpoint import SCALE_SUFFIX, inflate, quantized_names

FINEST_STEP = 1 / 20
"""The finest step of rounded weights, in root mean squares of their row: the error is 1.4%. Finer steps measured no
better, and weights with fewer values take a sixth fewer bytes."""


def quantize(weights: Mapping[str, Tensor], bits: int = 8) -> dict[str, Tensor]:
    """Round every matrix to ``bits`` bits with one step per row; vectors are left as they are.

    A row's largest weight takes the largest integer, unless that makes a step of less than ``FINEST_STEP``. The
    integers of a matrix are stored as a zlib stream.

    >>> from riffle.train.checkpoint import dequantize
    >>> quantized = quantize({"w": torch.tensor([[0.7, -0.7, 0.7, 0.7], [0.0, 0.0, 0.0, 0.0]])})
    >>> dequantize(quantized)["w"].tolist()
    [[0.699999988079071, -0.699999988079071, 0.699999988079071, 0.699999988079071], [0.0, 0.0, 0.0, 0.0]]
    """
    out: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.dim() < 2:
            out[name] = tensor
            continue
        scale = tensor.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
        scale = torch.maximum(scale, FINEST_STEP * tensor.square().mean(dim=-1, keepdim=True).sqrt())
        out[name] = deflate((tensor / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8))
        out[name + SCALE_SUFFIX] = scale
    return out


def compress(content: bytes) -> bytes:
    """The shorter of two zlib streams, with and without a search for repetitions: quantised weights have none."""
    huffman = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return min(huffman.compress(content) + huffman.flush(), zlib.compress(content, 9), key=len)


def deflate(integers: Tensor) -> Tensor:
    """Integers of eight bits as the bytes of a zlib stream."""
    return torch.frombuffer(bytearray(compress(integers.cpu().numpy().tobytes())), dtype=torch.uint8)


def quantized_bits(weights: Mapping[str, Tensor]) -> int:
    """The bits that matrices were rounded to by :func:`quantize`, 32 where they were not.

    >>> quantized_bits(quantize({"w": torch.randn(2, 3)}, bits=6))
    6
    """
    largest = max((int(inflate(name, weights).int().abs().max()) for name in quantized_names(weights)), default=None)
    return 32 if largest is None else 1 + largest.bit_length()
