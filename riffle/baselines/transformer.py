"""A transformer encoder as one would build it today: pre-norm, rotary positions, FlashAttention on a GPU."""

# B = batch, N = length, D = features, C = classes
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from riffle.baselines.attention import Attention, FeedForward, choose_heads
from riffle.baselines.base import Rival
from riffle.baselines.universal_transformer import embed, make_embedding


class EncoderLayer(nn.Module):
    r"""A pre-norm transformer layer: attention with rotary positions, then a feed-forward layer.

    Args:
        features: Features per position.
        heads: Attention heads.
        dropout: Rate of dropout on what each sublayer adds, in training.

    Examples::

        >>> import torch
        >>> EncoderLayer(8, 2)(torch.randn(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self, features: int, heads: int, *, dropout: float = 0.0, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.attention_norm = nn.LayerNorm(features, **factory)
        self.attention = Attention(features, heads, rotary=True, **factory)
        self.feed_forward_norm = nn.LayerNorm(features, **factory)
        self.feed_forward = FeedForward(features, 4 * features, nn.GELU(), **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor) -> Tensor:
        """Map a sequence to a sequence."""
        x_BND = x_BND + self.dropout(self.attention(self.attention_norm(x_BND)))
        return x_BND + self.dropout(self.feed_forward(self.feed_forward_norm(x_BND)))


class Transformer(Rival, tags=["transformer"]):
    r"""Map a sequence of symbols to scores over the output alphabet by a transformer encoder.

    Args:
        symbols: Size of the input alphabet.
        classes: Size of the output alphabet.
        features: Features per position, an even number.
        layers: Transformer layers.
        heads: Attention heads; by default as many as have 64 features each or more.
        dropout: Rate of dropout on what each sublayer adds, in training.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> import torch
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
            raise ValueError(f"features must be even, since rotary positions turn pairs of them, got {features}")
        factory = {"device": device, "dtype": dtype}
        heads = heads or choose_heads(features)
        self.embedding = make_embedding(symbols, features, **factory)
        self.layers = nn.Sequential(*(EncoderLayer(features, heads, dropout=dropout, **factory) for _ in range(layers)))
        self.norm = nn.LayerNorm(features, **factory)
        self.output = nn.Linear(features, classes, **factory)

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of batches, each of symbols of one length."""
        return [self.read(embed(self.embedding, symbols_BN)) for symbols_BN in batches]

    def read(self, x_BND: Tensor) -> Tensor:
        """The scores of positions that are given as vectors."""
        return self.output(self.norm(self.layers(x_BND)))

    def operations(self, length: int) -> float:
        """Additions and multiplications for one sequence: weights at every position, and the attention."""
        return super().operations(length) + 4.0 * length**2 * len(self.layers) * self.output.in_features
