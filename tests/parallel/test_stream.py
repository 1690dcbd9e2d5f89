"""A streamed sequence comes out as from the network itself, whatever its length, the parts and where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle import ShuffleExchange
from riffle.nn import UNITS
from riffle.parallel import stream, streaming
from riffle.parallel.streaming import stream_passes
from riffle.shuffle import SHARINGS, schedule

from .jobs import inputs, network


def assert_streams(net: ShuffleExchange, batch: int, k: int, w: int) -> None:
    x_BND, _ = inputs(batch, 2**k, net.features)
    with torch.no_grad():
        expected = net(x_BND)
    result = stream(net, x_BND, part=2**w)
    assert result is x_BND
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6, msg=f"k = {k}, w = {w}")


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("k", range(1, 13))
def test_every_length(k: int, blocks: int) -> None:
    net = network({"features": 4, "blocks": blocks})
    # As few cells as 2^5 parts leave, the square root, all, and more than all.
    for w in sorted({max(1, k - 5), (k + 1) // 2, k, k + 1}):
        assert_streams(net, 1 if k > 8 else 3, k, w)


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_blocks_and_sharings(sharing: str, blocks: int) -> None:
    for k in (1, 2, 5):
        net = network(
            {"features": 4, "blocks": blocks, "sharing": sharing, "length": 2**k if sharing == "none" else None}
        )
        for w in (1, 2, 3, 5):
            assert_streams(net, 2, k, w)


@pytest.mark.parametrize("options", [*({"unit": unit} for unit in UNITS), {"order": "official"}], ids=str)
def test_units_and_the_released_order(options: dict[str, str]) -> None:
    assert_streams(network({"features": 6, "blocks": 2, **options}), 1, 6, 4)


def test_the_fused_kernels() -> None:
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where the interpreter runs the kernels
    net = network({"features": 12, "blocks": 2, "backend": "fused", "device": device})
    x_BND, _ = inputs(1, 16, 12)
    expected = net(x_BND.to(device)).detach().cpu()
    torch.testing.assert_close(stream(net, x_BND, part=8), expected, rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_many_parts_take_turns_on_a_gpu() -> None:
    net = network({"features": 32, "blocks": 2, "device": "cuda"})
    x_BND, _ = inputs(2, 2**15, 32)
    with torch.no_grad():
        expected = net(x_BND.cuda()).cpu()
    for part in (2**8, 2**11):
        torch.testing.assert_close(stream(net, x_BND.clone(), part=part), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_files(blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network({"features": 4, "blocks": blocks})
    x_BND, _ = inputs(1, 64, 4)
    x_BND.numpy().tofile(tmp_path / "cells")
    source = torch.from_file(str(tmp_path / "cells"), shared=True, size=x_BND.numel()).view_as(x_BND)
    target = torch.from_numpy(np.memmap(tmp_path / "out", np.float32, "w+", shape=(1, 64, 4)))
    (tmp_path / "scratch").mkdir()
    made: list[Path | None] = []
    map_memory = streaming.memory_mapped

    def count(like: torch.Tensor, folder: Path) -> torch.Tensor:
        made.append(folder)
        return map_memory(like, folder)

    def watch(done: int, total: int) -> None:
        assert list((tmp_path / "scratch").iterdir()) == [], "a process that is killed would leave its files"

    monkeypatch.setattr(streaming, "memory_mapped", count)
    assert stream(net, source, part=16, out=target, scratch=tmp_path / "scratch", on_progress=watch) is target
    assert torch.equal(source, x_BND), "the input was overwritten"
    written = torch.from_numpy(np.fromfile(tmp_path / "out", np.float32)).view_as(x_BND)
    torch.testing.assert_close(written, net(x_BND).detach(), rtol=0, atol=1e-6)
    assert made == [tmp_path / "scratch"] * (0 if blocks == 1 else 2 * (6 - 1)), "not one for each layer of a block"


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    stream(ShuffleExchange(4), torch.zeros(2, 64, 4), part=16, on_progress=lambda *now: seen.append(now))
    assert seen == [(done, 24) for done in range(1, 25)]  # 3 stream_passs, 2 sequences, 4 parts of each


@given(st.data())
def test_parts_hold_both_cells_of_every_pair(data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 9))
    w = data.draw(st.integers(1, k))
    blocks = data.draw(st.integers(1, 3))
    layers = schedule(k, blocks)
    plan = stream_passes(layers, w)
    assert len(plan) == 2 * blocks * (-(-k // w) - 1) + 1
    assert [index for stream_pass in plan for index in stream_pass.layers] == list(range(len(layers)))
    addresses = torch.arange(2**k).view(1, -1, 1)
    for stream_pass in plan:
        parts = [part.flatten() for part in stream_pass.parts(addresses)]
        assert all(part.numel() == 2**w for part in parts)
        assert torch.cat(parts).sort().values.equal(addresses.flatten())
        for index in stream_pass.layers:
            place = 1 << stream_pass.part_bit(layers[index].bit)
            assert all((part[i] ^ part[i ^ place]) == 1 << layers[index].bit for part in parts for i in (0, 2**w - 1))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_two_passes_a_block_however_long(blocks: int) -> None:
    for k in (8, 20, 28, 36):
        for w in (k // 2, k // 2 + 3):
            plan = stream_passes(schedule(k, blocks), w)
            assert len(plan) == 2 * blocks + 1
            assert (
                min(stream_pass.run_bits + stream_pass.window_bits * (stream_pass.window == 0) for stream_pass in plan)
                == 2 * w - k
            ), "runs are too short"


def test_mistakes() -> None:
    net, x_BND = ShuffleExchange(4), torch.zeros(1, 8, 4)
    for part in (0, 1, 6):
        with pytest.raises(ValueError, match=f"a power of two of cells, at least 2, got {part}"):
            stream(net, x_BND, part=part)
    with pytest.raises(ValueError, match="7 cells cannot be overwritten"):
        stream(net, x_BND[:, :7])
    with pytest.raises(ValueError, match=r"out must be contiguous, of shape \(1, 8, 4\)"):
        stream(net, x_BND, out=torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match="float64, the network"):
        stream(net, x_BND.double())
    with pytest.raises(ValueError, match=r"the sequence is on meta.*x\.cpu\(\)"):
        stream(net, x_BND.to("meta"))
    with pytest.raises(ValueError, match=r"a gradient to come.*x\.detach\(\)"):
        stream(net, torch.tanh(x_BND.requires_grad_()))
    memory = torch.zeros(1, 16, 4)
    for out in (memory[:, :8], memory[:, 4:12]):
        with pytest.raises(ValueError, match="out overlaps the input"):
            stream(net, memory[:, :8], out=out)
    assert stream(net, memory[:, :8], out=memory[:, 8:]).isfinite().all()
