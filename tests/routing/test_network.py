"""The network with weights set by hand carries out every permutation, exactly."""

from __future__ import annotations

import runpy
from itertools import permutations
from pathlib import Path

import pytest
import torch

from riffle import ShuffleExchange
from riffle.routing import inverse

from .test_routing import shuffled

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "permutation_network.py"))
MESSAGE_BITS, decode, encode, permutation_network = (
    EXAMPLE[name] for name in ("MESSAGE_BITS", "decode", "encode", "permutation_network")
)


def messages(n: int) -> list[int]:
    """Numbers that use all bits, no two the same."""
    return [(i * 40503 + 7) % 2**MESSAGE_BITS for i in range(n)]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_all_permutations(k: int) -> None:
    n = 2**k
    every = list(permutations(range(n)))
    # Message i is the number of its exit, so that all have to come out in order.
    y_BND = permutation_network(k)(torch.cat([encode(permutation, permutation, k) for permutation in every]))
    assert decode(y_BND[:1]) == list(range(n))
    assert torch.equal(y_BND[..., :MESSAGE_BITS], y_BND[:1, :, :MESSAGE_BITS].expand(len(every), -1, -1))
    assert torch.equal(y_BND.abs(), torch.ones_like(y_BND))


@pytest.mark.parametrize("n", [16, 64, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_random_permutations(n: int, seed: int) -> None:
    permutation, items = shuffled(n, seed), messages(n)
    k = n.bit_length() - 1
    assert decode(permutation_network(k)(encode(items, permutation, k))) == [items[i] for i in inverse(permutation)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_exact_in_every_dtype_and_form(dtype: torch.dtype) -> None:
    permutation, items = shuffled(256), messages(256)
    net = permutation_network(8).to(dtype)
    x = encode(items, permutation, 8).to(dtype)
    expected = [items[i] for i in inverse(permutation)]
    for grad in (True, False):  # the shuffled and the in-place form
        with torch.set_grad_enabled(grad):
            y = net(x)
        assert y.abs().eq(1).all()
        assert decode(y) == expected


def test_errors_die_out() -> None:
    """A disturbance of a third of a bit is gone after one layer."""
    permutation, net = shuffled(64), permutation_network(6)
    x = encode(messages(64), permutation, 6)
    assert torch.equal(net(x), net(x + 0.6 * torch.rand_like(x) - 0.3))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_one_set_of_weights_for_all_shorter_lengths(k: int) -> None:
    net, permutation, items = permutation_network(6), shuffled(2**k, seed=1), messages(2**k)
    assert decode(net(encode(items, permutation, k=6))) == [items[i] for i in inverse(permutation)]


def test_saved_and_loaded(tmp_path: Path) -> None:
    permutation_network(3).save_pretrained(tmp_path)
    net, permutation = ShuffleExchange.from_pretrained(tmp_path), shuffled(8)
    assert decode(net(encode(range(8), permutation, 3))) == inverse(permutation)
