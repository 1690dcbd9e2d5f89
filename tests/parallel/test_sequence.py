"""A sequence spread over ranks gives what one device gives: outputs, gradients, and no more traffic than derived."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from riffle.nn import UNITS
from riffle.shuffle import SHARINGS

from . import jobs
from .ranks import Ranks

TOLERANCE = 1e-6
"""Of the largest magnitude of what is compared, in float32."""
SHARDS = ("output", "inferred", "input")
"""What is spread over the ranks; the rest are gradients of weights."""
SPREAD = [2, 4, 8]


@lru_cache(maxsize=4)
def alone(arguments: str, batch: int, length: int, lengths: str, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """What one device gives; the arguments are written out, so that the ranks' numbers can share a result."""
    kernels = {"backend": "reference"} if dtype == torch.float64 else {}
    net = jobs.network(eval(arguments) | kernels).to(dtype)
    x_BND, weight_BND = (cells.to(dtype) for cells in jobs.inputs(batch, length, net.features))
    x_BND.requires_grad_()
    y_BND = net(x_BND, lengths=eval(lengths))
    jobs.loss(y_BND, weight_BND).backward()
    assert x_BND.grad is not None
    gradients = {name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None}
    return jobs.arrays({"output": y_BND, "inferred": y_BND, "input": x_BND.grad, **gradients})


def joined(answers: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The shards side by side; the weights' gradients, which must be the same on every rank, once."""
    for answer in answers[1:]:
        assert all(np.array_equal(answer[name], answers[0][name]) for name in answers[0] if name not in SHARDS)
    return answers[0] | {name: np.concatenate([answer[name] for answer in answers], axis=1) for name in SHARDS}


def error(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], *, shards: bool) -> float:
    """The largest difference, as a share of an array's largest magnitude: of shards, or of weights' gradients."""
    assert actual.keys() == expected.keys()
    names = [name for name in expected if (name in SHARDS) == shards]
    return max(float(np.abs(actual[name] - expected[name]).max() / np.abs(expected[name]).max()) for name in names)


def check(ranks: Ranks, size: int, arguments: dict[str, Any], batch: int, length: int, lengths: Any = None) -> None:
    """Shards as on one device; a weight's gradient, a sum over all cells, as near to the truth as there."""
    actual = joined(ranks.run(size, jobs.train, arguments, batch, length, lengths))
    single, exact = (
        alone(repr(arguments), batch, length, repr(lengths), dtype) for dtype in (torch.float32, torch.float64)
    )
    differs, strays = error(actual, single, shards=True), error(actual, exact, shards=False)
    allowed = max(TOLERANCE, 2 * error(single, exact, shards=False))
    print(f"{size} ranks, {length} cells, {arguments}: {differs:.1e}; weights {strays:.1e}, {allowed:.1e} allowed")
    assert differs <= TOLERANCE
    assert strays <= allowed


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_in_double_precision_all_is_the_same(ranks: Ranks, size: int, blocks: int) -> None:
    arguments = {"features": 4, "blocks": blocks, "dtype": torch.float64}
    actual = joined(ranks.run(size, jobs.train, arguments, 2, 512))
    expected = alone(f"dict(features=4, blocks={blocks}, dtype=torch.float64)", 2, 512, "None", torch.float64)
    assert max(error(actual, expected, shards=shards) for shards in (True, False)) <= 1e-13


@pytest.mark.parametrize("size", [1, *SPREAD])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_sharing(ranks: Ranks, size: int, blocks: int, sharing: str) -> None:
    length = {"length": 64} if sharing == "none" else {}
    check(ranks, size, {"features": 4, "blocks": blocks, "sharing": sharing, **length}, 2, 64)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit not in ("gated", "no-benes")])
def test_every_unit(ranks: Ranks, size: int, unit: str) -> None:
    check(ranks, size, {"features": 6, "blocks": 2, "unit": unit}, 3, 128)


@pytest.mark.parametrize("size", [1, *SPREAD])
@pytest.mark.parametrize(("k", "blocks"), [(7, 3), (8, 2), (10, 3), (13, 2), (16, 1)])
def test_long_sequences(ranks: Ranks, size: int, k: int, blocks: int) -> None:
    check(ranks, size, {"features": 8, "blocks": blocks}, 1, 2**k)


@pytest.mark.parametrize("size", [8])
def test_a_long_sequence_and_three_blocks(ranks: Ranks, size: int) -> None:
    check(ranks, size, {"features": 4, "blocks": 3}, 1, 2**16)


@pytest.mark.parametrize(("size", "length"), [(2, 4), (2, 8), (4, 16), (4, 32)])
def test_the_shortest_sequences(ranks: Ranks, size: int, length: int) -> None:
    check(ranks, size, {"features": 4, "blocks": 2}, 3, length)


@pytest.mark.parametrize("size", SPREAD)
def test_features_in_the_released_order(ranks: Ranks, size: int) -> None:
    check(ranks, size, {"features": 4, "order": "official"}, 1, 64)


@pytest.mark.parametrize("size", [1, *SPREAD])
def test_rows_of_different_length(ranks: Ranks, size: int) -> None:
    check(ranks, size, {"features": 4, "blocks": 2}, 3, 64, [64, 33, 50])


@pytest.mark.parametrize(("size", "blocks"), [(2, 1), (2, 2), (4, 2)])
def test_fused_kernels(ranks: Ranks, size: int, blocks: int) -> None:
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    if torch.cuda.is_available():
        pytest.skip("the interpreter runs only where there is no GPU")
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
def test_gradients_of_gradients(ranks: Ranks, size: int) -> None:
    assert all(ranks.run(size, jobs.twice))


def test_data_parallel_on_top(ranks: Ranks) -> None:
    arguments = {"features": 4, "blocks": 2}
    net = jobs.network(arguments).double()
    x_BND, weight_BND = (cells.double() for cells in jobs.inputs(4, 32, 4))
    (net(x_BND) * weight_BND).mean().backward()
    expected = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    for answer in ranks.run(4, jobs.averaged, arguments, 4, 32):
        assert error(answer, jobs.arrays(expected), shards=False) <= TOLERANCE
