"""Networks on any even number of cells, ``pad="even"``: against a naive definition and against powers of two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from research.bench.measure import relative_error
from riffle import SequenceModel, ShuffleExchange
from riffle.inspect import trace
from riffle.models.export import export_program
from riffle.parallel import stream
from riffle.shuffle import PADS, bits, riffle, rotate, unriffle

EVEN = st.integers(1, 24).map(lambda half: 2 * half)
OPTIONS = {"blocks": st.integers(1, 3), "sharing": st.sampled_from(["block", "minimal", "full"])}


def network(**options: Any) -> ShuffleExchange:
    """With weights far from their first values, so that every path carries something."""
    net = ShuffleExchange(4, dtype=torch.float64, **{"pad": "even", **options})
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.uniform_(-1, 1)
    return net


def cells(batch: int, length: int) -> Tensor:
    return torch.rand(batch, length, 4, dtype=torch.float64) * 2 - 1


def naive(net: ShuffleExchange, x_ND: Tensor) -> Tensor:
    """One sequence of an even length: cell by cell, pair by pair, cells moved by their addresses modulo n - 1."""
    n, state, inputs = len(x_ND), list(x_ND), []
    for layer in net.layers(bits(n)):
        inputs.append(state)
        out = []
        for first in range(0, n, 2):
            skip = None if layer.skip is None else torch.stack(inputs[layer.skip][first : first + 2])
            out += net[layer.unit](torch.stack(state[first : first + 2]), skip)
        moved = list(out)
        for address in range(n - 1):  # the last cell stays
            if layer.shuffle == 1:
                moved[address] = out[2 * address % (n - 1)]
            elif layer.shuffle == -1:
                moved[2 * address % (n - 1)] = out[address]
        state = moved
    return torch.stack(state)


@given(length=EVEN, **OPTIONS)
@settings(max_examples=12, deadline=None)
def test_the_reference_is_the_naive_definition(length: int, blocks: int, sharing: str) -> None:
    net, x_BND = network(blocks=blocks, sharing=sharing), cells(2, length)
    expected_BND = torch.stack([naive(net, x_ND) for x_ND in x_BND])
    torch.testing.assert_close(net(x_BND), expected_BND, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(net(x_BND), expected_BND, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("length", [2, 4, 8, 32])
def test_at_powers_of_two_it_is_the_padded_form_bit_for_bit(length: int, grad: bool) -> None:
    net = network(blocks=2)
    padded = network(blocks=2, pad="power")
    padded.load_state_dict(net.state_dict())
    x_BND = cells(3, length)
    with torch.set_grad_enabled(grad):
        assert torch.equal(net(x_BND), padded(x_BND))
        assert torch.equal(net(x_BND[:, :-1]), padded(x_BND[:, :-1]))  # both are padded to the same length


@given(half=st.integers(1, 300), times=st.integers(-9, 9))
def test_shuffles_multiply_addresses_modulo_n_minus_1(half: int, times: int) -> None:
    n = 2 * half
    x_BND = torch.arange(n).view(1, n, 1)
    assert torch.equal(unriffle(riffle(x_BND)), x_BND)
    assert unriffle(x_BND).flatten().tolist() == [*(2 * cell % (n - 1) for cell in range(n - 1)), n - 1]
    factor = pow(2, times, n - 1) if n > 2 else 0
    moved = rotate(x_BND, times, bits(n)).flatten().tolist()
    assert moved == [*(factor * cell % (n - 1) for cell in range(n - 1)), n - 1]


@given(sizes=st.lists(st.integers(0, 24), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_rows_run_at_their_own_even_length(sizes: list[int]) -> None:
    net, x_BND = network(), cells(len(sizes), max(1, *sizes))
    y_BND = net(x_BND, lengths=sizes)
    for row, size in enumerate(sizes):
        assert not y_BND[row, size:].any()
        if size:
            x_ND = torch.nn.functional.pad(x_BND[row, :size], (0, 0, 0, size % 2))
            torch.testing.assert_close(y_BND[row, :size], naive(net, x_ND)[:size], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"pad": "even"}, {"unit": "residual", "norm": "sequence"}], ids=str)
def test_exported(options: dict[str, Any]) -> None:
    model = SequenceModel(5, 5, 4, **options).eval()
    program, lengths = export_program(model, 8)
    assert lengths == (5, 8)
    for length in (5, 6, 7, 8):
        symbols_BN = torch.randint(5, (3, length))
        torch.testing.assert_close(program.module()(symbols_BN), model(symbols_BN))


def test_traced() -> None:
    net, x_BND = network(), cells(1, 9)
    seen = trace(net, x_BND)
    torch.testing.assert_close(seen.output, net(x_BND))
    assert torch.equal(seen.layers[0].state[:, :9], x_BND)
    shuffled = trace(net, x_BND, order="shuffled")
    for placed, moved in zip(seen.layers, shuffled.layers, strict=True):
        assert torch.equal(rotate(placed.state, moved.layer.bit, 4), moved.state)


def test_what_needs_powers_of_two_refuses() -> None:
    net = network()
    for run in (net.overwrite, lambda x_BND: stream(net, x_BND, part=4)):
        with pytest.raises(ValueError, match="a sequence of 6 cells cannot be overwritten or streamed"):
            run(cells(1, 6))
        torch.testing.assert_close(run((x_BND := cells(1, 8)).clone()), net(x_BND))
    with pytest.raises(ValueError, match='unit "no-benes" needs pad="power"'):
        ShuffleExchange(4, unit="no-benes", pad="even")
    with pytest.raises(ValueError, match="unknown pad 'odd'; choose one of power, even"):
        ShuffleExchange(4, pad="odd")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("unit", ["gated", "residual"])
@pytest.mark.parametrize("lengths", [None, [200 - 5 * row for row in range(20)]], ids=["one length", "many"])
def test_on_a_gpu(lengths: list[int] | None, unit: str) -> None:
    """Called again and again, so that graphs are replayed where they can be; one sequence is longer than a tile."""
    options: dict[str, Any] = {"blocks": 2, "unit": unit, "pad": "even", "device": "cuda"}
    net = ShuffleExchange(64, backend="fused", dtype=torch.bfloat16, **options)
    exact = ShuffleExchange(64, backend="reference", **options)
    exact.load_state_dict(net.state_dict())
    shape = (3, 1030, 64) if lengths is None else (len(lengths), max(lengths), 64)
    for _ in range(4):
        x_BND, grad_BND = ((torch.rand(*shape, device="cuda") * 2 - 1).bfloat16() for _ in range(2))
        results = []
        for each, dtype in ((net, torch.bfloat16), (exact, torch.float32)):
            cells_BND = x_BND.to(dtype).requires_grad_()
            y_BND = each(cells_BND, lengths)
            wanted = [cells_BND, *each.parameters()]
            results.append([y_BND, *torch.autograd.grad(y_BND, wanted, grad_BND.to(dtype))])
        for actual, expected in zip(*results, strict=True):
            assert relative_error(actual, expected) < 0.04


@pytest.mark.gpu
def test_on_a_gpu_at_powers_of_two_bit_for_bit() -> None:
    nets = [ShuffleExchange(64, 2, pad=pad, device="cuda", dtype=torch.bfloat16) for pad in PADS]
    nets[1].load_state_dict(nets[0].state_dict())
    xs_BND = [torch.rand(3, length, 64, device="cuda").bfloat16() for length in (512, 64, 7)]
    for ys_BND in zip(*(net.forward_batches(xs_BND) for net in nets), strict=True):
        assert torch.equal(*ys_BND)
