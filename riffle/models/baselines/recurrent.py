"""Recurrent networks as one would otherwise pick them: bidirectional LSTM and GRU."""

# B = batch, N = length, D = features, C = classes
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn

from riffle.models.base import BaselineModel

Cell = Literal["lstm", "gru"]
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(BaselineModel, tags=["recurrent"]):
    r"""Map a sequence of symbols to scores over the output alphabet by a bidirectional recurrent network.

    Args:
        symbols: Size of the input alphabet.
        classes: Size of the output alphabet.
        features: Features per position, an even number: half of them for each direction.
        cell: "lstm" or "gru".
        layers: Bidirectional layers.
        dropout: Rate of dropout on every layer's input in training.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> import torch
        >>> model = Recurrent(symbols=12, classes=12, features=16, cell="gru")
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        *,
        cell: Cell = "lstm",
        layers: int = 2,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"unknown cell {cell!r}; choose one of {', '.join(CELLS)}")
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        if features < 2 or features % 2:
            raise ValueError(f"features must be even, half of them for each direction, got {features}")
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(symbols, features, **factory)
        # One module for each layer: dropout between them is then ours, and a captured training step can replay it.
        self.layers = nn.ModuleList(
            CELLS[cell](features, features // 2, batch_first=True, bidirectional=True, **factory) for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(features, classes, **factory)

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of batches, each of symbols of one length."""
        return [self.forward_cells(self.embedding(symbols_BN)) for symbols_BN in batches]

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """The scores of positions that are given as vectors."""
        for layer in self.layers:
            x_BND, _ = layer(self.dropout(x_BND))
        return self.output(x_BND)
