"""The Gated-Attention Reader: several readings of a passage, each gated by what the query asks for."""

# B = batch, N = length of the passage, M = length of the query, D = features, K = readings (hops)
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.models.base import CellModel
from riffle.nn.hub import HubMixin
from riffle.tasks.base import BLANK

ASKED = 32
"""So many of the last words of a passage are the query, where none is given."""


class BothWays(nn.Module):
    """A GRU in each direction over rows of different length; what lies past a row's end does not matter.

    Args:
        inputs: Features of the input.
        features: Features of the output, half of them for each direction.
    """

    def __init__(self, inputs: int, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.onward = nn.GRU(inputs, features // 2, batch_first=True, device=device, dtype=dtype)
        self.backward_ = nn.GRU(inputs, features // 2, batch_first=True, device=device, dtype=dtype)

    def forward(self, x_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """States of both directions side by side."""
        turned_BN = _turned(lengths_B, x_BND.shape[1])
        onward_BND, _ = self.onward(x_BND)
        back_BND, _ = self.backward_(_take(x_BND, turned_BN))
        return torch.cat([onward_BND, _take(back_BND, turned_BN)], dim=-1)


class GatedAttentionReader(CellModel, HubMixin, tags=["gated-attention-reader"], license="mit"):
    r"""Point at the word of a passage that answers a query.

    In each of :math:`K` readings, GRUs in both directions read the passage and the query. Every word :math:`d_i` of the
    passage attends to the words of the query and is multiplied by what it finds:

    .. math::
        x_i = d_i \odot \sum_j \mathrm{softmax}_j(d_i \cdot q_j) \, q_j

    which the next reading takes as its input. The score of a position is the product of the last reading's state and
    the query's state at its last word, where the answer is missing. A word's score is the sum over its occurrences,
    see :func:`pointer_sum`.

    Args:
        words: Size of the vocabulary; word 0 is the blank that pads passages and queries.
        features: Features per word, an even number: half of them for each direction.
        hops: Readings.
        dropout: Rate of dropout on the input of every reading, in training.

    Shape:
        - Input: passages :math:`(B, N)` and queries :math:`(B, M)`, each blank-padded at its end.
        - Output: :math:`(B, N)` scores, minus infinity at the blanks of a passage.

    Examples::

        >>> reader = GatedAttentionReader(100, 16)
        >>> passage, query = torch.tensor([[5, 7, 5, 9, 0]]), torch.tensor([[8, 7, 3]])
        >>> scores = reader(passage, query)
        >>> scores.shape
        torch.Size([1, 5])
        >>> words = pointer_sum(scores, passage).exp()
        >>> bool((words[0, 0] == words[0, 2]) and words[0, 4] == 0)
        True
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
        if features < 2 or features % 2:
            raise ValueError(f"features must be even, half of them for each direction, got {features}")
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(words, features, **factory)
        self.passages = nn.ModuleList(BothWays(features, features, **factory) for _ in range(hops))
        self.queries = nn.ModuleList(BothWays(features, features, **factory) for _ in range(hops))
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage_BN: Tensor, query_BM: Tensor) -> Tensor:
        """Score every position of the passage."""
        filled_BN = passage_BN != BLANK
        score_BN = self._score(
            self.embedding(passage_BN), extent(filled_BN), self.embedding(query_BM), extent(query_BM != BLANK)
        )
        return score_BN.masked_fill(~filled_BN, -torch.inf)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """Score every position of passages that are given as vectors, ``[B, N, 1]``; the last of each are the query.

        Args:
            x_BND: The words, of which the last one that is not zero is where the answer is missing.
        """
        filled_BN = (x_BND != 0).any(dim=-1)
        position_N = torch.arange(x_BND.shape[1], device=x_BND.device)
        end_B = extent(filled_BN)
        begin_B = torch.where(filled_BN, position_N, end_B[:, None]).amin(dim=1)
        query_B = torch.maximum(begin_B, end_B - ASKED)
        query_BM = (query_B[:, None] + position_N[:ASKED]).clamp(max=x_BND.shape[1] - 1)
        # The GRUs read from the first word on, wherever it stands; scores go back to where the words are.
        passage_BN = (position_N + begin_B[:, None]) % x_BND.shape[1]
        score_BN = self._score(_take(x_BND, passage_BN), end_B - begin_B, _take(x_BND, query_BM), end_B - query_B)
        return score_BN.gather(1, (position_N - begin_B[:, None]) % x_BND.shape[1])[..., None]

    def _score(self, x_BND: Tensor, lengths_B: Tensor, asked_BMD: Tensor, asked_B: Tensor) -> Tensor:
        """Score every position of the passages, given vectors and lengths of passages and queries."""
        inside_B1M = (torch.arange(asked_BMD.shape[1], device=asked_BMD.device) < asked_B[:, None])[:, None]
        for hop, (passage, query) in enumerate(zip(self.passages, self.queries, strict=True)):
            d_BND = passage(self.dropout(x_BND), lengths_B)
            q_BMD = query(self.dropout(asked_BMD), asked_B)
            if hop < len(self.passages) - 1:
                # A query without words is attended to evenly, since a softmax over nothing is undefined.
                score_BNM = (d_BND @ q_BMD.mT).masked_fill(~inside_B1M, torch.finfo(d_BND.dtype).min)
                x_BND = d_BND * (score_BNM.softmax(dim=-1) @ q_BMD)
        last_B1 = (asked_B - 1).clamp(min=0)[:, None]
        missing_BD = _take(q_BMD, last_B1)[:, 0]
        return (d_BND @ missing_BD[..., None])[..., 0]


def pointer_sum(score_BN: Tensor, passage_BN: Tensor) -> Tensor:
    """For every position the logarithm of its word's probability: the sum over all occurrences of the word.

    >>> score, passage = torch.zeros(1, 4), torch.tensor([[7, 5, 7, 6]])
    >>> pointer_sum(score, passage).exp()
    tensor([[0.5000, 0.2500, 0.5000, 0.2500]])
    """
    own_BN = F.log_softmax(score_BN, dim=-1)
    same_BNN = passage_BN[:, :, None] == passage_BN[:, None, :]
    return own_BN[:, None, :].masked_fill(~same_BNN, -torch.inf).logsumexp(dim=-1)


def extent(filled_BN: Tensor) -> Tensor:
    """Up to which position each row is filled."""
    position_N = torch.arange(1, filled_BN.shape[1] + 1, device=filled_BN.device)
    return torch.where(filled_BN, position_N, 0).amax(dim=1)


def _turned(lengths_B: Tensor, width: int) -> Tensor:
    """Indices that turn every row around within its length and leave the rest where it is."""
    position_N = torch.arange(width, device=lengths_B.device)
    back_BN = lengths_B[:, None] - 1 - position_N
    return torch.where(back_BN >= 0, back_BN, position_N)


def _take(x_BND: Tensor, index_BN: Tensor) -> Tensor:
    """The positions ``index_BN`` of every row."""
    return x_BND.gather(1, index_BN[..., None].expand(-1, -1, x_BND.shape[-1]))
