"""The shuffled form is the definition; in place, and overwriting its input, a network agrees with it to rounding."""

from __future__ import annotations

import pytest
import torch
from parallel import jobs

from riffle import ShuffleExchange
from riffle.nn import UNITS, execute
from riffle.nn.execute import CHUNK_PAIRS, in_place_layer, reference_layer, shuffled_layer, switch_layer, walk
from riffle.shuffle import SHARINGS

BITS = range(1, 7)


def network(unit: str, sharing: str, blocks: int, k: int) -> ShuffleExchange:
    length = 2**k if sharing == "none" else None
    options = {"features": 4, "blocks": blocks, "sharing": sharing, "unit": unit, "length": length}
    return jobs.network(options | {"dtype": torch.float64})


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


# Overwriting the input


def random_cells(batch: int, cells: int, features: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(batch, cells, features, dtype=dtype) * 2 - 1


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize(("unit", "sharing"), [*((u, "block") for u in UNITS), *(("gated", s) for s in SHARINGS)])
def test_overwrite_equals_forward(unit: str, sharing: str, blocks: int) -> None:
    for k in (1, 2, 3, 6, 9):
        net = network(unit, sharing, blocks, k)
        x_BND = random_cells(3, 2**k, 4, torch.float64)
        expected = net(x_BND)
        result = net.overwrite(x_BND)
        assert result is x_BND
        torch.testing.assert_close(result, expected.detach(), rtol=0, atol=1e-12)


def test_overwrite_in_the_order_of_the_released_code() -> None:
    net = ShuffleExchange(6, 2, order="official")
    x_BND = random_cells(2, 16, 6)
    torch.testing.assert_close(net(x_BND).detach(), net.overwrite(x_BND), rtol=0, atol=1e-6)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_overwrite_on_the_fused_kernels(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("riffle.kernels.fused", reason="Triton has no build for this platform")
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where the interpreter runs the kernels
    monkeypatch.setitem(execute.CHUNK_PAIRS, "cpu", 8)
    monkeypatch.setattr(execute, "CHUNK_PAIRS_DEVICE", 8)
    net = ShuffleExchange(12, blocks, backend="fused", device=device)
    x_BND = random_cells(3, 16, 12).to(device)
    reference = ShuffleExchange(12, blocks, backend="reference", device=device)
    reference.load_state_dict(net.state_dict())
    expected = reference(x_BND).detach()
    torch.testing.assert_close(net.overwrite(x_BND), expected, rtol=0, atol=1e-5)


def test_what_cannot_be_overwritten() -> None:
    net = ShuffleExchange(4)
    for cells in (1, 3, 12):
        with pytest.raises(ValueError, match=f"{cells} cells cannot be overwritten.*pad it"):
            net.overwrite(torch.zeros(1, cells, 4))
    with pytest.raises(ValueError, match="contiguous"):
        net.overwrite(torch.zeros(4, 2, 4).transpose(0, 1))
    with pytest.raises(ValueError, match="runs at one size, 8 cells, not at 4"):
        ShuffleExchange(4, sharing="none", length=8).overwrite(torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match="4 features per cell, the input has 6"):
        net.overwrite(torch.zeros(1, 4, 6))
    x_BND = torch.zeros(1, 4, 4, requires_grad=True)
    for history in (x_BND, torch.tanh(x_BND) * 1):  # whose backward pass would take the network for the identity
        with pytest.raises(ValueError, match=r"a gradient to come.*x\.detach\(\)"):
            net.overwrite(history)
