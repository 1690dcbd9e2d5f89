"""The Universal Transformer: one transformer layer, applied a fixed number of steps or until every position halts.

Halting is adaptive computation time (ACT). :class:`UniversalTransformer` is the encoder, for tasks;
:class:`UniversalReader` answers passages.
"""

# B = batch, N = length, M = length of what a decoder attends to, D = features, C = classes, V = words
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from research.baselines.transformers import ScaledEmbedding, TransformerLayer, choose_heads, position_code
from riffle.models.base import CellModel, SymbolModel

HALTING_BIAS = 1.0
"""Initial bias of the halting probability: sigmoid(1) = 0.73, so positions halt early at first."""
EPSILON = 0.01
"""A position has halted when its probabilities add up to 1 less this."""
PONDER_WEIGHT = 0.01
"""Weight of the ponder loss."""
NORM_EPSILON = 1e-6


class Halting(nn.Module):
    r"""Average the states of a position over steps, weighted by its probabilities of halting (ACT).

    Before each step a position at state :math:`s` halts with probability :math:`p = \sigma(w \cdot s + b)`. When its
    probabilities reach :math:`1 - \epsilon`, the position has halted, and the weight of its last step is the remainder
    to 1. With the weight :math:`w_t` of step :math:`t` and the state :math:`s_t` after it, the result is
    :math:`y_t = w_t s_t + (1 - w_t) y_{t-1}`. :attr:`ponder` is the mean of steps and remainder over all positions.

    All steps are computed for all positions, so shapes and kernels do not depend on the data.
    """

    def __init__(self, features: int, **factory: Any) -> None:
        super().__init__()
        self.probability = nn.Linear(features, 1, **factory)
        nn.init.xavier_uniform_(self.probability.weight)
        nn.init.constant_(self.probability.bias, HALTING_BIAS)

    def start(self, x_BND: Tensor) -> Halting:
        """Reset for states of this shape."""
        zero_BN = torch.zeros_like(x_BND[..., 0])
        self.spent_BN, self.remainder_BN, self.steps_BN, self.weight_BN = zero_BN, zero_BN, zero_BN, zero_BN
        self.result_BND = torch.zeros_like(x_BND)
        return self

    def weigh(self, s_BND: Tensor) -> None:
        """Set the weight of a step at every position, from the states before it."""
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
        """Steps plus remainder, averaged over all positions; training minimises it."""
        return (self.steps_BN + self.remainder_BN).mean()


class UniversalStack(nn.Module):
    r"""Apply one pre-norm transformer layer repeatedly, adding codes of position and step before each step.

    Args:
        features: Features per position.
        heads: Attention heads; by default as many as have 64 features each or more.
        steps: How often the layer is applied; with ``halting``, at most.
        halting: Whether each position decides when it is done, see :class:`Halting`.
        cross: Whether the layer also attends to a memory, as a decoder does.
        dropout: Dropout rate of the input and of what each sublayer adds.

    Shape:
        - Input and output: :math:`(B, N, D)` with any :math:`N \ge 1`; memory: :math:`(B, M, D)`.
    """

    def __init__(
        self,
        features: int,
        *,
        heads: int | None = None,
        steps: int = 6,
        halting: bool = False,
        cross: bool = False,
        dropout: float = 0.0,
        **factory: Any,
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.features, self.steps = features, steps
        self.step_signal = nn.Embedding(steps, features, **factory)
        options = {"epsilon": NORM_EPSILON, "cross": cross, "dropout": dropout, **factory}
        self.layer = TransformerLayer(features, heads or choose_heads(features), nn.ReLU(), **options)
        self.norm = nn.LayerNorm(features, eps=NORM_EPSILON, **factory)
        self.dropout = nn.Dropout(dropout)
        self.halting = Halting(features, **factory) if halting else None
        nn.init.normal_(self.step_signal.weight, std=features**-0.5)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """Map a sequence to a sequence."""
        # States have the type of the weights even where autocast made the input a shorter type.
        s_BND = self.dropout(x_BND).to(self.step_signal.weight.dtype)
        positions_N = torch.arange(x_BND.shape[1], device=x_BND.device)
        position_ND = position_code(positions_N, self.features).to(s_BND.dtype)
        halting = self.halting.start(s_BND) if self.halting is not None else None
        for step in range(self.steps):
            s_BND = s_BND + position_ND + self.step_signal.weight[step]
            if halting is not None:
                halting.weigh(s_BND)
            s_BND = self.layer(s_BND, memory_BMD)
            if halting is not None:
                halting.mix(s_BND)
        return self.norm(s_BND if halting is None else halting.result_BND)

    @property
    def ponder(self) -> Tensor:
        """:attr:`Halting.ponder` of the last call, zero without halting."""
        return self.halting.ponder if self.halting is not None else self.norm.bias.new_zeros(())


class UniversalTransformer(SymbolModel, tags=["universal-transformer"]):
    r"""Map a sequence of symbols to scores over the output alphabet by the encoder of a Universal Transformer.

    Args:
        symbols, classes: See :class:`~riffle.models.base.SymbolModel`.
        features, **stack: See :class:`UniversalStack`. The base configuration has 1024 features, 16 heads and 6 steps;
            with halting at most 12.

    Examples::

        >>> model = UniversalTransformer(symbols=12, classes=12, features=16, steps=12, halting=True)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
        >>> bool(model.extra_loss() > 0)
        True
    """

    def __init__(
        self, symbols: int, classes: int, features: int = 1024, *, device: Any = None, dtype: Any = None, **stack: Any
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = ScaledEmbedding(symbols, features, **factory)
        self.encoder = UniversalStack(features, **stack, **factory)
        self.output = nn.Linear(features, classes, **factory)
        self._ponder: list[Tensor] = []

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        results = [(self.forward_cells(self.embed(symbols_BN)), self.encoder.ponder) for symbols_BN in batches]
        self._ponder = [ponder for _, ponder in results]
        return [scores_BNC for scores_BNC, _ in results]

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        scores_BNC = self.output(self.encoder(x_BND))
        self._ponder = [self.encoder.ponder]
        return scores_BNC

    def extra_loss(self) -> Tensor:
        """The weighted ponder loss of the last batches; zero without halting."""
        return PONDER_WEIGHT * torch.stack(self._ponder).mean() if self._ponder else super().extra_loss()


class UniversalReader(CellModel):
    r"""Answer a passage with a word of the vocabulary, as in the Universal Transformer's paper.

    A decoder attends to the encoded passage from one position that starts as zeros, and a linear map scores every word.

    Args:
        words: Size of the vocabulary; word 0 is the blank.
        features: Features per position.
        classes: Words that can be an answer, where these are not all of ``words``.
        **stack: See :class:`UniversalStack`.

    Shape:
        - Input: :math:`(B, N)` words.
        - Output: :math:`(B, V)` with :math:`V` = ``classes``.

    Examples::

        >>> UniversalReader(100, 16, steps=2)(torch.tensor([[3, 1, 2, 5]])).shape
        torch.Size([1, 100])
    """

    def __init__(
        self,
        words: int,
        features: int = 1024,
        *,
        classes: int | None = None,
        device: Any = None,
        dtype: Any = None,
        **stack: Any,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = ScaledEmbedding(words, features, **factory)
        self.encoder = UniversalStack(features, **stack, **factory)
        self.decoder = UniversalStack(features, cross=True, **stack, **factory)
        self.output = nn.Linear(features, classes or words, **factory)

    def forward(self, words_BN: Tensor) -> Tensor:
        """Score every word."""
        return self.forward_cells(self.embedding(words_BN))

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """Score every word, ``[B, V]``."""
        passage_BND = self.encoder(x_BND)
        answer_B1D = self.decoder(torch.zeros_like(passage_BND[:, :1]), passage_BND)
        return self.output(answer_B1D)[:, 0]

    def extra_loss(self) -> Tensor:
        """The weighted ponder loss of the last call; zero without halting."""
        return PONDER_WEIGHT * (self.encoder.ponder + self.decoder.ponder)
