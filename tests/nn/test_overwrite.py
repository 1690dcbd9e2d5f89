"""A network that overwrites its input gives what it gives otherwise, on either kernels, in one buffer."""

from __future__ import annotations

import pytest
import torch

from riffle import ShuffleExchange
from riffle.nn import UNITS
from riffle.nn import execute as in_place
from riffle.shuffle import SHARINGS

from .test_forms import network
from .test_memory import peak_bytes, without_kernels  # noqa: F401  # a fixture


def random_cells(batch: int, cells: int, features: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(batch, cells, features, dtype=dtype) * 2 - 1


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize(("unit", "sharing"), [*((u, "block") for u in UNITS), *(("gated", s) for s in SHARINGS)])
def test_it_equals_forward(unit: str, sharing: str, blocks: int) -> None:
    for k in (1, 2, 3, 6, 9):
        net = network(unit, sharing, blocks, k)
        x_BND = random_cells(3, 2**k, 4, torch.float64)
        expected = net(x_BND)
        result = net.overwrite(x_BND)
        assert result is x_BND
        torch.testing.assert_close(result, expected.detach(), rtol=0, atol=1e-12)


def test_the_order_of_the_released_code() -> None:
    net = ShuffleExchange(6, 2, order="official")
    x_BND = random_cells(2, 16, 6)
    torch.testing.assert_close(net(x_BND).detach(), net.overwrite(x_BND), rtol=0, atol=1e-6)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_on_the_fused_kernels(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = pytest.importorskip("riffle.kernels.fused", reason="Triton has no build for this platform")
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where the interpreter runs the kernels
    chunks = []
    layer = fused.switch_and_shuffle
    monkeypatch.setattr(fused, "switch_and_shuffle", lambda *a, **o: chunks.append(o["sequences"]) or layer(*a, **o))
    monkeypatch.setitem(in_place.CHUNK_PAIRS, "cpu", 8)
    monkeypatch.setattr(in_place, "CHUNK_PAIRS_DEVICE", 8)
    net = ShuffleExchange(12, blocks, backend="fused", device=device)
    x_BND = random_cells(3, 16, 12).to(device)
    reference = ShuffleExchange(12, blocks, backend="reference", device=device)
    reference.load_state_dict(net.state_dict())
    expected = reference(x_BND).detach()
    torch.testing.assert_close(net.overwrite(x_BND), expected, rtol=0, atol=1e-5)
    assert chunks == [[8]] * (3 * len(net.layers(4))), "not every chunk of eight pairs went through the kernels"


@pytest.mark.skipif(torch.cuda.is_available(), reason="counts what a CPU allocates")
@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.usefixtures("without_kernels")
def test_beside_the_input_it_takes_chunks(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(in_place.CHUNK_PAIRS, "cpu", 64)
    net = ShuffleExchange(16, backend=backend)
    chunk = 128 * 16 * 4
    weights = sum(parameter.nbytes for parameter in net.parameters())
    for cells in (2**9, 2**11):
        x_BND = random_cells(1, cells, 16)
        most = peak_bytes(lambda: net.overwrite(x_BND))  # noqa: B023
        allowed = 7 * chunk + (weights if backend == "fused" else 0)  # which are put in order first
        assert 5 * chunk < most <= allowed * 1.05, f"{most / chunk:.1f} chunks"


@pytest.mark.parametrize(("blocks", "kept"), [(1, 0), (2, 8), (3, 8), (5, 8)])
def test_skip_connections_keep_one_block(blocks: int, kept: int) -> None:
    assert len(set(in_place.skip_buffers(ShuffleExchange(4, blocks).layers(5)).values())) == kept


def test_mistakes() -> None:
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
