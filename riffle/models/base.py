"""What every model is that maps symbols to symbols: the one thing training, evaluation and the command line know.

What the rivals have in common: symbols are checked, and rows of different length run at their own.
"""

# B = batch, N = length, C = classes
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from riffle.nn.hub import HubMixin
from riffle.nn.lengths import checked_lengths, pad_to

COPIES = 12
"""Vectors of its features' size that a position takes at most at once, without gradients, in any of the models."""


class Trainable(nn.Module):
    """What a training step asks of a model besides its scores."""

    def extra_loss(self) -> Tensor:
        """What training adds to the loss of the last batches, such as a cost of saturation or of steps; zero here."""
        return next(self.parameters()).new_zeros(())

    def step_statistics(self) -> list[Tensor]:
        """What :meth:`after_step` takes note of besides the loss; several processes put their mean in its place."""
        return []

    def after_step(self, loss: Tensor, learning_rate: Tensor) -> None:
        """Take note of a training step, where something other than the weights is adapted; nothing here.

        Runs inside a captured step: it may change buffers in place, and must not wait for the device.
        """


class CellModel(Trainable):
    """A model that takes cells as vectors; one may score whole rows, ``[B, C]``, in place of their positions."""

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """The scores of cells that are given as vectors in place of symbols, ``[B, N, C]``; a zero vector is a blank.

        Args:
            x_BND: The cells, as many features each as the model has, a power of two of them.
        """
        raise NotImplementedError


class SymbolModel(CellModel):
    """A model that scores the output alphabet at every position of a sequence of symbols."""

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Score every class at every position, ``[B, N, C]``.

        Args:
            symbols_BN: The symbols, blank-padded.
            lengths: The length of every row, where they differ; a row's scores then depend on the row alone, and those
                past its end are zero.
        """
        raise NotImplementedError

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of several batches, each of a length of its own; a model may do better than one by one.

        Args:
            batches: The symbols of each batch, ``[B, N]``.
        """
        return [self(symbols_BN) for symbols_BN in batches]

    def operations(self, length: int) -> float:
        """Additions and multiplications for one sequence; here every weight once for each position."""
        return 2.0 * length * sum(parameter.numel() for parameter in self.parameters())

    def memory(self, length: int) -> float:
        """Bytes that one sequence takes without gradients, beside the weights; an estimate."""
        widest = max(parameter.shape[-1] for name, parameter in self.named_parameters() if name.startswith("output"))
        return COPIES * length * widest * torch.finfo(torch.float32).bits / 8


class BaselineModel(SymbolModel, HubMixin, license="mit"):
    """A model that runs every length as it is; a subclass says how in :meth:`run`."""

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of batches, each of symbols of one length."""
        raise NotImplementedError

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Score every class at every position; see :meth:`riffle.models.base.SymbolModel.forward`."""
        if lengths is None:
            return self.forward_batches([symbols_BN])[0]
        batch, longest = symbols_BN.shape
        sizes = checked_lengths(lengths, batch, longest)
        # Rows of one length are one batch, so a row's result depends on the row alone.
        groups = [[row for row in range(batch) if sizes[row] == size] for size in sorted(set(sizes))]
        results = self.forward_batches([symbols_BN[rows, : sizes[rows[0]]] for rows in groups])
        order = torch.tensor([row for rows in groups for row in rows], device=symbols_BN.device)
        return torch.cat([pad_to(scores_BNC, longest) for scores_BNC in results])[order.argsort()]

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of several batches, each of a length of its own."""
        for symbols_BN in batches:
            if symbols_BN.dim() != 2:
                raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(symbols_BN.shape)}")
            if symbols_BN.shape[1] < 1:
                raise ValueError("the input has no symbols: its length must be at least 1")
        return self.run(batches)
