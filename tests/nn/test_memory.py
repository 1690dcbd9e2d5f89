"""How much a network needs: what is estimated is what is allocated, and an error names a length that fits."""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from riffle import ShuffleExchange
from riffle.cost import FIXED_BYTES, SLACK, MemoryModel, out_of_memory_message
from riffle.environment import free_bytes
from riffle.nn import execute as memory
from riffle.nn.execute import memory_model
from riffle.nn.switch import SwitchUnit

GIB = 2**30


def peak_bytes(function: Callable[[], Any]) -> int:
    """The most that was allocated on the CPU at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


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


def run(net: ShuffleExchange, batch: int, cells: int, training: bool) -> None:
    weight = next(net.parameters())
    x_BND = torch.rand(batch, cells, net.features, device=weight.device, dtype=weight.dtype)
    with torch.set_grad_enabled(training):
        y_BND = net(x_BND)
    if training:
        y_BND.backward(torch.ones_like(y_BND))


def estimate(net: ShuffleExchange, batch: int, cells: int, training: bool) -> int:
    return memory_model(net, next(net.parameters()), training).bytes(batch, cells)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused kernels compute nothing, which changes nothing about what is allocated."""
    kernels = pytest.importorskip("riffle.kernels.gated_switch", reason="Triton has no build for this platform")
    for name in vars(kernels):
        if name.endswith(("_forward", "_backward")):
            monkeypatch.setattr(kernels, name, defaultdict(lambda: lambda *arguments, **options: None))


WORK = [("fused", False, True), ("fused", True, True), ("fused", True, False)]
WORK += [("reference", False, True), ("reference", True, True)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="elsewhere the kernels are left out")
@pytest.mark.parametrize(("backend", "training", "recompute"), WORK)
@pytest.mark.parametrize(
    ("blocks", "unit"), [(1, "gated"), (2, "gated"), (3, "gated"), (2, "no-residual"), (2, "no-benes")]
)
def test_what_is_estimated_is_allocated(
    backend: str, training: bool, recompute: bool, blocks: int, unit: str, without_kernels: None
) -> None:
    net = ShuffleExchange(8, blocks, unit=unit, backend=backend, recompute=recompute)
    for batch, cells in ((256, 32), (32, 256)):
        run(net, batch, cells, training)
        net.zero_grad(set_to_none=False)
        actual = peak_bytes(lambda: run(net, batch, cells, training))  # noqa: B023
        expected = estimate(net, batch, cells, training)
        assert expected == pytest.approx(actual, rel=0.12), f"{actual / expected:.2f} times the estimate"


@pytest.mark.skipif(torch.cuda.is_available(), reason="elsewhere the kernels are left out")
@pytest.mark.parametrize(("backend", "training", "recompute"), WORK[:3])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_swap_gate_is_estimated_on_the_kernels(
    backend: str, training: bool, recompute: bool, blocks: int, without_kernels: None
) -> None:
    test_what_is_estimated_is_allocated(backend, training, recompute, blocks, "swap-gate", without_kernels)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("unit", "norm"),
    [("gated", "features"), ("swap-gate", "features"), ("two-fc", "features"), ("two-fc-gate", "features"),
     ("residual", "features"), ("residual", "sequence")],
)  # fmt: skip
def test_plain_pytorch_holds_no_more_than_is_estimated(
    unit: str, norm: str, dtype: torch.dtype, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the lengths and in the chunks of a GPU: less than a chunk, and several."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)  # it does not know this device
    shapes = [(64, 2**8)] if training else [(64, 2**8), (1, 2**20)]
    for features, blocks in ((64, 1), (96, 3)):
        net = ShuffleExchange(features, blocks, unit=unit, norm=norm, backend="reference", device="meta", dtype=dtype)
        for batch, cells in shapes:
            with LiveBytes(net) as held:
                run(net, batch, cells, training)
            ratio = held.peak / estimate(net, batch, cells, training)
            assert 0.88 < ratio < 1.01, f"{features} features, {blocks} blocks, {batch} x {cells}: {ratio:.2f}"


@pytest.mark.parametrize("unit", ["gated", "swap-gate", "two-fc-gate", "residual"])
def test_autocast_holds_no_more_than_is_estimated(unit: str) -> None:
    net = ShuffleExchange(32, unit=unit, backend="reference")
    with torch.autocast("cpu", torch.bfloat16), LiveBytes(net) as held:
        run(net, 8, 1024, training=False)
        expected = estimate(net, 8, 1024, training=False)
    assert 0.9 * expected < held.peak < 1.04 * expected


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "training", "recompute"), WORK)
@pytest.mark.parametrize(("features", "blocks"), [(64, 1), (192, 1), (384, 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_what_is_estimated_is_allocated_on_a_gpu(
    backend: str, training: bool, recompute: bool, features: int, blocks: int, dtype: torch.dtype
) -> None:
    net = ShuffleExchange(features, blocks, backend=backend, recompute=recompute, device="cuda", dtype=dtype)
    batch, cells = 2, 2**15
    run(net, batch, cells, training)  # libraries take what they need for themselves
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run(net, batch, cells, training)
    actual = torch.cuda.max_memory_allocated() - before
    assert estimate(net, batch, cells, training) == pytest.approx(actual, rel=0.3)


@pytest.mark.gpu
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["fused", "reference"])
@pytest.mark.parametrize("room", [GIB * 3 // 4, GIB * 21 // 20, GIB * 5 // 4])
def test_the_length_named_fits(room: int, backend: str, training: bool) -> None:
    net = ShuffleExchange(64, backend=backend, device="cuda", dtype=torch.bfloat16)
    run(net, 1, 1024, training)
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + room) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="out of GPU memory: 1 sequence of 4,194,304 cells") as error:
            run(net, 1, 2**22, training)
        named = int(re.search(r"batch ([\d,]+) cells would fit", str(error.value))[1].replace(",", ""))
        del error
        assert named >= 2**12
        run(net, 1, named, training)
        if training:
            run(net, 1, named, training)
        with pytest.raises(torch.OutOfMemoryError):
            run(net, 1, 8 * named, training)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def fail(*arguments: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.")


@pytest.mark.parametrize("training", [False, True])
def test_running_out_of_memory_names_what_would_fit(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    net = ShuffleExchange(64, backend="reference")
    x_BND = torch.zeros(3, 1000, 64)
    needed = estimate(net, 3, 1024, training)
    monkeypatch.setattr(SwitchUnit, "pairs", fail)
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed // 3 + FIXED_BYTES)
    with torch.set_grad_enabled(training), pytest.raises(torch.OutOfMemoryError) as error:
        net(x_BND)
    assert error.value.__context__ is None, "the attempt's tensors live as long as its error"
    message = str(error.value)
    assert message.startswith("out of GPU memory: 3 sequences of 1,024 cells with 64 features need about 0.")
    assert ("to train" in message, "without gradients" in message) == (training, not training)
    assert "at this batch 256 cells would fit, and a smaller batch or bfloat16 need less" in message
    assert "\n" not in message


def test_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    net = MemoryModel(
        features=64, blocks=1, skips=False, benes=True, dtype=torch.bfloat16, fused=True, training=True, recompute=False
    )
    message = out_of_memory_message(net, [(64, 8), (64, 64)], 0)
    assert "64 sequences of 8 cells and 64 sequences of 64 cells" in message
    assert "no length would fit at this batch, and a smaller batch or recompute=True need less" in message


def test_other_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("another mistake")

    monkeypatch.setattr(SwitchUnit, "pairs", broken)
    with pytest.raises(RuntimeError, match="another mistake"):
        ShuffleExchange(4)(torch.zeros(1, 4, 4))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_the_largest_length_is_the_largest(fused: bool, training: bool) -> None:
    net = MemoryModel(192, blocks=2, skips=True, benes=True, dtype=torch.bfloat16, fused=fused, training=training)
    for free in (1e8, 1e9, 1e10, 1e11):
        length = net.largest_length(free, [(4, 2**30)])
        assert length is not None
        assert SLACK * net.bytes(4, length) <= free - FIXED_BYTES < SLACK * net.bytes(4, 2 * length)
    cut = net.largest_length(1e9, [(64, 2**20), (64, 8)])
    assert cut is not None
    assert cut <= 2**20
    assert net.largest_length(100, [(4, 2**30)]) is None
    assert net.largest_length(1e18, [(4, 64)]) == 32, "what was asked for did not fit, whatever the estimate says"


@pytest.mark.gpu
def test_free_bytes_know_the_share_of_the_process() -> None:
    device = torch.device("cuda")
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:  # others may use the GPU at the same time, so that less is free
        assert free_bytes(device) <= 0.1 * torch.cuda.mem_get_info()[1]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
