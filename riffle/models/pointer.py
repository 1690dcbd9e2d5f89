"""Models that answer a passage: word vectors as cells, a cell model, a score for every word or every position."""

# B = passages, N = positions, D = features per cell, V = words
from __future__ import annotations

import torch
from torch import Tensor, nn

from riffle.models.base import CellModel, Trainable


class WordModel(Trainable):
    r"""Score every known word as the one that was left out of a passage.

    Args:
        words: Maps ids :math:`(B, N)` to cells :math:`(B, N, D)`, as :class:`riffle.lambada.FrozenWords` does.
        reader: The cell model; its embedding of symbols is deleted.
        word_dropout: Share of the words that are left out in training; the others are scaled up for it.

    Shape:
        - Input: :math:`(B, N)` ids of words.
        - Output: :math:`(B, V)` scores.
    """

    def __init__(self, words: nn.Module, reader: CellModel, *, word_dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= word_dropout < 1:
            raise ValueError(f"word_dropout must lie in [0, 1), got {word_dropout}")
        for name in ("embedding", "input"):  # the latter is the Neural GPU's
            if hasattr(reader, name):
                delattr(reader, name)
        self.words, self.reader = words, reader
        self.word_dropout = word_dropout

    def forward(self, ids_BN: Tensor) -> Tensor:
        """The reader's scores."""
        x_BND = self.words(ids_BN)
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
        words, word_dropout: See :class:`WordModel`.
        reader: A cell model of one class.

    Shape:
        - Input: :math:`(B, N)` ids of words.
        - Output: :math:`(B, N)` scores, also of positions without a word.
    """

    def forward(self, ids_BN: Tensor) -> Tensor:
        """Score every position."""
        return super().forward(ids_BN)[..., 0]
