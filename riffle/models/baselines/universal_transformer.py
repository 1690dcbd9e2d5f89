"""Adaptive computation time: every position decides after how many steps it is done.

The Universal Transformer: one transformer layer applied step after step, a fixed number or until it halts.

The Universal Transformer as a reader: which word a passage ends with.
"""

# B = batch, N = length, D = features
# B = batch, N = length, M = length of what a decoder attends to, D = features, C = classes
# B = batch, N = length, D = features, V = words
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from riffle.models.base import BaselineModel, CellModel
from riffle.models.baselines.transformers import (
    Attention,
    FeedForward,
    choose_heads,
    embed,
    make_embedding,
    position_signal,
)
from riffle.nn.hub import HubMixin

HALTING_BIAS = 1.0
"""Where the bias of the halting probability starts: sigmoid(1) = 0.73, so positions stop early at first."""
EPSILON = 0.01
"""A position has halted when its probabilities add up to 1 less this."""


class Halting(nn.Module):
    r"""Weigh the states of a position over steps by its probabilities of halting.

    Before each step a position at state :math:`s` halts with probability :math:`p = \sigma(w \cdot s + b)`. When its
    probabilities reach :math:`1 - \epsilon`, the position has halted, and its last step weighs the remainder to 1. With
    the weight :math:`w_t` of step :math:`t` and the state :math:`s_t` it made, the result is
    :math:`y_t = w_t s_t + (1 - w_t) y_{t-1}`. :attr:`ponder` is the mean of steps and remainder over all positions.

    All steps are computed whoever has halted, so shapes and kernels do not depend on the data.

    Args:
        features: Features per position.

    Examples::

        >>> halting = Halting(4).start(torch.zeros(2, 3, 4))
        >>> for _ in range(3):
        ...     halting.weigh(torch.zeros(2, 3, 4))
        ...     halting.mix(torch.ones(2, 3, 4))
        >>> halting.steps_BN.tolist()
        [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.probability = nn.Linear(features, 1, device=device, dtype=dtype)
        nn.init.xavier_uniform_(self.probability.weight)
        nn.init.constant_(self.probability.bias, HALTING_BIAS)

    def start(self, x_BND: Tensor) -> Halting:
        """Begin anew with states of this shape."""
        zero_BN = torch.zeros_like(x_BND[..., 0])
        self.spent_BN, self.remainder_BN, self.steps_BN, self.weight_BN = zero_BN, zero_BN, zero_BN, zero_BN
        self.result_BND = torch.zeros_like(x_BND)
        return self

    def weigh(self, s_BND: Tensor) -> None:
        """Decide, from the states before a step, how much it counts at every position."""
        p_BN = torch.sigmoid(self.probability(s_BND)[..., 0].to(self.spent_BN.dtype))
        running_BN = self.spent_BN < 1
        halts_BN = running_BN & (self.spent_BN + p_BN > 1 - EPSILON)
        rest_BN = 1 - self.spent_BN
        self.weight_BN = torch.where(halts_BN, rest_BN, torch.where(running_BN, p_BN, 0))
        self.remainder_BN = torch.where(halts_BN, rest_BN, self.remainder_BN)
        self.spent_BN = torch.where(halts_BN, 1, self.spent_BN + self.weight_BN)
        self.steps_BN = self.steps_BN + running_BN

    def mix(self, s_BND: Tensor) -> None:
        """Add the states after the step to the result."""
        self.result_BND = torch.lerp(self.result_BND, s_BND, self.weight_BN[..., None])

    @property
    def ponder(self) -> Tensor:
        """Steps and remainder, averaged over all positions; what training should keep small."""
        return (self.steps_BN + self.remainder_BN).mean()


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
        halting: Whether each position decides when it is done, see :class:`Halting`.
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


class UniversalTransformer(BaselineModel, tags=["universal-transformer"]):
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

    def forward_cells(self, x_BND: Tensor) -> Tensor:
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


Head = Literal["class", "pointer"]


class UniversalReader(CellModel, HubMixin, tags=["universal-transformer"], license="mit"):
    r"""Answer a passage with a word: a class over the vocabulary, or a position of the passage.

    The class head is that of the Universal Transformer's paper: a decoder attends to the encoded passage from one
    position that starts as zeros, and a linear map scores every word. The pointer head scores every position of the
    encoded passage, as a shuffle-exchange network does.

    Args:
        words: Size of the vocabulary; word 0 is the blank.
        features: Features per position.
        head: "class" or "pointer".
        classes: Words that can be an answer, where these are not all of ``words``.
        **stack: See :class:`~riffle.models.baselines.universal_transformer.UniversalStack`.

    Shape:
        - Input: :math:`(B, N)` words.
        - Output: :math:`(B, V)` with :math:`V` = ``classes`` for classes, :math:`(B, N)` for a pointer.

    Examples::

        >>> passage = torch.tensor([[3, 1, 2, 5]])
        >>> UniversalReader(100, 16, steps=2)(passage).shape
        torch.Size([1, 100])
        >>> UniversalReader(100, 16, steps=2, head="pointer")(passage).shape
        torch.Size([1, 4])
    """

    def __init__(
        self,
        words: int,
        features: int = 1024,
        *,
        head: Head = "class",
        classes: int | None = None,
        device: Any = None,
        dtype: Any = None,
        **stack: Any,
    ) -> None:
        super().__init__()
        if head not in ("class", "pointer"):
            raise ValueError(f"unknown head {head!r}; choose one of class, pointer")
        factory = {"device": device, "dtype": dtype}
        self.embedding = make_embedding(words, features, **factory)
        self.encoder = UniversalStack(features, **stack, **factory)
        self.decoder = UniversalStack(features, cross=True, **stack, **factory) if head == "class" else None
        self.output = nn.Linear(features, (classes or words) if head == "class" else 1, **factory)

    def forward(self, words_BN: Tensor) -> Tensor:
        """Score every word, or every position."""
        return self.forward_cells(embed(self.embedding, words_BN))

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """The same for words that are given as vectors."""
        passage_BND = self.encoder(x_BND)
        if self.decoder is None:
            return self.output(passage_BND)[..., 0]
        answer_B1D = self.decoder(torch.zeros_like(passage_BND[:, :1]), passage_BND)
        return self.output(answer_B1D)[:, 0]

    def extra_loss(self) -> Tensor:
        """The weighted ponder loss of the last call; zero without halting."""
        stacks = [self.encoder] if self.decoder is None else [self.encoder, self.decoder]
        ponder = [stack.ponder for stack in stacks if stack.ponder is not None]
        return PONDER_WEIGHT * torch.stack(ponder).sum() if ponder else torch.zeros_like(self.output.bias[0])
