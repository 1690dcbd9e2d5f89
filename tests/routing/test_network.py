"""The network with weights set by hand carries out every permutation, exactly."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import torch

from riffle import ShuffleExchange
from riffle.routing import MESSAGE_BITS, decode, encode, inverse, permutation_network

from .test_routing import shuffled


def messages(n: int) -> list[int]:
    """Numbers that use all bits, no two the same."""
    return [(i * 40503 + 7) % 2**MESSAGE_BITS for i in range(n)]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_all_permutations(k: int) -> None:
    n = 2**k
    every = list(permutations(range(n)))
    # Message i is the number of its exit, so that all have to come out in order.
    y_BND = permutation_network(k)(torch.cat([encode(permutation, permutation) for permutation in every]))
    assert decode(y_BND[:1]) == list(range(n))
    assert torch.equal(y_BND[..., :MESSAGE_BITS], y_BND[:1, :, :MESSAGE_BITS].expand(len(every), -1, -1))
    assert torch.equal(y_BND.abs(), torch.ones_like(y_BND))


@pytest.mark.parametrize("n", [16, 64, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_random_permutations(n: int, seed: int) -> None:
    permutation, items = shuffled(n, seed), messages(n)
    net = permutation_network(n.bit_length() - 1)
    assert decode(net(encode(items, permutation))) == [items[i] for i in inverse(permutation)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_exact_in_every_dtype_and_form(dtype: torch.dtype) -> None:
    permutation, items = shuffled(256), messages(256)
    net = permutation_network(8).to(dtype)
    x = encode(items, permutation).to(dtype)
    expected = [items[i] for i in inverse(permutation)]
    for grad in (True, False):  # the shuffled and the in-place form
        with torch.set_grad_enabled(grad):
            y = net(x)
        assert y.abs().eq(1).all()
        assert decode(y) == expected


def test_errors_die_out() -> None:
    """A disturbance of a third of a bit is gone after one layer."""
    permutation, net = shuffled(64), permutation_network(6)
    x = encode(messages(64), permutation)
    assert torch.equal(net(x), net(x + 0.6 * torch.rand_like(x) - 0.3))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_one_set_of_weights_for_all_shorter_lengths(k: int) -> None:
    net, permutation, items = permutation_network(6), shuffled(2**k, seed=1), messages(2**k)
    assert decode(net(encode(items, permutation, k=6))) == [items[i] for i in inverse(permutation)]


def test_saved_and_loaded(tmp_path: Path) -> None:
    permutation_network(3).save_pretrained(tmp_path)
    net, permutation = ShuffleExchange.from_pretrained(tmp_path), shuffled(8)
    assert decode(net(encode(range(8), permutation))) == inverse(permutation)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        permutation_network(0)
    with pytest.raises(ValueError, match="3 items cannot be permuted by a permutation of 4"):
        encode([1, 2, 3], [3, 1, 0, 2])
    with pytest.raises(ValueError, match="from 0 to 65535"):
        encode([1, 65536], [1, 0])
    with pytest.raises(ValueError, match="k=1 permutes up to 2 messages, got 4"):
        encode(range(4), [3, 1, 0, 2], k=1)
    with pytest.raises(ValueError, match="got 3"):
        encode(range(3), range(3))
    with pytest.raises(ValueError, match=r"one sequence, \[1, N, D\], got \[2, 4, 20\]"):
        decode(torch.zeros(2, 4, 20))
