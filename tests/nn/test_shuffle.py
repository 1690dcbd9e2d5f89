"""The perfect shuffle, and the schedule of bits: what it says must be what the shuffles do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle.shuffle import SHARINGS, riffle, schedule, unriffle

from .golden import load_json

PERMUTATIONS = load_json("shuffle_permutations")
SIZES = {"k": st.integers(1, 8), "blocks": st.integers(1, 4), "sharing": st.sampled_from(SHARINGS)}


def permute(shuffle, cells: list[int]) -> list[int]:
    return shuffle(torch.tensor(cells).view(1, -1, 1)).flatten().tolist()


@pytest.mark.parametrize("length", PERMUTATIONS)
def test_shuffles_are_those_of_the_released_code(length: str) -> None:
    cells = list(range(int(length)))
    assert permute(unriffle, cells) == PERMUTATIONS[length]["rol"]
    assert permute(riffle, cells) == PERMUTATIONS[length]["ror"]


@given(**SIZES, benes=st.booleans())
def test_bits_are_what_the_shuffles_do(k: int, blocks: int, sharing: str, benes: bool) -> None:
    """Followed through the shuffles, adjacent cells differ in the layer's bit, the one with the bit clear first."""
    shuffles = {1: unriffle, -1: riffle, 0: lambda x: x}
    layers = schedule(k, blocks, sharing, benes=benes)
    origin = list(range(2**k))
    for layer in layers:
        for first, second in zip(origin[::2], origin[1::2], strict=True):
            assert second == first | (1 << layer.bit)
            assert not first & (1 << layer.bit)
        origin = permute(shuffles[layer.shuffle], origin)
    assert origin == list(range(2**k)), "not every cell is home in the end"


@given(**SIZES, benes=st.booleans())
def test_skips_join_the_same_layer_one_block_before(k: int, blocks: int, sharing: str, benes: bool) -> None:
    layers = schedule(k, blocks, sharing, benes=benes)
    *inner, last = layers
    size = 2 * (k - 1 if benes else k)
    for index, layer in enumerate(inner):
        assert layer.skip == (index - size if index >= size else None)
        if layer.skip is not None:
            assert layers[layer.skip].bit == layer.bit
    # The last layer takes the input of the last block, where there is a block before it.
    assert last.skip == (size * (blocks - 1) if blocks > 1 and size else None)


@given(k=st.integers(3, 10), blocks=st.integers(1, 4), sharing=st.sampled_from(["block", "minimal", "full"]))
def test_units_of_three_bits_serve_every_length(k: int, blocks: int, sharing: str) -> None:
    def units(bits: int) -> dict[str, bool]:
        kinds: dict[str, bool] = {}
        for layer in schedule(bits, blocks, sharing):
            kinds[layer.unit] = kinds.get(layer.unit, False) or layer.skip is not None
        return kinds

    assert units(k) == units(3)
