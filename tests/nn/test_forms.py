"""The shuffled form is the definition; the in-place form must agree with it to rounding."""

from __future__ import annotations

import pytest
import torch

from riffle import ShuffleExchange
from riffle.nn import UNITS
from riffle.nn.execute import CHUNK_PAIRS, chunks, in_place_layer, reference_layer, shuffled_layer, switch_layer, walk
from riffle.shuffle import SHARINGS, riffle, rotate, unriffle

BITS = range(1, 7)


def network(unit: str, sharing: str, blocks: int, k: int) -> ShuffleExchange:
    length = 2**k if sharing == "none" else None
    net = ShuffleExchange(4, blocks, sharing=sharing, unit=unit, length=length, dtype=torch.float64)
    for name, parameter in net.named_parameters():
        if name.endswith("skip_scale"):
            torch.nn.init.uniform_(parameter, -0.3, 1.3)
        elif "bias" in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return net


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("unit", UNITS)
def test_both_forms_agree(unit: str, sharing: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in BITS:
        net = network(unit, sharing, blocks, k)
        x_BND = torch.rand(2, 2**k, 4, dtype=torch.float64) * 2 - 1
        with torch.no_grad():
            expected = walk(net.layers(k), x_BND, shuffled_layer(reference_layer(net.units)))
            for pairs in (2**k // 3 + 1, 5, 1024):
                monkeypatch.setitem(CHUNK_PAIRS, "cpu", pairs)
                in_place = in_place_layer(net.layers(k), switch_layer(net, x_BND, k))
                actual = walk(net.layers(k), x_BND.clone(), in_place)
                torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12 * expected.abs().max().item())


@pytest.mark.parametrize("pairs", [1, 3, 8, 1024])
def test_chunks_cover_every_pair_once(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_PAIRS, "cpu", pairs)
    addresses = torch.arange(2 * 32).view(2, 32, 1)
    for bit in range(5):
        parts = list(chunks(addresses, bit))
        assert all(part.shape[0] * part.shape[1] <= pairs for part in parts)
        joined = torch.cat([part.flatten(0, 1).squeeze(-1) for part in parts])
        assert (joined[:, 1] - joined[:, 0] == 1 << bit).all()
        assert sorted(joined.flatten().tolist()) == list(range(64))


def test_a_network_without_gradients_leaves_its_input_alone() -> None:
    net = ShuffleExchange(4, 2).requires_grad_(False)
    x_BND = torch.randn(2, 16, 4)
    before = x_BND.clone()
    for grad_mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with grad_mode():
            net(x_BND)
        assert torch.equal(x_BND, before)


def test_in_place_takes_strided_inputs() -> None:
    net = ShuffleExchange(4, 2, dtype=torch.float64)
    x_NBD = torch.randn(16, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        strided = net(x_NBD.transpose(0, 1))
        torch.testing.assert_close(strided, net(x_NBD.transpose(0, 1).contiguous()), rtol=0, atol=1e-14)
        one_row = x_NBD[:, :1].transpose(0, 1)
        torch.testing.assert_close(net(one_row.expand(3, 16, 4)), net(one_row.repeat(3, 1, 1)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_rotate_is_repeated_unriffles(k: int) -> None:
    x_BND = torch.randn(2, 2**k, 3)
    forward = backward = x_BND
    for turns in range(2 * k + 1):
        assert torch.equal(rotate(x_BND, turns, k), forward)
        assert torch.equal(rotate(x_BND, -turns, k), backward)
        forward, backward = unriffle(forward), riffle(backward)
