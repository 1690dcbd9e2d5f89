"""Recurrent networks; the Gated-Attention Reader ignores padding and learns to look things up."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from research.baselines import GatedAttentionReader, Recurrent


def test_padding_does_not_matter() -> None:
    reader = GatedAttentionReader(30, 8, hops=2).double()
    passage_BN, query_BM = torch.randint(1, 30, (3, 7)), torch.randint(1, 30, (3, 4))
    scores_BN = reader(passage_BN, query_BM)
    wide_BN = reader(F.pad(passage_BN, (0, 5)), F.pad(query_BM, (0, 2)))
    torch.testing.assert_close(wide_BN[:, :7], scores_BN)
    assert (wide_BN[:, 7:] == -torch.inf).all()


def test_rows_of_different_length_are_what_each_is_alone() -> None:
    reader = GatedAttentionReader(30, 8).double()
    passage_BN, query_BM = torch.randint(1, 30, (2, 7)), torch.randint(1, 30, (2, 4))
    passage_BN[1, 4:], query_BM[1, 2:] = 0, 0
    torch.testing.assert_close(reader(passage_BN, query_BM)[1:, :4], reader(passage_BN[1:, :4], query_BM[1:, :2]))


def test_an_empty_query_is_no_accident() -> None:
    scores_BN = GatedAttentionReader(30, 8)(torch.tensor([[3, 4, 0]]), torch.zeros(1, 2, dtype=torch.long))
    assert scores_BN[:, :2].isfinite().all()


@pytest.mark.parametrize("reads_first", [True, False])
def test_batches_of_several_lengths_are_what_each_is_alone(reads_first: bool) -> None:
    model = Recurrent(5, 4, 8, layers=2, reads_first=reads_first).double()
    batches = [torch.randint(0, 5, (2, length)) for length in (1, 4, 9)]
    for scores_BNC, symbols_BN in zip(model.forward_batches(batches), batches, strict=True):
        assert scores_BNC.shape == (*symbols_BN.shape, 4)
        torch.testing.assert_close(scores_BNC, model.forward_cells(model.embed(symbols_BN)))
