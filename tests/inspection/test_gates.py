"""A trace is what the network computes, cell by cell and gate by gate, and leaves no trace in the network."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from riffle import SequenceModel, ShuffleExchange
from riffle.inspect import trace
from riffle.kernels.reference import CANDIDATE_SCALE, mix, swap_half
from riffle.nn.switch import UNITS, ResidualUnit, SwitchUnit
from riffle.shuffle import SHARINGS, bits

FEATURES = 6
ORDERS = ("in-place", "shuffled")


def network(**arguments: object) -> ShuffleExchange:
    net = ShuffleExchange(FEATURES, **arguments, dtype=torch.float64)  # type: ignore[arg-type]
    for parameter in net.parameters():  # gates that differ from cell to cell
        torch.nn.init.normal_(parameter, std=0.7)
    return net


def cells(length: int, batch: int = 2) -> Tensor:
    return torch.rand(batch, length, FEATURES, dtype=torch.float64) * 2 - 1


def pairs(x_BWD: Tensor, bit: int) -> Tensor:
    """Both cells of every pair side by side, ``[B, P, 2 * D]``, picked one by one."""
    first = [cell for cell in range(x_BWD.shape[1]) if not cell >> bit & 1]
    return torch.stack([torch.cat((x_BWD[:, cell], x_BWD[:, cell | 1 << bit]), dim=-1) for cell in first], dim=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("length", [1, 2, 4, 5, 16])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("unit", UNITS)
def test_it_ends_in_the_output(unit: str, blocks: int, length: int, order: str) -> None:
    net, x = network(unit=unit, blocks=blocks), cells(length)
    seen = trace(net, x, order=order)
    assert [layer.layer for layer in seen.layers] == list(net.layers(bits(length)))
    assert (seen.length, seen.order) == (length, order)
    torch.testing.assert_close(seen.output, net(x))
    with torch.no_grad():
        torch.testing.assert_close(seen.output, net(x))
    torch.testing.assert_close(seen.layers[-1].out[:, :length], net(x))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_sharing(sharing: str) -> None:
    net, x = network(sharing=sharing, blocks=2, length=8 if sharing == "none" else None), cells(8)
    torch.testing.assert_close(trace(net, x).layers[-1].out, net(x))


@pytest.mark.parametrize("unit", UNITS)
def test_in_place_a_layer_joins_the_cells_that_differ_in_its_bit(unit: str) -> None:
    net, x = network(unit=unit, blocks=2), cells(16)
    layers = trace(net, x).layers
    assert torch.equal(layers[0].state, x)
    for seen, following in pairwise(layers):
        assert torch.equal(seen.out, following.state), "cells moved"
    for seen in layers:
        if seen.layer.skip is None:
            expected = net[seen.layer.unit].pairs(pairs(seen.state, seen.layer.bit), None)
            torch.testing.assert_close(pairs(seen.out, seen.layer.bit), expected)


@pytest.mark.parametrize("unit", UNITS)
def test_the_gates_explain_the_output(unit: str) -> None:
    net = network(unit=unit, blocks=2)
    for seen in trace(net, cells(8)).layers:
        bit, module = seen.layer.bit, net[seen.layer.unit]
        assert (seen.update is None) == (unit in ("two-fc", "residual"))
        assert (seen.reset is None) == (unit.startswith("two-fc") or unit == "residual")
        assert (seen.swap is None) == (unit != "swap-gate")
        if isinstance(module, ResidualUnit):
            kept = torch.sigmoid(2 * module.residual) * pairs(seen.state, bit)
            torch.testing.assert_close(pairs(seen.out, bit), kept + CANDIDATE_SCALE * pairs(seen.candidate, bit))
            continue
        if seen.update is None:
            torch.testing.assert_close(seen.candidate, seen.out)
            continue
        state = pairs(seen.state, bit)
        if seen.swap is not None:
            copied = mix(pairs(seen.swap, bit), state, torch.cat(state.chunk(2, dim=-1)[::-1], dim=-1))
        else:
            copied = swap_half(state) if getattr(module, "swap", True) else state
        torch.testing.assert_close(
            pairs(seen.out, bit), mix(pairs(seen.update, bit), copied, pairs(seen.candidate, bit))
        )


def test_the_reset_gates_explain_the_candidates() -> None:
    net = network()
    for seen in trace(net, cells(8)).layers:
        module, bit = net[seen.layer.unit], seen.layer.bit
        assert isinstance(module, SwitchUnit)
        assert seen.reset is not None
        assert seen.reset.shape == (2, 8, 2, FEATURES)
        state_BPE = pairs(seen.state, bit)
        for pair, cell in enumerate(cell for cell in range(8) if not cell >> bit & 1):
            for which, address in enumerate((cell, cell | 1 << bit)):
                kept = seen.reset[:, address].flatten(1) * state_BPE[:, pair]
                weight, bias = module.candidates_weight[which], module.candidates_bias[which]
                torch.testing.assert_close(seen.candidate[:, address], torch.tanh(kept @ weight.T + bias))


def test_a_model_is_its_network_on_embedded_symbols() -> None:
    model = SequenceModel(5, 7, FEATURES, dtype=torch.float64)
    symbols = torch.randint(0, 5, (3, 11))
    seen = trace(model, symbols)
    assert seen.layers[0].state.shape == (3, 16, FEATURES)
    torch.testing.assert_close(model.output(seen.output), model(symbols))


def test_the_network_stays_as_it_was() -> None:
    net, x = network(dropout=0.5, blocks=2).train(), cells(8)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    seen = trace(net, x)
    assert net.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in net.parameters())
    torch.testing.assert_close(seen.output, net.eval()(x), msg="dropout had a part in it")
    assert not seen.output.requires_grad


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="unknown order 'sorted'; choose one of in-place, shuffled"):
        trace(network(), cells(4), order="sorted")
    with pytest.raises(ValueError, match="not a Linear"):
        trace(torch.nn.Linear(2, 2), cells(4))
    with pytest.raises(ValueError, match=r"\[batch, length\] symbols"):
        trace(SequenceModel(5, 7, FEATURES), torch.zeros(4, dtype=torch.int64))
