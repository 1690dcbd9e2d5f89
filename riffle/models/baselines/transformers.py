"""A transformer encoder as one would build it today: pre-norm, rotary positions, FlashAttention on a GPU.

Its layer, the position codes and the scaled embedding serve the Universal Transformer, too.
"""

# B = batch, N = length, M = length of what is attended to, D = features, H = heads, E = D // H features per head
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.models.base import BaselineModel

HEAD_FEATURES = 64
"""Features of a head, where the number of heads is not given."""
LONGEST_WAVE = 10_000.0


def choose_heads(features: int) -> int:
    """The largest number of equal heads of at least 64 features each, an even number; one head below that.

    >>> [choose_heads(features) for features in (10, 96, 192, 384, 1024)]
    [1, 1, 3, 6, 16]
    """
    fitting = [heads for heads in range(1, features // HEAD_FEATURES + 1) if features % (2 * heads) == 0]
    return max(fitting, default=1)


class ScaledEmbedding(nn.Embedding):
    """An embedding whose vectors are scaled to a variance of one."""

    def __init__(self, symbols: int, features: int, **factory: Any) -> None:
        super().__init__(symbols, features, **factory)
        nn.init.normal_(self.weight, std=features**-0.5)

    def forward(self, symbols_BN: Tensor) -> Tensor:
        """The vectors of symbols, ``[B, N, D]``."""
        return super().forward(symbols_BN) * self.embedding_dim**0.5


class Attention(nn.Module):
    """Multi-head attention by :func:`torch.nn.functional.scaled_dot_product_attention`.

    With ``rotary``, queries and keys are rotated by their position; ``dropout`` is that of the attention weights.
    """

    def __init__(
        self, features: int, heads: int, *, dropout: float = 0.0, rotary: bool = False, **factory: Any
    ) -> None:
        super().__init__()
        if heads < 1 or features % (2 * heads):
            raise ValueError(f"every head needs the same even number of features, got {features} and {heads} heads")
        self.heads, self.dropout, self.rotary = heads, dropout, rotary
        self.query_key_value = nn.Linear(features, 3 * features, bias=False, **factory)
        self.output = nn.Linear(features, features, bias=False, **factory)
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
            rotation = rotary_angles(query.shape[2], query.shape[3], x_BND.device)
            query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
        dropout = self.dropout if self.training else 0.0
        mixed_BHNE = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.output(mixed_BHNE.transpose(1, 2).flatten(-2))


class FeedForward(nn.Sequential):
    """Two linear maps at every position, ``hidden`` features, a nonlinearity and dropout between them."""

    def __init__(
        self, features: int, hidden: int, activation: nn.Module, *, dropout: float = 0.0, **factory: Any
    ) -> None:
        inward, outward = nn.Linear(features, hidden, **factory), nn.Linear(hidden, features, **factory)
        super().__init__(inward, activation, nn.Dropout(dropout), outward)
        for layer in (inward, outward):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def rotary_angles(length: int, features: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles of every position, ``[N, E / 2]`` each, for :func:`apply_rotary`."""
    wave = torch.arange(0, features, 2, device=device) / features
    angle = torch.arange(length, device=device)[:, None] * LONGEST_WAVE**-wave
    return angle.cos(), angle.sin()


def apply_rotary(x_BHNE: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the two halves of every head against each other by their position's angles."""
    cosine, sine = (part.to(x_BHNE.dtype) for part in rotation)
    first, second = x_BHNE.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def position_code(positions_N: Tensor, features: int) -> Tensor:
    """Sines and cosines of every position at wave lengths from 2π to 20000π, ``[N, D]``.

    >>> position_code(torch.tensor([0, 1]), 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    waves = features // 2
    decay = math.log(LONGEST_WAVE) / max(waves - 1, 1)
    angle = positions_N[:, None] * torch.exp(-decay * torch.arange(waves, device=positions_N.device))
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class TransformerLayer(nn.Module):
    """A pre-norm transformer layer: attention, with ``cross`` attention to a memory too, then a feed-forward layer.

    ``dropout`` is the rate of what each of them adds, ``inner_dropout`` that inside them.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        heads: int,
        activation: nn.Module,
        *,
        epsilon: float = 1e-5,
        rotary: bool = False,
        cross: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(features, eps=epsilon, **factory)
        self.attention = Attention(features, heads, dropout=inner_dropout, rotary=rotary, **factory)
        self.cross_norm = nn.LayerNorm(features, eps=epsilon, **factory) if cross else None
        self.cross = Attention(features, heads, dropout=inner_dropout, **factory) if cross else None
        self.feed_forward_norm = nn.LayerNorm(features, eps=epsilon, **factory)
        self.feed_forward = FeedForward(features, hidden, activation, dropout=inner_dropout, **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """Map a sequence to a sequence."""
        x_BND = x_BND + self.dropout(self.attention(self.attention_norm(x_BND)))
        if self.cross is not None and self.cross_norm is not None:
            x_BND = x_BND + self.dropout(self.cross(self.cross_norm(x_BND), memory_BMD))
        return x_BND + self.dropout(self.feed_forward(self.feed_forward_norm(x_BND)))


class Transformer(BaselineModel, tags=["transformer"]):
    r"""Map a sequence of symbols to scores over the output alphabet by a transformer encoder.

    Args:
        symbols, classes: See :class:`~riffle.models.base.BaselineModel`.
        features: Features per position, an even number.
        layers: Transformer layers.
        heads: Attention heads; by default as many as have 64 features each or more.
        dropout: Dropout rate of what each sublayer adds.

    Examples::

        >>> model = Transformer(symbols=12, classes=12, features=16)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        *,
        layers: int = 6,
        heads: int | None = None,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        if features % 2:
            raise ValueError(f"features must be even, since rotary positions rotate pairs of them, got {features}")
        factory = {"device": device, "dtype": dtype}
        heads = heads or choose_heads(features)
        self.embedding = ScaledEmbedding(symbols, features, **factory)
        self.layers = nn.Sequential(
            *(
                TransformerLayer(features, 4 * features, heads, nn.GELU(), rotary=True, dropout=dropout, **factory)
                for _ in range(layers)
            )
        )
        self.norm = nn.LayerNorm(features, **factory)
        self.output = nn.Linear(features, classes, **factory)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        return self.output(self.norm(self.layers(x_BND)))

    def operations(self, length: int) -> float:
        """Additions and multiplications for one sequence: weights at every position, and the attention."""
        return super().operations(length) + 4.0 * length**2 * len(self.layers) * self.output.in_features
