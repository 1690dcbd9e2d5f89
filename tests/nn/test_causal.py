"""The causal network: no cell sees a later one, every cell sees all before it, and a step is what the whole pass is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.export import Dim

from riffle.nn.causal import CausalShuffleExchange
from riffle.nn.causal_switch import CAUSAL_UNITS
from riffle.shuffle import SHARINGS, Sharing, bits, causal_schedule

from .test_compile import GraphCounter


def network(unit: str = "gated", sharing: Sharing = "block", blocks: int = 2, **options: Any) -> CausalShuffleExchange:
    """A network in which no parameter has its initial value."""
    torch.manual_seed(0)
    length = 16 if sharing == "none" else None
    net = CausalShuffleExchange(6, blocks, unit=unit, sharing=sharing, length=length, **options)
    for parameter in net.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return net


def cells(batch: int, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(batch, length, 6, dtype=dtype, generator=torch.Generator().manual_seed(length)) * 2 - 1


@pytest.fixture(params=[(unit, sharing) for unit in CAUSAL_UNITS for sharing in SHARINGS], ids="-".join)
def net(request: pytest.FixtureRequest) -> CausalShuffleExchange:
    return network(*request.param, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 21])
def test_gradients_reach_all_earlier_cells_and_no_later_one(net: CausalShuffleExchange, length: int) -> None:
    x_BND = cells(1, length).requires_grad_()
    y_BND = net(x_BND)
    for i in range(length):
        (gradient,) = torch.autograd.grad(y_BND[0, i].square().sum(), x_BND, retain_graph=True)
        sizes_N = gradient[0].abs().sum(-1)
        assert (sizes_N[i + 1 :] == 0).all()
        assert (sizes_N[: i + 1] > 0).all()


def test_every_length_is_reached_within_half_a_block() -> None:
    for length in range(1, 301):
        k = bits(length)
        reach = [1 << i for i in range(length)]
        for layer in causal_schedule(k)[:k]:
            distance = 2**layer.bit
            reach = [reach[i] | reach[i - distance] if i >= distance else reach[i] for i in range(length)]
        assert reach == [2 ** (i + 1) - 1 for i in range(length)]


def test_a_prefix_gives_the_prefix(net: CausalShuffleExchange) -> None:
    x_BND = cells(2, 67)
    y_BND = net(x_BND)
    for length in range(1, 67):
        torch.testing.assert_close(net(x_BND[:, :length]), y_BND[:, :length], rtol=0, atol=1e-12)


def test_steps_are_the_whole_pass(net: CausalShuffleExchange) -> None:
    x_BND = cells(2, 67)
    y_BND = net(x_BND)
    for cache in (None, net.start(2, length=67)):
        for i in range(67):
            y_BD, cache = net.step(x_BND[:, i], cache)
            torch.testing.assert_close(y_BD, y_BND[:, i], rtol=0, atol=1e-12)
            assert cache.inputs.shape[2] <= max(2, 128 if cache.length else 8 * i)
    with pytest.raises(ValueError, match="made for 67 cells"):
        net.step(x_BND[:, 0], cache)


@pytest.mark.parametrize("length", [None, 60])
@pytest.mark.parametrize("sizes", [[0, 1], [5, 32], [33, 31], [40, 40]], ids=str)
def test_steps_after_a_prefill_of_different_lengths(sizes: list[int], length: int | None) -> None:
    for unit in CAUSAL_UNITS:
        net = network(unit, dtype=torch.float64)
        x_BND, rows_B = cells(2, 60), torch.arange(2)
        whole_BND = net(x_BND)
        y_BND, cache = net.prefill(x_BND[:, : max(sizes)], sizes, length=length)
        torch.testing.assert_close(y_BND, net(x_BND[:, : max(sizes)], lengths=sizes), rtol=0, atol=1e-12)
        for _ in range(20):
            at_B = cache.positions.clone()
            y_BD, cache = net.step(x_BND[rows_B, at_B], cache)
            torch.testing.assert_close(y_BD, whole_BND[rows_B, at_B], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="does not hold"):
        net.prefill(x_BND, length=59)


def test_two_thousand_cells_in_single_precision() -> None:
    net, x_BND = network(blocks=1), cells(1, 2000, torch.float32)
    y_BND = net(x_BND)
    _, cache = net.prefill(x_BND[:, :1980])
    for i in range(1980, 2000):
        y_BD, cache = net.step(x_BND[:, i], cache)
        torch.testing.assert_close(y_BD, y_BND[:, i], rtol=0, atol=1e-5)
    assert cache.bytes == 4 * 2 * 4096 * 6


def test_a_step_with_room_never_waits_for_the_device() -> None:
    with FakeTensorMode():  # on tensors without values, anything that has to look at one raises
        net = CausalShuffleExchange(6, 2)
        y_BD, cache = net.step(torch.rand(3, 6), net.start(3, length=100))
        assert y_BD.shape == (3, 6)
        assert cache.inputs.shape == (4, 3, 128, 6)


def test_rows_of_different_lengths() -> None:
    net, x_BND = network(dtype=torch.float64), cells(3, 20)
    x_BND[0, 7:] = torch.nan
    lengths = [7, 20, 0]
    y_BND = net(x_BND, lengths=lengths)
    for row, size in enumerate(lengths):
        assert (y_BND[row, size:] == 0).all()
        if size:
            torch.testing.assert_close(y_BND[row, :size], net(x_BND[row : row + 1, :size])[0], rtol=0, atol=1e-12)
    padding_BN = torch.arange(20) >= torch.tensor(lengths)[:, None]
    assert torch.equal(net(x_BND, key_padding_mask=padding_BN), y_BND)
    y_BND.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters())


def test_a_longer_input_uses_the_unit_of_the_largest_distance() -> None:
    net = network("residual", "none", 1)
    assert [layer.unit for layer in net.layers(6)[:6]] == [f"0_forward_{bit}" for bit in (0, 1, 2, 3, 3, 3)]


def test_gated_outputs_stay_bounded_and_dropout_leaves_causality() -> None:
    net = network(dropout=0.5, dtype=torch.float64)
    x_BND = cells(2, 100)
    assert net.eval()(x_BND).abs().max() <= 1
    x_BND.requires_grad_()
    y_BND = net.train()(x_BND)
    assert not torch.equal(y_BND, net(x_BND))
    assert (torch.autograd.grad(y_BND[:, 40].sum(), x_BND)[0][:, 41:] == 0).all()


def test_autocast_keeps_the_dtype_of_the_cells() -> None:
    x_BND = cells(2, 21, torch.float32)
    for unit in CAUSAL_UNITS:
        net = network(unit)
        with torch.autocast("cpu", torch.bfloat16):
            y_BND = net(x_BND)
            y_BD, _ = net.step(x_BND[:, 20], net.prefill(x_BND[:, :20])[1])
        assert y_BND.dtype == y_BD.dtype == torch.float32
        exact_BND = net(x_BND)
        assert (y_BND - exact_BND).norm() < 0.1 * exact_BND.norm()


def test_compiled_and_exported() -> None:
    net, counter = network(blocks=1, dtype=torch.float64), GraphCounter()
    compiled = torch.compile(net, fullgraph=True, backend=counter)
    for length in (9, 10, 13, 16):
        torch.testing.assert_close(compiled(cells(2, length)), net(cells(2, length)), rtol=0, atol=1e-12)
    assert counter.graphs == 2  # the first length by itself, then all others
    shapes = ({0: Dim("batch"), 1: Dim("length", min=9, max=16)},)
    program = torch.export.export(net, (cells(2, 12),), dynamic_shapes=shapes).module()
    for length in (9, 15, 16):
        torch.testing.assert_close(program(cells(3, length)), net(cells(3, length)), rtol=0, atol=1e-12)


def test_flops_are_those_of_the_units_evaluated() -> None:
    net = network(blocks=1)
    assert net.flops(5) == 2 * (4 + 3 + 1) * net["0_forward"].flops
    assert net["0_forward"].flops == 16 * 6**2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unit": "no-swap"}, "choose one of gated, residual"),
        ({"sharing": "some"}, "unknown sharing"),
        ({"features": 5}, "even"),
        ({"blocks": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"sharing": "none"}, "needs length="),
    ],
)
def test_mistakes(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CausalShuffleExchange(**{"features": 4, **arguments})


def test_mistakes_of_a_step() -> None:
    net = network()
    with pytest.raises(ValueError, match="has 2 rows, the input 3"):
        net.step(torch.zeros(3, 6), net.start(2))
    with pytest.raises(ValueError, match="has 6 features per cell"):
        net.step(torch.zeros(3, 5))
