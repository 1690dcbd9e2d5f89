"""The Universal Transformer: one transformer layer applied step after step, a fixed number or until it halts."""

# B = batch, N = length, M = length of what a decoder attends to, D = features, C = classes
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from riffle.baselines.attention import Attention, FeedForward, choose_heads, position_signal
from riffle.baselines.base import Rival
from riffle.baselines.halting import Halting

PONDER_WEIGHT = 0.01
"""Weight of the ponder loss."""
NORM_EPSILON = 1e-6


class UniversalLayer(nn.Module):
    """The pre-norm transformer layer that is applied at every step.

    Args:
        features, hidden, heads, cross, dropout, inner_dropout: See :class:`UniversalStack`.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        heads: int,
        *,
        cross: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.attention_norm = nn.LayerNorm(features, eps=NORM_EPSILON, **factory)
        self.attention = Attention(features, heads, dropout=inner_dropout, **factory)
        self.cross_norm = nn.LayerNorm(features, eps=NORM_EPSILON, **factory) if cross else None
        self.cross = Attention(features, heads, dropout=inner_dropout, **factory) if cross else None
        self.feed_forward_norm = nn.LayerNorm(features, eps=NORM_EPSILON, **factory)
        self.feed_forward = FeedForward(features, hidden, nn.ReLU(), dropout=inner_dropout, **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, s_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """Map a sequence to a sequence."""
        s_BND = s_BND + self.dropout(self.attention(self.attention_norm(s_BND)))
        if self.cross is not None and self.cross_norm is not None:
            s_BND = s_BND + self.dropout(self.cross(self.cross_norm(s_BND), memory_BMD))
        return s_BND + self.dropout(self.feed_forward(self.feed_forward_norm(s_BND)))


class UniversalStack(nn.Module):
    r"""Apply one pre-norm transformer layer again and again, with signals of position and step before each.

    Args:
        features: Features per position.
        hidden: Features inside the feed-forward layer, four times ``features`` by default.
        heads: Attention heads.
        steps: How often the layer is applied; with ``halting``, at most.
        halting: Whether each position decides when it is done, see :class:`~riffle.baselines.halting.Halting`.
        cross: Whether the layer also attends to a memory, as a decoder does.
        dropout: Rate of dropout on the input and on what each sublayer adds, in training.
        inner_dropout: Rate of dropout inside attention and feed-forward layer, in training.
        offset: In training, positions count from a random number up to this.

    Shape:
        - Input and output: :math:`(B, N, D)` with any :math:`N \ge 1`; memory: :math:`(B, M, D)`.

    Examples::

        >>> stack = UniversalStack(16, heads=2, steps=3)
        >>> stack(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        features: int,
        *,
        hidden: int | None = None,
        heads: int | None = None,
        steps: int = 6,
        halting: bool = False,
        cross: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        offset: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        factory = {"device": device, "dtype": dtype}
        self.features, self.steps, self.offset = features, steps, offset
        self.step_signal = nn.Embedding(steps, features, **factory)
        self.layer = UniversalLayer(
            features,
            hidden or 4 * features,
            heads or choose_heads(features),
            cross=cross,
            dropout=dropout,
            inner_dropout=inner_dropout,
            **factory,
        )
        self.norm = nn.LayerNorm(features, eps=NORM_EPSILON, **factory)
        self.dropout = nn.Dropout(dropout)
        self.halting = Halting(features, **factory) if halting else None
        nn.init.normal_(self.step_signal.weight, std=features**-0.5)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """Map a sequence to a sequence."""
        s_BND = self.dropout(x_BND)
        signal_ND = self._positions(x_BND)
        halting = self.halting.start(s_BND) if self.halting is not None else None
        for step in range(self.steps):
            s_BND = s_BND + signal_ND + self.step_signal.weight[step]
            if halting is not None:
                halting.weigh(s_BND)
            s_BND = self.layer(s_BND, memory_BMD)
            if halting is not None:
                halting.mix(s_BND)
        return self.norm(s_BND if halting is None else halting.result_BND)

    def _positions(self, x_BND: Tensor) -> Tensor:
        positions_N = torch.arange(x_BND.shape[1], device=x_BND.device)
        if self.training and self.offset:
            positions_N = positions_N + torch.randint(0, self.offset + 1, (1,), device=x_BND.device)
        return position_signal(positions_N, self.features).to(x_BND.dtype)

    @property
    def ponder(self) -> Tensor | None:
        """Mean steps and remainder of the last call, None without halting."""
        return self.halting.ponder if self.halting is not None else None


class UniversalTransformer(Rival, tags=["universal-transformer"]):
    r"""Map a sequence of symbols to scores over the output alphabet by the encoder of a Universal Transformer.

    Args:
        symbols: Size of the input alphabet.
        classes: Size of the output alphabet.
        features: Features per position; 1024 in its base configuration.
        hidden, heads, steps, halting, dropout, inner_dropout, offset: See :class:`UniversalStack`. The base
            configuration has 4096 hidden features, 16 heads and 6 steps; with halting at most 12.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> model = UniversalTransformer(symbols=12, classes=12, features=16, steps=12, halting=True)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
        >>> bool(model.extra_loss() > 0)
        True
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int = 1024,
        *,
        hidden: int | None = None,
        heads: int | None = None,
        steps: int = 6,
        halting: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        offset: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = make_embedding(symbols, features, **factory)
        self.encoder = UniversalStack(
            features,
            hidden=hidden,
            heads=heads,
            steps=steps,
            halting=halting,
            dropout=dropout,
            inner_dropout=inner_dropout,
            offset=offset,
            **factory,
        )
        self.output = nn.Linear(features, classes, **factory)
        self._ponder: list[Tensor] = []

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of batches, each of symbols of one length."""
        self._ponder = []
        return [self._scores(embed(self.embedding, symbols_BN)) for symbols_BN in batches]

    def read(self, x_BND: Tensor) -> Tensor:
        """The scores of positions that are given as vectors."""
        self._ponder = []
        return self._scores(x_BND)

    def _scores(self, x_BND: Tensor) -> Tensor:
        scores_BNC = self.output(self.encoder(x_BND))
        if self.encoder.ponder is not None:
            self._ponder.append(self.encoder.ponder)
        return scores_BNC

    def operations(self, length: int) -> float:
        """Additions and multiplications for one sequence: the layer's weights and the attention, in every step."""
        weights = sum(parameter.numel() for parameter in self.encoder.parameters())
        return self.encoder.steps * (2.0 * length * weights + 4.0 * length**2 * self.encoder.features)

    def extra_loss(self) -> Tensor:
        """The weighted ponder loss of the last batches; zero without halting."""
        return PONDER_WEIGHT * torch.stack(self._ponder).mean() if self._ponder else self.output.bias.new_zeros(())


def make_embedding(symbols: int, features: int, **factory: Any) -> nn.Embedding:
    """An embedding to be used by :func:`embed`."""
    embedding = nn.Embedding(symbols, features, **factory)
    nn.init.normal_(embedding.weight, std=features**-0.5)
    return embedding


def embed(embedding: nn.Embedding, symbols_BN: Tensor) -> Tensor:
    """The vectors of symbols, scaled to a variance of one."""
    return embedding(symbols_BN) * embedding.embedding_dim**0.5
