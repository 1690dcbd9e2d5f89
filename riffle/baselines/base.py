"""What the rivals have in common: symbols are checked, and rows of different length run at their own."""

# B = batch, N = length, C = classes
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from riffle.models.base import SymbolModel
from riffle.nn.lengths import checked_lengths, pad_to
from riffle.nn.pretrained import Pretrained


class Rival(SymbolModel, Pretrained, license="mit"):
    """A model that runs every length as it is; a subclass says how in :meth:`run`."""

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of batches, each of symbols of one length."""
        raise NotImplementedError

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Score every class at every position; see :meth:`riffle.models.base.SymbolModel.forward`."""
        if lengths is None:
            return self.many([symbols_BN])[0]
        batch, longest = symbols_BN.shape
        sizes = checked_lengths(lengths, batch, longest)
        # Rows of one length are one batch, so a row's result depends on the row alone.
        groups = [[row for row in range(batch) if sizes[row] == size] for size in sorted(set(sizes))]
        results = self.many([symbols_BN[rows, : sizes[rows[0]]] for rows in groups])
        order = torch.tensor([row for rows in groups for row in rows], device=symbols_BN.device)
        return torch.cat([pad_to(scores_BNC, longest) for scores_BNC in results])[order.argsort()]

    def many(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of several batches, each of a length of its own."""
        for symbols_BN in batches:
            if symbols_BN.dim() != 2:
                raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(symbols_BN.shape)}")
            if symbols_BN.shape[1] < 1:
                raise ValueError("the input has no symbols: its length must be at least 1")
        return self.run(batches)
