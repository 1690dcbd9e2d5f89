"""The base classes of all models, each adding to the one before what its users need.

- :class:`Trainable`: what a training step asks of a model besides its scores.
- :class:`CellModel`: scores sequences of cells that are given as vectors, as :mod:`riffle.models.pointer` gives them.
- :class:`SymbolModel`: embeds symbols as cells, so it solves tasks, as :class:`~riffle.models.sequence.SequenceModel`
  does, which is the paper's.
"""

# B = batch, N = length, D = features per cell, C = classes
from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from riffle.nn.hub import HubMixin
from riffle.nn.lengths import checked_lengths, pad_to


class Trainable(nn.Module):
    """A model that a training step can train; by default nothing but its weights is adapted."""

    def extra_loss(self) -> Tensor:
        """A term that training adds to the loss of the last batches, such as a cost of saturation; a scalar."""
        return next(self.parameters()).new_zeros(())

    def step_statistics(self) -> list[Tensor]:
        """Scalars besides the loss that :meth:`after_step` uses; data parallel training averages them in place."""
        return []

    def after_step(self, loss: Tensor, learning_rate: Tensor) -> None:
        """Adapt buffers after a training step; it runs inside a captured step, so in place and without syncing."""


class CellModel(Trainable):
    """A model that scores sequences of cells."""

    embedding_name: ClassVar[str] = "embedding"
    """The layer that makes cells of symbols, which a model of passages does without."""

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """Score cells, blanks as zeros: ``[B, N, C]``, or ``[B, C]`` for sequences as a whole."""
        raise NotImplementedError


class SymbolModel(CellModel, HubMixin, license="mit"):
    r"""A model that scores the output alphabet at every position of a sequence of symbols.

    By default it has an ``embedding`` and runs every length as it is, without padding.

    Args:
        symbols: Size of the input alphabet.
        classes: Size of the output alphabet.
        features: Features per position.

    Shape:
        - Input: :math:`(B, N)` symbols, any :math:`N \ge 1`; 0 is the blank that pads a sequence.
        - Output: :math:`(B, N, C)` scores.
    """

    embedding: nn.Embedding

    def embed(self, symbols_BN: Tensor) -> Tensor:
        """The cells of symbols."""
        return self.embedding(symbols_BN)

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of checked batches."""
        return [self.forward_cells(self.embed(symbols_BN)) for symbols_BN in batches]

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Score every class at every position, ``[B, N, C]``.

        Args:
            symbols_BN: The symbols, blank-padded.
            lengths: The length of every row, where they differ; the scores of a row then depend on that row alone, and
                those past its end are zero.
        """
        if lengths is None:
            return self.forward_batches([symbols_BN])[0]
        batch, longest = symbols_BN.shape
        sizes = checked_lengths(lengths, batch, longest)
        # Rows of one length are one batch, so a row's result depends on the row alone.
        groups = [[row for row in range(batch) if sizes[row] == size] for size in sorted(set(sizes))]
        results = self.forward_batches([symbols_BN[rows, : max(1, sizes[rows[0]])] for rows in groups])
        cropped = [pad_to(scores_BNC, sizes[rows[0]]) for rows, scores_BNC in zip(groups, results, strict=True)]
        order = torch.tensor([row for rows in groups for row in rows], device=symbols_BN.device)
        return torch.cat([pad_to(scores_BNC, longest) for scores_BNC in cropped])[order.argsort()]

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Score several batches, each of its own length; faster than one by one where a model can merge them."""
        check_symbols(batches)
        return self.run(batches)


def check_symbols(batches: Sequence[Tensor]) -> None:
    """Raise ``ValueError`` where a batch is not ``[B, N]`` symbols with N of at least 1."""
    for symbols_BN in batches:
        if symbols_BN.dim() != 2:
            raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(symbols_BN.shape)}")
        if symbols_BN.shape[1] < 1:
            raise ValueError("the input has no symbols: its length must be at least 1")
        if symbols_BN.is_floating_point() or symbols_BN.is_complex() or symbols_BN.dtype == torch.bool:
            raise ValueError(f"symbols must be integers, got {symbols_BN.dtype}")
