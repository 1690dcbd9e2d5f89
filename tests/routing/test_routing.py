"""Every permutation can be routed: settings checked by running them, and again by the schedule's address bits."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import permutations, product
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riffle.routing import Settings, apply, inverse, message_positions, permutation_of, route, wire_contents
from riffle.shuffle import schedule


def shuffled(n: int, seed: int = 0) -> list[int]:
    permutation = list(range(n))
    random.Random(seed).shuffle(permutation)
    return permutation


def by_address_bits(settings: Settings) -> list[int]:
    """The permutation carried out, with cells that stay in place: a layer joins those that differ in its bit."""
    k = (len(settings) + 1) // 2
    cells = list(range(2**k))
    for layer, switches in zip(schedule(k), settings, strict=True):
        for address in range(2**k):
            partner = address | 1 << layer.bit
            # bit unriffles have turned this pair's addresses, so that the bit in which they differ is the lowest
            low, high = address & ((1 << layer.bit) - 1), address >> layer.bit
            position = low << (k - layer.bit) | high
            if partner != address and switches[position // 2]:
                cells[address], cells[partner] = cells[partner], cells[address]
    return inverse(cells)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_all_permutations(n: int) -> None:
    found = set()
    for permutation in permutations(range(n)):
        settings = route(permutation)
        # Every message is the number of its exit, so that they have to come out in order.
        assert apply(settings, permutation) == list(range(n))
        found.add(settings)
    assert len(found) == factorial(n)


@pytest.mark.parametrize("n", [2, 4])
def test_all_settings_are_permutations(n: int) -> None:
    layers, pairs = 2 * n.bit_length() - 3, n // 2
    reached = set()
    for flat in product((False, True), repeat=layers * pairs):
        settings = tuple(flat[i * pairs : (i + 1) * pairs] for i in range(layers))
        permutation = permutation_of(settings)
        assert permutation == by_address_bits(settings)
        reached.add(tuple(permutation))
    assert len(reached) == factorial(n)


@given(st.integers(1, 9).flatmap(lambda k: st.permutations(range(2**k))))
def test_any_permutation(permutation: list[int]) -> None:
    settings = route(permutation)
    assert len(settings) == len(schedule(len(permutation).bit_length() - 1))
    assert permutation_of(settings) == permutation
    assert by_address_bits(settings) == permutation


@pytest.mark.parametrize("k", [10, 12, 14])
@pytest.mark.parametrize("kind", ["random", "reversed", "identity", "rotated", "bit-reversed"])
def test_long_permutations(k: int, kind: str) -> None:
    n = 2**k
    permutation = {
        "random": shuffled(n, seed=k),
        "reversed": list(range(n))[::-1],
        "identity": list(range(n)),
        "rotated": [(i + 1) % n for i in range(n)],
        "bit-reversed": [int(f"{i:0{k}b}"[::-1], 2) for i in range(n)],
    }[kind]
    settings = route(permutation)
    assert permutation_of(settings) == permutation
    assert kind != "identity" or not any(map(any, settings))
    if k == 10:
        assert by_address_bits(settings) == permutation


def test_the_way_of_every_message() -> None:
    permutation = shuffled(64)
    settings = route(permutation)
    ways, wires = message_positions(settings), list(wire_contents(settings, range(64)))
    assert len(ways) == len(wires) == len(settings) + 1
    for way, line in zip(ways, wires, strict=True):
        assert [line[position] for position in way] == list(range(64))
    assert (ways[0], ways[-1]) == (list(range(64)), permutation)


def test_inverse() -> None:
    permutation = shuffled(32)
    items = [object() for _ in permutation]
    assert apply(route(inverse(permutation)), apply(route(permutation), items)) == items


@pytest.mark.parametrize(
    ("permutation", "message"),
    [
        ([], "routes 2, 4, 8, ... messages, got 0$"),
        ([0], "routes 2, 4, 8, ... messages, got 1$"),
        ([2, 0, 1], "got 3; add messages that stay where they are, up to 4"),
        (list(range(12)), "got 12; .* up to 16"),
        ([0, 1, 2, 4], "consists of 0..3, but this one has 4"),
        ([0, 1, -1, 2], "consists of 0..3, but this one has -1"),
        ([0, 3, 2, 3], "each of 0..3 once, but this one has 3 more than once"),
        ([0, 1.0], "whole numbers: 'float'"),
        (["a", "b"], "whole numbers: 'str'"),
    ],
)
def test_no_permutation(permutation: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        route(permutation)


@pytest.mark.parametrize(
    ("settings", "items", "message"),
    [
        (route([1, 0]), "abcd", "4 items need 3 layers of 2 settings, got 1 of 1"),
        ([[True, False], [True], [True, False]], "abcd", "got 3 of 1 and 2"),
        ([], "ab", "got 0 of none"),
        ([[True]], "a", "routes 2, 4, 8, ... messages, got 1"),
    ],
)
def test_settings_that_do_not_fit(settings: Settings, items: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply(settings, items)


def test_pure_python() -> None:
    code = "import sys, riffle.routing; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
