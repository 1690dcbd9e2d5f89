"""What the attention models are made of: multi-head attention, the feed-forward layer, signals of position."""

# B = batch, N = length, M = length of what is attended to, D = features, H = heads, E = D // H features per head
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEAD = 64
"""Features of a head, where the number of heads is left open."""
LONGEST_WAVE = 10_000.0


def choose_heads(features: int) -> int:
    """The largest number of equal heads of at least 64 features each, an even number; one head below that.

    >>> [choose_heads(features) for features in (10, 96, 192, 384, 1024)]
    [1, 1, 3, 6, 16]
    """
    fitting = [heads for heads in range(1, features // HEAD + 1) if features % (2 * heads) == 0]
    return max(fitting, default=1)


class Attention(nn.Module):
    r"""Multi-head attention by :func:`torch.nn.functional.scaled_dot_product_attention`.

    Args:
        features: Features per position, an even number for every head.
        heads: Attention heads; a divisor of ``features``.
        dropout: Rate of dropout on the attention weights in training.
        rotary: Whether queries and keys are rotated by their position.

    Shape:
        - Input and output: :math:`(B, N, D)`; what is attended to, where it is not the input: :math:`(B, M, D)`.

    Examples::

        >>> Attention(8, 2)(torch.randn(3, 5, 8)).shape
        torch.Size([3, 5, 8])
        >>> Attention(8, 2)(torch.randn(3, 5, 8), torch.randn(3, 9, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        dropout: float = 0.0,
        rotary: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if heads < 1 or features % (2 * heads):
            raise ValueError(f"every head needs the same even number of features, got {features} and {heads} heads")
        self.heads, self.dropout, self.rotary = heads, dropout, rotary
        self.query_key_value = nn.Linear(features, 3 * features, bias=False, device=device, dtype=dtype)
        self.output = nn.Linear(features, features, bias=False, device=device, dtype=dtype)
        for matrix in (*self.query_key_value.weight.chunk(3), self.output.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """Let every position attend to all positions of the input, or of ``memory_BMD``."""
        if memory_BMD is None:
            query, key, value = self.query_key_value(x_BND).chunk(3, dim=-1)
        else:
            for_query, for_memory = self.query_key_value.weight.split([x_BND.shape[-1], 2 * x_BND.shape[-1]])
            query = F.linear(x_BND, for_query)
            key, value = F.linear(memory_BMD, for_memory).chunk(2, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        if self.rotary:
            turn = rotation(query.shape[2], query.shape[3], x_BND.device)
            query, key = rotate(query, turn), rotate(key, turn)
        dropout = self.dropout if self.training else 0.0
        mixed_BHNE = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.output(mixed_BHNE.transpose(1, 2).flatten(-2))


class FeedForward(nn.Sequential):
    """Two linear maps at every position with a nonlinearity between them.

    Args:
        features: Features per position.
        hidden: Features between the maps.
        activation: The nonlinearity.
        dropout: Rate of dropout between the maps in training.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        activation: nn.Module,
        *,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        inward = nn.Linear(features, hidden, device=device, dtype=dtype)
        outward = nn.Linear(hidden, features, device=device, dtype=dtype)
        super().__init__(inward, activation, nn.Dropout(dropout), outward)
        for layer in (inward, outward):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def rotation(length: int, features: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles of every position, ``[N, E / 2]`` each, for :func:`rotate`."""
    wave = torch.arange(0, features, 2, device=device) / features
    angle = torch.arange(length, device=device)[:, None] * LONGEST_WAVE**-wave
    return angle.cos(), angle.sin()


def rotate(x_BHNE: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the two halves of every head against each other by their position's angles."""
    cosine, sine = (part.to(x_BHNE.dtype) for part in turn)
    first, second = x_BHNE.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def position_signal(positions_N: Tensor, features: int) -> Tensor:
    """Sines and cosines of every position at wave lengths from 2π to 20000π, ``[N, D]``.

    >>> position_signal(torch.tensor([0, 1]), 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    waves = features // 2
    fall = math.log(LONGEST_WAVE) / max(waves - 1, 1)
    angle = positions_N[:, None] * torch.exp(-fall * torch.arange(waves, device=positions_N.device))
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
