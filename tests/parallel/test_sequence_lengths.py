"""Rows of different lengths over ranks: each gets what one device gives it, in outputs, gradients and traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from riffle.shuffle import bits

from . import jobs
from .alone import SPREAD, check
from .ranks import Ranks

MIXED = [256, 1, 17, 63, 64, 65, 130, 2, 31, 0]
"""Of 256 cells at most: spread over all ranks, and whole on one where a power has fewer than ranks squared."""


@pytest.mark.parametrize("size", [1, *SPREAD])
@pytest.mark.parametrize(("blocks", "sharing"), [(1, "block"), (3, "block"), (2, "minimal"), (2, "full")])
def test_rows_of_every_power(ranks: Ranks, size: int, blocks: int, sharing: str) -> None:
    check(ranks, size, {"features": 4, "blocks": blocks, "sharing": sharing}, len(MIXED), 256, MIXED)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize(
    "lengths",
    [[64, 33, 50], [128, 100], [40], [1], [0, 3], [3, 2], [9, 16, 11, 10, 12, 13, 14, 15, 9, 16], [2**14, 5000, 37]],
    ids=[
        "all of 64",
        "all shorter than half",
        "one",
        "one cell",
        "none and three",
        "fewer than ranks",
        "more than ranks",
        "long",
    ],
)
def test_batches_of_few_powers(ranks: Ranks, size: int, lengths: list[int]) -> None:
    check(ranks, size, {"features": 4, "blocks": 2}, len(lengths), max(64, 2 ** bits(max(lengths))), lengths)


@pytest.mark.parametrize("size", SPREAD)
@pytest.mark.parametrize("own", [16, 128])
def test_a_unit_per_layer(ranks: Ranks, size: int, own: int) -> None:
    check(ranks, size, {"features": 4, "sharing": "none", "length": own}, 2, 256, [own, own - 3])


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(("size", "blocks", "lengths"), [(2, 2, [8, 2, 4]), (4, 1, [16, 7, 3])])
def test_fused_kernels(ranks: Ranks, size: int, blocks: int, lengths: list[int]) -> None:
    arguments = {"features": 16, "blocks": blocks, "backend": "fused"}
    check(ranks, size, arguments, len(lengths), max(lengths), lengths)


@pytest.mark.parametrize("size", SPREAD)
def test_traffic(ranks: Ranks, size: int) -> None:
    """Two deals for all rows, and between them the exchanges of the groups that are spread, each at its own length."""
    features, blocks, length = 4, 2, 256
    powers = sorted({2 ** bits(each) for each in MIXED})
    rows = {power: [row for row, each in enumerate(MIXED) if 2 ** bits(each) == power] for power in powers}
    exchanges = [
        volume
        for power in powers
        if power >= size**2
        for volume in [len(rows[power]) * (power // size) * features * (size - 1) // size] * 2 * blocks
    ]
    leave, arrive = [0] * size, [0] * size
    for power in powers:
        for index, row in enumerate(rows[power]):
            for cell in range(MIXED[row]):
                there = cell // (power // size) if power >= size**2 else index % size
                here = cell // (length // size)
                leave[here] += (here != there) * features
                arrive[there] += (here != there) * features
    answers = ranks.run(size, jobs.count, {"features": features, "blocks": blocks}, len(MIXED), length, MIXED)
    for rank, (forward, backward) in enumerate(answers):
        assert forward == [leave[rank], *exchanges, arrive[rank]]
        assert backward == [leave[rank], *exchanges[::-1], arrive[rank]]


def test_dropout_of_every_row_is_that_of_its_power(ranks: Ranks) -> None:
    arguments: dict[str, Any] = {"features": 32, "blocks": 2, "dropout": 0.5}
    lengths = [256] * 4 + [64] * 16 + [8] * 128  # on four ranks, those of 8 are whole
    parts = ranks.run(4, jobs.dropout, arguments, len(lengths), 256, lengths)
    y_BND = np.concatenate(parts, axis=1)
    for length in sorted(set(lengths)):
        rows = y_BND[[row for row, each in enumerate(lengths) if each == length], :length]
        assert np.mean(rows == 0) == pytest.approx(0.5 / bits(length), rel=0.05)
