"""How much memory a network takes without gradients, and what it says where memory runs out."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from riffle import ShuffleExchange
from riffle.environment import free_bytes
from riffle.nn.execute import CHUNK_PAIRS_DEVICE
from riffle.nn.switch import SwitchUnit


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device without memory, of which autocast does not know."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    return torch.device("meta")


class LiveBytes(TorchDispatchMode):
    """Counts the bytes held at once beside a network's weights, also on a device without memory ("meta")."""

    def __init__(self, net: ShuffleExchange) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known = {parameter.untyped_storage()._cdata for parameter in net.parameters()}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for storage in (leaf.untyped_storage() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)):
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self.release, storage._cdata, storage.nbytes())
        return result

    def release(self, storage: int, nbytes: int) -> None:
        self.known.remove(storage)
        self.live -= nbytes


@pytest.mark.parametrize(("unit", "held"), [("gated", 6), ("swap-gate", 10), ("two-fc-gate", 6), ("residual", 9)])
@pytest.mark.parametrize("blocks", [1, 3])
def test_without_gradients_layers_overwrite_one_buffer(unit: str, held: int, blocks: int, meta: torch.device) -> None:
    """Beside the input, a copy, the inputs for skip connections, and what the unit computes for a chunk of pairs."""
    net = ShuffleExchange(64, blocks, unit=unit, backend="reference", device=meta)
    with torch.no_grad(), LiveBytes(net) as live:
        x_BND = torch.empty(1, 2**20, 64, device=meta)
        net(x_BND)
    skipped = 2 * 19 if blocks > 1 and net.skips else 0
    chunk = 2 * CHUNK_PAIRS_DEVICE / 2**20 * (held + 3 * (skipped > 0))
    assert live.peak <= (2.001 + skipped + chunk) * x_BND.nbytes


def test_overwriting_takes_chunks_beside_the_input(meta: torch.device) -> None:
    net = ShuffleExchange(64, backend="reference", device=meta)
    x_BND = torch.empty(1, 2**21, 64, device=meta)
    with LiveBytes(net) as live:
        net.overwrite(x_BND)
    chunk = 2 * CHUNK_PAIRS_DEVICE * 64 * 4
    assert live.peak - x_BND.nbytes <= 6.001 * chunk


@pytest.mark.parametrize("training", [False, True])
def test_running_out_of_memory(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.")

    monkeypatch.setattr(SwitchUnit, "pairs", fail)
    with torch.set_grad_enabled(training), pytest.raises(torch.OutOfMemoryError) as error:
        ShuffleExchange(64, backend="reference")(torch.zeros(3, 1000, 64))
    assert error.value.__context__ is None, "the attempt's tensors live as long as its error"
    assert str(error.value).startswith("out of GPU memory at length 1000: choose shorter inputs, a smaller batch, or")


@pytest.mark.gpu
def test_a_gpu_that_ran_out_of_memory_serves_shorter_inputs() -> None:
    net = ShuffleExchange(64, device="cuda", dtype=torch.bfloat16)
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**30) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="out of GPU memory at length 4194304"):
            net(torch.rand(1, 2**22, 64, device="cuda", dtype=torch.bfloat16))
        net(torch.rand(1, 2**16, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.gpu
def test_free_bytes_know_the_share_of_the_process() -> None:
    device = torch.device("cuda")
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:  # others may use the GPU at the same time, so that less is free
        assert free_bytes(device) <= 0.1 * torch.cuda.mem_get_info()[1]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
