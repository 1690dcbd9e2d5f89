"""A sequence spread over ranks gives what one device gives: outputs, gradients, and no more traffic than derived."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from riffle.nn import UNITS
from riffle.shuffle import SHARINGS

from . import jobs
from .alone import SPREAD, TOLERANCE, alone, check, error, joined
from .ranks import Ranks


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_in_double_precision_all_is_the_same(ranks: Ranks, size: int, blocks: int) -> None:
    arguments = {"features": 4, "blocks": blocks, "dtype": torch.float64}
    actual = joined(ranks.run(size, jobs.train, arguments, 2, 512))
    expected = alone(tuple(arguments.items()), 2, 512, None, torch.float64)
    assert max(error(actual, expected, shards=shards) for shards in (True, False)) <= 1e-13


@pytest.mark.parametrize("size", [1, *SPREAD])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_sharing(ranks: Ranks, size: int, blocks: int, sharing: str) -> None:
    length = {"length": 64} if sharing == "none" else {}
    check(ranks, size, {"features": 4, "blocks": blocks, "sharing": sharing, **length}, 2, 64)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize(
    "options", [*({"unit": unit} for unit in UNITS if unit != "gated"), {"order": "official"}], ids=str
)
def test_every_unit_and_the_released_order(ranks: Ranks, size: int, options: dict[str, str]) -> None:
    check(ranks, size, {"features": 6, "blocks": 2, **options}, 3, 128)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize(("k", "blocks"), [(7, 3), (8, 2), (9, 1), (12, 3), (14, 2)])
def test_long_sequences(ranks: Ranks, size: int, k: int, blocks: int) -> None:
    check(ranks, size, {"features": 4, "blocks": blocks}, 1, 2**k)


@pytest.mark.parametrize(("size", "length"), [(2, 4), (2, 8), (4, 16), (4, 32)])
def test_the_shortest_sequences(ranks: Ranks, size: int, length: int) -> None:
    check(ranks, size, {"features": 4, "blocks": 2}, 3, length)


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(("size", "blocks"), [(2, 1), (2, 2), (4, 2)])
def test_fused_kernels(ranks: Ranks, size: int, blocks: int) -> None:
    check(ranks, size, {"features": 16, "blocks": blocks, "backend": "fused"}, 2, 16)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("length", [64, 256])
def test_two_exchanges_a_block(ranks: Ranks, size: int, blocks: int, length: int) -> None:
    batch, features = 3, 4
    volume = batch * (length // size) * features * (size - 1) // size
    for forward, backward in ranks.run(size, jobs.count, {"features": features, "blocks": blocks}, batch, length):
        assert forward == backward == [volume] * 2 * blocks


def test_one_rank_exchanges_nothing(ranks: Ranks) -> None:
    assert ranks.run(1, jobs.count, {"features": 4, "blocks": 2}, 2, 64) == [([], [])]


@pytest.mark.parametrize("size", [2, 4])
def test_dropout_has_the_distribution_of_one_device(ranks: Ranks, size: int) -> None:
    arguments, batch, length = {"features": 8, "blocks": 2, "dropout": 0.5}, 64, 64
    parts = ranks.run(size, jobs.dropout, arguments, batch, length)
    net = jobs.network(arguments)
    x_BND = jobs.inputs(batch, length, 8)[0]
    with torch.no_grad():
        one, plain = net(x_BND).numpy(), net.eval()(x_BND).numpy()
    spread = np.concatenate(parts, axis=1)
    assert np.mean(spread == 0) == pytest.approx(0.5 / 6, rel=0.05)  # the last layer's: the rate over log2 of 64
    moved_one, moved_spread = np.mean((one - plain) ** 2), np.mean((spread - plain) ** 2)
    assert moved_spread == pytest.approx(moved_one, rel=0.1)
    assert not np.array_equal(parts[0] == 0, parts[1] == 0), "two ranks drew one mask"


def test_copied_saved_and_many_at_once(ranks: Ranks, tmp_path: Path) -> None:
    for answer in ranks.run(4, jobs.kept, str(tmp_path)):
        assert all(answer.values()), answer


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("dealt", [False, True])
def test_gradients_of_gradients(ranks: Ranks, size: int, dealt: bool) -> None:
    assert all(ranks.run(size, jobs.twice, dealt))


def test_data_parallel_on_top(ranks: Ranks) -> None:
    arguments = {"features": 4, "blocks": 2}
    net = jobs.network(arguments).double()
    x_BND, weight_BND = (cells.double() for cells in jobs.inputs(4, 32, 4))
    (net(x_BND) * weight_BND).mean().backward()
    expected = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    for answer in ranks.run(4, jobs.averaged, arguments, 4, 32):
        assert error(answer, jobs.arrays(expected), shards=False) <= TOLERANCE
