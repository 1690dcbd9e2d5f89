"""A transformer encoder as one would build it today: pre-norm, rotary or other positions, FlashAttention on a GPU; or
as it was first built, normalised after every sum.

Its layer, the position codes and the scaled embedding serve the Universal Transformer, too.
"""

# B = batch, N = length, M = length of what is attended to, D = features, H = heads, E = D // H features per head,
# K = 2 * N - 1 distances
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.models.base import SymbolModel
from riffle.nn.lengths import pad_to

Positions = Literal["none", "rotary", "alibi", "relative"]
POSITIONS: tuple[Positions, ...] = get_args(Positions)
HEAD_FEATURES = 64
"""Features of a head, where the number of heads is not given."""
LONGEST_WAVE = 10_000.0
ALIBI_STEP = 8.0
"""In the last head a step of distance costs 2 to the power of minus this."""
ALIBI_EARLIER = 0.5
"""Steps by which an earlier position is nearer than a later one, so that attention without a mask tells them apart."""
DISTANCE_BIAS = 0.02
"""Standard deviation of the initial biases of relative positions."""
MERGED_LENGTH = 128
"""Batches up to this length run as one with a mask: short ones are bound by launches, long ones by arithmetic."""


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
    r"""Multi-head attention by :func:`torch.nn.functional.scaled_dot_product_attention`.

    ``positions`` is what makes the attention weights depend on positions:

    - "none": nothing here;
    - "rotary": queries and keys are rotated by their position (Su et al., 2021);
    - "alibi": the score falls by :math:`2^{-8 h / H}` with every step of distance in head :math:`h` of :math:`H`,
      half a step less to earlier positions (Press et al., 2022, without a causal mask);
    - "relative": the score of position :math:`j` at :math:`i` is
      :math:`(q_i + u) \cdot k_j + (q_i + v) \cdot W r_{j - i}`, with learned :math:`u`, :math:`v`, :math:`W` and the
      sines and cosines :math:`r` of the distance (Dai et al., 2019).

    With "none" and "rotary" a GPU can compute it by FlashAttention; the others add a bias to the scores. With
    ``causal`` and one of these two a position attends to earlier ones and itself.
    """

    def __init__(
        self, features: int, heads: int, *, positions: Positions = "none", causal: bool = False, **factory: Any
    ) -> None:
        super().__init__()
        if heads < 1 or features % (2 * heads):
            raise ValueError(f"every head needs the same even number of features, got {features} and {heads} heads")
        if positions not in POSITIONS:
            raise ValueError(f"unknown positions {positions!r}; choose one of {', '.join(POSITIONS)}")
        self.heads, self.positions, self.causal = heads, positions, causal
        self.query_key_value = nn.Linear(features, 3 * features, bias=False, **factory)
        self.output = nn.Linear(features, features, bias=False, **factory)
        for matrix in (*self.query_key_value.weight.chunk(3), self.output.weight):
            nn.init.xavier_uniform_(matrix)
        if positions == "relative":
            self.distance = nn.Linear(features, features, bias=False, **factory)
            self.content_bias = nn.Parameter(torch.empty(heads, 1, features // heads, **factory))
            self.distance_bias = nn.Parameter(torch.empty(heads, 1, features // heads, **factory))
            nn.init.xavier_uniform_(self.distance.weight)
            for bias in (self.content_bias, self.distance_bias):
                nn.init.normal_(bias, std=DISTANCE_BIAS)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None, *, inside_BM: Tensor | None = None) -> Tensor:
        """Let every position attend to all positions of the input, or of ``memory_BMD``, that are ``inside_BM``."""
        if memory_BMD is None:
            query, key, value = self.query_key_value(x_BND).chunk(3, dim=-1)
        else:
            for_query, for_memory = self.query_key_value.weight.split([x_BND.shape[-1], 2 * x_BND.shape[-1]])
            query = F.linear(x_BND, for_query)
            key, value = F.linear(memory_BMD, for_memory).chunk(2, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        bias: Tensor | None = None
        match self.positions:
            case "rotary":
                rotation = rotary_angles(query.shape[2], query.shape[3], x_BND.device)
                query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
            case "alibi":
                bias = alibi_bias(self.heads, query.shape[2], x_BND.device).to(query.dtype)[None]
            case "relative":
                bias = self._distance_scores(query).to(query.dtype)
                query = (query + self.content_bias).to(key.dtype)
        if inside_BM is not None:
            inside_B11M = inside_BM[:, None, None]
            bias = inside_B11M if bias is None else bias.masked_fill(~inside_B11M, -torch.inf)
        mixed_BHNE = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=self.causal)
        return self.output(mixed_BHNE.transpose(1, 2).flatten(-2))

    def _distance_scores(self, query_BHNE: Tensor) -> Tensor:
        """The part of the scores that depends on distances, ``[B, H, N, N]``."""
        length = query_BHNE.shape[2]
        steps_K = torch.arange(1 - length, length, device=query_BHNE.device)
        code_KD = position_code(steps_K, self.distance.in_features).to(self.distance.weight.dtype)
        key_HEK = self.distance(code_KD).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
        score_BHNK = (query_BHNE + self.distance_bias) @ key_HEK.to(query_BHNE.dtype) * query_BHNE.shape[3] ** -0.5
        # Row i needs the distances from -i on. Padding each row by one number and then reading rows of the old length
        # shifts every row by one more than the row before.
        flat_BHX = F.pad(score_BHNK, (0, 1)).flatten(-2)[..., length - 1 : length - 1 + length * (2 * length - 1)]
        return flat_BHX.unflatten(-1, (length, -1))[..., :length].contiguous()


class FeedForward(nn.Sequential):
    """Two linear maps at every position, a nonlinearity on four times as many features between them."""

    def __init__(self, features: int, activation: nn.Module, **factory: Any) -> None:
        inward, outward = nn.Linear(features, 4 * features, **factory), nn.Linear(4 * features, features, **factory)
        super().__init__(inward, activation, nn.Dropout(0.0), outward)  # so names and random draws are as ever
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


def alibi_bias(heads: int, length: int, device: torch.device) -> Tensor:
    """What every head adds to the score of each position at each other one, ``[H, N, N]``.

    >>> alibi_bias(1, 3, torch.device("cpu")).mul(2**8).tolist()
    [[[-0.0, -1.0, -2.0], [-0.5, -0.0, -1.0], [-1.5, -0.5, -0.0]]]
    """
    position_N = torch.arange(length, device=device)
    steps_NN = position_N - position_N[:, None]
    away_NN = steps_NN.abs() - ALIBI_EARLIER * (steps_NN < 0)
    slope_H = 2 ** (-ALIBI_STEP / heads * torch.arange(1, heads + 1, device=device))
    return -slope_H[:, None, None] * away_NN


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
    """A transformer layer: attention, with ``cross`` attention to a memory too, then a feed-forward layer.

    Each adds to what it reads, normalised (pre-norm), or with ``post_norm`` the sum is normalised. ``dropout`` is the
    rate of what each of them adds.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        activation: nn.Module,
        *,
        epsilon: float = 1e-5,
        positions: Positions = "none",
        cross: bool = False,
        post_norm: bool = False,
        dropout: float = 0.0,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.post_norm = post_norm
        self.attention_norm = nn.LayerNorm(features, eps=epsilon, **factory)
        self.attention = Attention(features, heads, positions=positions, **factory)
        self.cross_norm = nn.LayerNorm(features, eps=epsilon, **factory) if cross else None
        self.cross = Attention(features, heads, **factory) if cross else None
        self.feed_forward_norm = nn.LayerNorm(features, eps=epsilon, **factory)
        self.feed_forward = FeedForward(features, activation, **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None, *, inside_BN: Tensor | None = None) -> Tensor:
        """Map a sequence to a sequence, in which positions attend to those that are ``inside_BN``."""
        x_BND = self._add(x_BND, self.attention_norm, partial(self.attention, inside_BM=inside_BN))
        if self.cross is not None and self.cross_norm is not None:
            x_BND = self._add(x_BND, self.cross_norm, partial(self.cross, memory_BMD=memory_BMD))
        return self._add(x_BND, self.feed_forward_norm, self.feed_forward)

    def _add(self, x_BND: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.post_norm:
            return norm(x_BND + self.dropout(sublayer(x_BND)))
        return x_BND + self.dropout(sublayer(norm(x_BND)))


class Transformer(SymbolModel, tags=["transformer"]):
    r"""Map a sequence of symbols to scores over the output alphabet by a transformer encoder.

    Args:
        symbols, classes: See :class:`~riffle.models.base.SymbolModel`.
        features: Features per position, an even number.
        layers: Transformer layers.
        heads: Attention heads; by default as many as have 64 features each or more.
        positions: Position codes of every layer's :class:`Attention`.
        reads_first: Whether it answers at as many blanks after the input instead of at the symbols themselves.
        post_norm: Whether sums are normalised, with ReLU in the feed-forward layers (Vaswani et al., 2017), in place of
            what each sublayer reads, with GELU.
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
        positions: Positions = "rotary",
        reads_first: bool = False,
        post_norm: bool = False,
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
        self.reads_first = reads_first
        self.embedding = ScaledEmbedding(symbols, features, **factory)
        activation = nn.ReLU() if post_norm else nn.GELU()
        options = {"positions": positions, "post_norm": post_norm, "dropout": dropout, **factory}
        self.layers = nn.ModuleList(TransformerLayer(features, heads, activation, **options) for _ in range(layers))
        self.norm = nn.Identity() if post_norm else nn.LayerNorm(features, **factory)
        self.output = nn.Linear(features, classes, **factory)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        length = x_BND.shape[1]
        x_BND = self._encode(pad_to(x_BND, 2 * length) if self.reads_first else x_BND)
        return self.output(x_BND[:, -length:])

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of checked batches: short ones as one, in which no row attends to what pads it."""
        lengths = [symbols_BN.shape[1] for symbols_BN in batches]
        if len(set(lengths)) < 2 or max(lengths) > MERGED_LENGTH:
            return super().run(batches)
        ends = [2 * length if self.reads_first else length for length in lengths]
        position_N = torch.arange(max(ends), device=batches[0].device)
        inside = [(position_N < end).expand(len(batch), -1) for end, batch in zip(ends, batches, strict=True)]
        x_BND = torch.cat([pad_to(self.embed(symbols_BN), max(ends)) for symbols_BN in batches])
        scores_BNC = self.output(self._encode(x_BND, torch.cat(inside)))
        parts = zip(lengths, ends, scores_BNC.split([len(symbols_BN) for symbols_BN in batches]), strict=True)
        return [part_BNC[:, end - length : end] for length, end, part_BNC in parts]

    def _encode(self, x_BND: Tensor, inside_BN: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x_BND = layer(x_BND, inside_BN=inside_BN)
        return self.norm(x_BND)
