"""Recurrent networks: bidirectional LSTM and GRU, and the Gated-Attention Reader of passages."""

# B = batch, N = length of a sequence or passage, M = length of the query, D = features
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from riffle.models.base import CellModel, SymbolModel
from riffle.nn.lengths import pad_to
from riffle.tasks.rows import row_lengths

Cell = Literal["lstm", "gru"]
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
QUERY_WORDS = 32
"""How many of the last words of a passage are the query."""


class Recurrent(SymbolModel, tags=["recurrent"]):
    r"""Map a sequence of symbols to scores over the output alphabet by a recurrent network, by default bidirectional.

    Args:
        symbols, classes: See :class:`~riffle.models.base.SymbolModel`.
        features: Features per position, an even number: half of them for each direction.
        cell: "lstm" or "gru".
        layers: Layers.
        reads_first: Whether it reads all of the input, in one direction, and then answers at as many blanks after it,
            as recurrent networks that count do.
        dropout: Dropout rate of every layer's input.

    Examples::

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
        reads_first: bool = False,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"unknown cell {cell!r}; choose one of {', '.join(CELLS)}")
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        _check_even(features)
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(symbols, features, **factory)
        self.reads_first, hidden = reads_first, features if reads_first else features // 2
        # One module per layer: the dropout between them is then nn.Dropout, which a captured training step can replay.
        self.layers = nn.ModuleList(
            CELLS[cell](features, hidden, batch_first=True, bidirectional=not reads_first, **factory)
            for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(features, classes, **factory)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        length = x_BND.shape[1]
        x_BND = self._states(pad_to(x_BND, 2 * length) if self.reads_first else x_BND)
        return self.output(x_BND[:, -length:])

    def run(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of checked batches: as one where it reads in one direction, and what follows does not matter."""
        if not self.reads_first:
            return super().run(batches)
        lengths = [symbols_BN.shape[1] for symbols_BN in batches]
        x_BND = torch.cat([pad_to(self.embed(symbols_BN), 2 * max(lengths)) for symbols_BN in batches])
        parts = self._states(x_BND).split([len(symbols_BN) for symbols_BN in batches])
        return [self.output(part[:, n : 2 * n]) for n, part in zip(lengths, parts, strict=True)]

    def _states(self, x_BND: Tensor) -> Tensor:
        for layer in self.layers:
            x_BND, _ = layer(self.dropout(x_BND))
        return x_BND


class BidirectionalGRU(nn.Module):
    """A GRU in each direction over padded rows; what lies past a row's length does not matter."""

    def __init__(self, features: int, **factory: Any) -> None:
        super().__init__()
        self.onward = nn.GRU(features, features // 2, batch_first=True, **factory)
        self.backward_ = nn.GRU(features, features // 2, batch_first=True, **factory)

    def forward(self, x_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """States of both directions side by side."""
        position_N = torch.arange(x_BND.shape[1], device=x_BND.device)
        reversed_BN = lengths_B[:, None] - 1 - position_N
        reversed_BN = torch.where(reversed_BN >= 0, reversed_BN, position_N)
        onward_BND, _ = self.onward(x_BND)
        backward_BND, _ = self.backward_(_take(x_BND, reversed_BN))
        return torch.cat([onward_BND, _take(backward_BND, reversed_BN)], dim=-1)


class GatedAttentionReader(CellModel):
    r"""Point at the word of a passage that answers a query, the passage's last words.

    In each of several hops, bidirectional GRUs read the passage and the query. Every word :math:`d_i` of the passage
    attends to the words of the query and is multiplied by the result, which is the input of the next hop:

    .. math::
        x_i = d_i \odot \sum_j \mathrm{softmax}_j(d_i \cdot q_j) \, q_j

    The score of a position is the product of its state after the last hop and the query's state at its last word,
    where the answer is missing.

    Args:
        words: Size of the vocabulary.
        features: Features per word, an even number: half of them for each direction.
        hops: Hops.
        dropout: Dropout rate of the input of every hop.

    Shape:
        - Input: cells :math:`(B, N, D)`, blanks around a passage as zeros.
        - Output: :math:`(B, N, 1)` scores.

    Examples::

        >>> GatedAttentionReader(100, 16).forward_cells(torch.randn(1, 5, 16)).shape
        torch.Size([1, 5, 1])
    """

    def __init__(
        self,
        words: int,
        features: int = 256,
        *,
        hops: int = 3,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if hops < 1:
            raise ValueError(f"hops must be at least 1, got {hops}")
        _check_even(features)
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(words, features, **factory)
        self.passages = nn.ModuleList(BidirectionalGRU(features, **factory) for _ in range(hops))
        self.queries = nn.ModuleList(BidirectionalGRU(features, **factory) for _ in range(hops))
        self.dropout = nn.Dropout(dropout)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """Score every position, ``[B, N, 1]``; the query is the last words of a passage, up to the missing answer."""
        filled_BN = (x_BND != 0).any(dim=-1)
        position_N = torch.arange(x_BND.shape[1], device=x_BND.device)
        end_B = row_lengths(filled_BN)
        begin_B = torch.where(filled_BN, position_N, end_B[:, None]).amin(dim=1)
        query_B = torch.maximum(begin_B, end_B - QUERY_WORDS)
        query_BM = (query_B[:, None] + position_N[:QUERY_WORDS]).clamp(max=x_BND.shape[1] - 1)
        # Passages are shifted to begin at position 0, where the GRUs start, and their scores are shifted back.
        passage_BN = (position_N + begin_B[:, None]) % x_BND.shape[1]
        score_BN = self._score(_take(x_BND, passage_BN), end_B - begin_B, _take(x_BND, query_BM), end_B - query_B)
        return score_BN.gather(1, (position_N - begin_B[:, None]) % x_BND.shape[1])[..., None]

    def _score(self, x_BND: Tensor, lengths_B: Tensor, query_BMD: Tensor, query_lengths_B: Tensor) -> Tensor:
        inside_BM = torch.arange(query_BMD.shape[1], device=query_BMD.device) < query_lengths_B[:, None]
        for hop, (passage, query) in enumerate(zip(self.passages, self.queries, strict=True)):
            d_BND = passage(self.dropout(x_BND), lengths_B)
            q_BMD = query(self.dropout(query_BMD), query_lengths_B)
            if hop < len(self.passages) - 1:
                # An empty query is attended to evenly: with minus infinity its softmax would be NaN.
                score_BNM = (d_BND @ q_BMD.mT).masked_fill(~inside_BM[:, None], torch.finfo(d_BND.dtype).min)
                x_BND = d_BND * (score_BNM.softmax(dim=-1) @ q_BMD)
        missing_BD = _take(q_BMD, (query_lengths_B - 1).clamp(min=0)[:, None])[:, 0]
        return (d_BND @ missing_BD[..., None])[..., 0]


def _check_even(features: int) -> None:
    if features < 2 or features % 2:
        raise ValueError(f"features must be even, half of them for each direction, got {features}")


def _take(x_BND: Tensor, index_BN: Tensor) -> Tensor:
    """The positions ``index_BN`` of every row."""
    return x_BND.gather(1, index_BN[..., None].expand(-1, -1, x_BND.shape[-1]))
