"""Models that answer a passage: word vectors as cells, a cell model, a score for every word or every position."""

# B = passages, N = positions, D = features per cell, V = words
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from riffle.models.base import CellModel, Trainable

BLANK = 0
"""The id of a position without a word."""
MOST_MENTIONS = 7
"""The most mentions before or after a word that are counted."""


class MentionCounts(nn.Module):
    r"""A learned vector for how often every word of a passage occurs before its place, and one for how often after it.

    Args:
        features: Feature maps per cell, :math:`m` in the paper.

    Shape:
        - Input: ids :math:`(B, N)`, equal for equal words.
        - Output: :math:`(B, N, D)` with :math:`D` = ``features``; zero for a blank, and for all ids before training.

    Examples::

        >>> MentionCounts(features=8)(torch.tensor([[5, 7, 5, 0]])).shape
        torch.Size([1, 4, 8])
    """

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.earlier, self.later = (
            nn.Embedding(MOST_MENTIONS + 1, features, device=device, dtype=dtype) for _ in range(2)
        )
        for table in (self.earlier, self.later):
            nn.init.zeros_(table.weight)

    def forward(self, ids_BN: Tensor) -> Tensor:
        same_BNN = ids_BN[:, :, None] == ids_BN[:, None, :]
        earlier_BN, later_BN = (
            side_BNN.sum(dim=2).clamp(max=MOST_MENTIONS) for side_BNN in (same_BNN.tril(-1), same_BNN.triu(1))
        )
        return (self.earlier(earlier_BN) + self.later(later_BN)) * (ids_BN != BLANK).unsqueeze(-1)


class WordModel(Trainable):
    r"""Score every known word as the one that was left out of a passage.

    Args:
        words: Maps ids :math:`(B, N)` to cells :math:`(B, N, D)`, as :class:`riffle.lambada.FrozenWords` does.
        reader: The cell model; its embedding of symbols is deleted.
        word_dropout: Share of the words that are zeroed in training; the others are scaled up, as in dropout.
        mentions: Maps ids to what is added to the cells, as :class:`MentionCounts` does; None for nothing.

    Shape:
        - Input: :math:`(B, N)` ids of words.
        - Output: :math:`(B, V)` scores.
    """

    def __init__(
        self, words: nn.Module, reader: CellModel, *, word_dropout: float = 0.0, mentions: nn.Module | None = None
    ) -> None:
        super().__init__()
        if not 0 <= word_dropout < 1:
            raise ValueError(f"word_dropout must lie in [0, 1), got {word_dropout}")
        delattr(reader, reader.embedding_name)
        self.words, self.mentions, self.reader = words, mentions, reader
        self.word_dropout = word_dropout

    def forward(self, ids_BN: Tensor) -> Tensor:
        """The reader's scores."""
        x_BND = self.words(ids_BN)
        if self.mentions is not None:
            x_BND = x_BND + self.mentions(ids_BN)
        if self.training and self.word_dropout:
            kept_BN1 = torch.rand(*ids_BN.shape, 1, device=ids_BN.device) >= self.word_dropout
            x_BND = x_BND * (kept_BN1 / (1 - self.word_dropout))
        return self.reader.forward_cells(x_BND)

    def extra_loss(self) -> Tensor:
        return self.reader.extra_loss()

    def step_statistics(self) -> list[Tensor]:
        return self.reader.step_statistics()

    def after_step(self, loss: Tensor, learning_rate: Tensor) -> None:
        self.reader.after_step(loss, learning_rate)


class PointerModel(WordModel):
    r"""Score every position of a passage; a softmax over them points at the word that was left out.

    Args:
        words, word_dropout, mentions: See :class:`WordModel`.
        reader: A cell model of one class.

    Shape:
        - Input: :math:`(B, N)` ids of words.
        - Output: :math:`(B, N)` scores, also of positions without a word.
    """

    def forward(self, ids_BN: Tensor) -> Tensor:
        """Score every position."""
        return super().forward(ids_BN)[..., 0]
