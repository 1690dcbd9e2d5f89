"""What a sharding refuses: one sentence, the same on every rank, instead of a hang."""

from __future__ import annotations

import copy

import pytest
import torch

from riffle.parallel.sharding import weights_checksum

from . import jobs
from .ranks import Ranks

REFUSALS = {
    "cells": "have shards of 16, 16, 16, 8 cells: give every rank as many",
    "batch": "have batches of 2, 2, 2, 1 rows: give every rank its part of the same rows",
    "few": "2 cells on each of 4 ranks are too few: .* a sequence of 8 cells runs on at most 2 ranks",
    "power": "a shard of 12 cells is no power of two: pad the whole sequence",
    "weights": "have different weights: load the same ones, or seed alike",
    "blocks": "have networks with different arguments",
    "lengths": "have different lengths=",
    "own mask": r"key_padding_mask must be boolean, \[batch, length\] = \[2, 64\]",
    "long": r"lengths must lie in 0\.\.64, the length of the input, got 65",
    "gradients": "some ranks of this sharding want gradients and others do not",
    "another size": 'sharing="none" runs at one size, 64 cells, not at 16',
    "input gradients": "want their input's gradient and others do not: call requires_grad_",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refused_alike_on_every_rank(ranks: Ranks, what: str) -> None:
    sentences = ranks.run(4, jobs.mistake, what)
    assert len(set(sentences)) == 1, sentences
    with pytest.raises(ValueError, match=REFUSALS[what]):
        raise ValueError(sentences[0])


def test_no_mistake(ranks: Ranks) -> None:
    assert ranks.run(4, jobs.mistake, "none") == ["no complaint"] * 4


def test_a_group_of_three(ranks: Ranks) -> None:
    for sentence in ranks.run(3, jobs.mistake, "none"):
        assert sentence == "the group of a sharding has 3 ranks: a sequence of 2^k cells needs a power of two of them"


def test_a_checksum_sees_one_bit() -> None:
    net = jobs.network({"features": 4})
    other = copy.deepcopy(net)
    assert weights_checksum(net.parameters()) == weights_checksum(other.parameters())
    with torch.no_grad():
        other.units["last"].gates.bias[3].mul_(1 + 2**-22)
    assert weights_checksum(net.parameters()) != weights_checksum(other.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_checksum_of_every_dtype(dtype: torch.dtype) -> None:
    weights = torch.randn(3, 5).to(dtype)
    assert weights_checksum([weights]) != weights_checksum([weights.flip(0)])
