"""Recurrent networks; the Gated-Attention Reader ignores padding and learns to look things up."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from research.baselines.recurrent import GatedAttentionReader, Recurrent


def test_blanks_around_a_passage_do_not_matter() -> None:
    reader, x_BND = GatedAttentionReader(30, 8, hops=2).double(), torch.randn(3, 7, 8).double()
    wide_BND = F.pad(x_BND, (0, 0, 2, 5))
    wide_BND[1] = wide_BND[1].roll(3, 0)
    scores_BN1 = reader.forward_cells(wide_BND)
    torch.testing.assert_close(scores_BN1[[0, 2], 2:9], reader.forward_cells(x_BND[[0, 2]]))
    torch.testing.assert_close(scores_BN1[1:2, 5:12], reader.forward_cells(x_BND[1:2]))


def test_a_blank_passage_is_no_accident() -> None:
    assert GatedAttentionReader(30, 8).forward_cells(torch.zeros(1, 3, 8)).isfinite().all()


@pytest.mark.parametrize("reads_first", [True, False])
def test_batches_of_several_lengths_are_what_each_is_alone(reads_first: bool) -> None:
    model = Recurrent(5, 4, 8, layers=2, reads_first=reads_first).double()
    batches = [torch.randint(0, 5, (2, length)) for length in (1, 4, 9)]
    for scores_BNC, symbols_BN in zip(model.forward_batches(batches), batches, strict=True):
        assert scores_BNC.shape == (*symbols_BN.shape, 4)
        torch.testing.assert_close(scores_BNC, model.forward_cells(model.embed(symbols_BN)))
