"""Captured passes of a network: when they serve, and that what they give is what the launches give.

Without a GPU a pretended graph runs the captured call again, into the same tensors; kernels by Triton's interpreter.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from riffle import ShuffleExchange
from riffle.kernels import graphs, operator, plan
from riffle.kernels.graphs import SIGHTS, GraphCache, use_graphs
from riffle.nn import execute, network

pytest.importorskip("triton", reason="Triton has no build for this platform")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
FEATURES = 32 if GPU else 4


class PretendedGraph:
    """Runs a call again and copies its results to where the first run left them."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.result = call, call()

    def replay(self) -> None:
        for old, new in zip(_tensors(self.result), _tensors(self.call()), strict=True):
            old.copy_(new)


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in _tensors(part)]


@pytest.fixture(autouse=True)
def _pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    if not GPU:

        def capture(call: Callable[[], Any], **options: Any) -> tuple[PretendedGraph, Any]:
            graph = PretendedGraph(call)
            return graph, graph.result

        def on_cpu(cache: GraphCache, stream: int, *arguments: Any) -> graphs.CapturedPasses:
            return graphs.CapturedPasses(*arguments, None)

        monkeypatch.setattr(graphs, "capture", capture)
        monkeypatch.setattr(graphs, "on_gpu", lambda x_BND: True)
        monkeypatch.setattr(graphs, "device_bytes", lambda x_BND: (2**30, 2**30))
        monkeypatch.setattr(GraphCache, "_stream", lambda cache, x_BND: 0)
        monkeypatch.setattr(GraphCache, "_capture", on_cpu)


def make(**options: Any) -> tuple[ShuffleExchange, ShuffleExchange]:
    """Equal networks, with graphs and without."""
    blocks = options.pop("blocks", 2 if GPU else 1)
    ours = ShuffleExchange(FEATURES, blocks, backend="fused", graphs=True, device=DEVICE, **options)
    theirs = ShuffleExchange(FEATURES, blocks, backend="fused", graphs=False, device=DEVICE, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def cells(batch: int = 2, length: int = 2) -> Tensor:
    return torch.rand(batch, length, FEATURES, device=DEVICE) * 2 - 1


def gradients(net: ShuffleExchange, loss: Callable[[ShuffleExchange], Tensor]) -> list[Tensor]:
    net.zero_grad()
    loss(net).backward()
    return [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]


def assert_same(ours: ShuffleExchange, theirs: ShuffleExchange, loss: Callable[[ShuffleExchange], Tensor]) -> None:
    for actual, expected in zip(gradients(ours, loss), gradients(theirs, loss), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("recompute", "unit"), [(True, "gated"), (False, "gated"), (False, "swap-gate")])
def test_training(recompute: bool, unit: str) -> None:
    ours, theirs = make(recompute=recompute, unit=unit)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (ours, theirs)]
    for _ in range(SIGHTS + 1):
        x_BND = cells(1, 4)
        assert_same(ours, theirs, lambda net: net(x_BND).square().sum())  # noqa: B023
        for optimizer in optimizers:
            optimizer.step()
    assert ours.graphs.counts == {"first calls": SIGHTS - 1, "captured": 1, "replayed": 2}


@pytest.mark.gpu
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("unit", ["gated", "swap-gate", "residual"])
@pytest.mark.parametrize(("batch", "length"), [(2, 4), (64, 64), (1, 1024)])
def test_gradients_on_side_streams(batch: int, length: int, unit: str, blocks: int) -> None:
    """Of the weights: captured passes make them beside other launches, whose memory they may not find changed."""
    options: dict[str, Any] = {"unit": unit, "backend": "fused", "device": DEVICE, "dtype": torch.bfloat16}
    ours, theirs = (ShuffleExchange(192, blocks, graphs=captures, **options) for captures in (True, False))
    theirs.load_state_dict(ours.state_dict())
    for _ in range(SIGHTS + 5):
        x_BND = (torch.rand(batch, length, 192, device=DEVICE) * 2 - 1).bfloat16()
        found = [gradients(net, lambda net: net(x_BND).float().square().sum()) for net in (ours, theirs)]  # noqa: B023
        for actual, expected in zip(*found, strict=True):
            assert (actual - expected).float().norm() <= 1e-3 * expected.float().norm()
    assert ours.graphs.counts["captured"] == 1


def test_inference_in_every_mode() -> None:
    ours, theirs = make()
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            x_BND = cells()
            y_BND = ours(x_BND)
            torch.testing.assert_close(y_BND, theirs(x_BND), rtol=0, atol=1e-6)
            before = y_BND.clone()
            ours(cells())
            assert torch.equal(y_BND, before), "a later call changed an earlier result"
    assert ours.graphs.counts["captured"] == 1
    assert ours.graphs.counts["replayed"] == 8


def test_several_forward_passes_before_the_backward_passes() -> None:
    ours, theirs = make()
    xs_BND = [cells() for _ in range(2)]
    for _ in range(2 * SIGHTS):
        assert_same(ours, theirs, lambda net: sum(net(x_BND).square().sum() for x_BND in xs_BND))
    assert ours.graphs.counts["captured"] == 2, "one for each call whose backward pass is awaited"
    assert_same(ours, theirs, lambda net: net(net(xs_BND[0])).square().sum())


def test_a_graph_gone_through_twice() -> None:
    ours, theirs = make()

    def twice(net: ShuffleExchange) -> Tensor:
        loss = net(x_BND).square().sum()
        loss.backward(retain_graph=True)
        return loss

    for _ in range(SIGHTS + 1):
        x_BND = cells()
        assert_same(ours, theirs, twice)
    loss = ours(x_BND).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_dropout_differs_from_call_to_call() -> None:
    ours, theirs = make(dropout=0.5)
    x_BND, results = cells(), []
    for seed in range(SIGHTS + 3):
        outputs = []
        for net in (ours, theirs):
            torch.manual_seed(seed)
            outputs.append(net(x_BND))
        torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)
        results.append(outputs[0].detach())
    assert not torch.equal(results[-1], results[-2])
    assert ours.graphs.counts["captured"] == 1


def test_several_shapes_and_lengths() -> None:
    ours, theirs = make()
    for _ in range(SIGHTS + 1):
        xs_BND = [cells(1, 4), cells(1, 1)]
        assert_same(ours, theirs, lambda net: sum(y_BND.square().sum() for y_BND in net.forward_batches(xs_BND)))  # noqa: B023
        assert_same(ours, theirs, lambda net: net(xs_BND[1]).square().sum())  # noqa: B023
    assert ours.graphs.counts["captured"] == 2


@pytest.mark.parametrize("change", ["replace", "copy", "pickle"])
def test_weights_elsewhere_are_captured_again(change: str) -> None:
    ours, theirs = make()
    x_BND = cells()
    with torch.no_grad():
        for _ in range(SIGHTS):
            ours(x_BND)
        if change == "replace":
            bias = torch.nn.Parameter(torch.ones(2, FEATURES, device=DEVICE))
            ours["last"].candidates_bias = theirs["last"].candidates_bias = bias
        else:
            ours = copy.deepcopy(ours) if change == "copy" else pickle.loads(pickle.dumps(ours))
            assert not ours.graphs.counts
        for _ in range(SIGHTS):
            torch.testing.assert_close(ours(x_BND), theirs(x_BND), rtol=0, atol=1e-6)
    assert ours.graphs.counts["captured"] == (2 if change == "replace" else 1)


def test_weights_changed_in_place_are_seen_and_checked() -> None:
    ours, theirs = make()
    for _ in range(SIGHTS):
        loss = ours(cells()).sum()
    with torch.no_grad():
        for net in (ours, theirs):
            net["last"].candidates_bias += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    x_BND = cells()
    assert_same(ours, theirs, lambda net: net(x_BND).square().sum())


def test_where_a_graph_cannot_serve() -> None:
    ours, theirs = make()
    x_BND = cells()
    for _ in range(SIGHTS):
        ours(x_BND)
    counts = ours.graphs.counts
    with use_graphs(False):
        ours(x_BND)
    assert counts["off"] == 1
    assert_same(ours, theirs, lambda net: checkpoint(net, x_BND, use_reentrant=False).square().sum())
    assert counts["hooks on saved tensors"] > 0
    assert counts["replayed"] == 1


def test_a_captured_shape_serves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are cached, and one that was dropped can leave its address to that of another shape."""
    monkeypatch.setattr(operator, "plan_network", lru_cache(maxsize=1)(plan.plan_network.__wrapped__))
    ours, theirs = make()
    with torch.no_grad():
        for batch in (*[1] * SIGHTS, *range(2, 20)):
            x_BND = cells(batch)
            torch.testing.assert_close(ours(x_BND), theirs(x_BND), rtol=0, atol=1e-6)


def test_little_room() -> None:
    """What has no room is launched; a graph that may be captured takes the room of one that is idle."""
    ours, theirs = make()
    for cache, counts in ((GraphCache(max_bytes=1), {"no room": 1}), (GraphCache(max_graphs=1), {"captured": 1})):
        ours.graphs = cache
        with torch.no_grad():
            for batch in [1] * SIGHTS + [2]:
                x_BND = cells(batch)
                torch.testing.assert_close(ours(x_BND), theirs(x_BND), rtol=0, atol=1e-6)
        assert counts.items() <= cache.counts.items()
    with pytest.raises(ValueError, match="max_graphs must be at least 1, got 0"):
        GraphCache(max_graphs=0)


def test_out_of_memory_graphs_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = make()
    x_BND = cells()
    with torch.no_grad():
        for _ in range(SIGHTS):
            ours(x_BND)
        expected = theirs(x_BND)
        original = execute.run_fused

        def short_of_memory(net: ShuffleExchange, xs_BND: list[Tensor], recompute: bool | None) -> list[Tensor]:
            if net.graphs._passes:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(net, xs_BND, recompute)

        monkeypatch.setattr(network, "run_fused", short_of_memory)
        torch.testing.assert_close(ours(x_BND), expected, rtol=0, atol=1e-6)


def test_out_of_memory_kept_gates_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = make()
    original = execute.run_fused

    tried = []

    def short_of_memory(net: ShuffleExchange, xs_BND: list[Tensor], recompute: bool | None) -> list[Tensor]:
        tried.append(recompute)
        if not recompute:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(net, xs_BND, recompute)

    x_BND = cells()
    expected = theirs(x_BND)
    monkeypatch.setattr(network, "run_fused", short_of_memory)
    for _ in range(2):
        torch.testing.assert_close(ours(x_BND), expected, rtol=0, atol=1e-6)
    assert tried == [None, True, True], "what did not fit is not tried again"
    assert ours.recompute is None
    ours.recompute = False
    with pytest.raises(torch.OutOfMemoryError, match="out of GPU memory at length 2: choose shorter inputs"):
        ours(x_BND)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("recompute", [True, False])
def test_autocast_and_an_optimiser(dtype: torch.dtype, recompute: bool) -> None:
    nets = make(recompute=recompute)
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-3) for net in nets]
    for step in range(12):
        x_BND, losses = cells(4, 64 if step % 2 else 48), []
        for net, optimizer in zip(nets, optimizers, strict=True):
            with torch.autocast("cuda", dtype):
                y_BND = net(x_BND)
            assert y_BND.dtype == torch.float32
            loss = (y_BND - x_BND.flip(1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert nets[0].graphs.counts["replayed"] == 8


@pytest.mark.gpu
def test_inside_a_capture_the_launches_are_captured() -> None:
    ours, theirs = make()
    static = cells()
    with torch.no_grad():
        for _ in range(SIGHTS):
            ours(static)
        graph, y_BND = graphs.capture(lambda: ours(static))
        static.copy_(cells())
        graph.replay()
        torch.testing.assert_close(y_BND, theirs(static), rtol=0, atol=1e-6)
    assert ours.graphs.counts["captured by the caller"] == 1


@pytest.mark.gpu
def test_two_streams_have_graphs_of_their_own() -> None:
    ours, theirs = make()
    streams = [torch.cuda.Stream() for _ in range(2)]
    x_BND = cells(2, 64)
    with torch.no_grad():
        expected = theirs(x_BND)
        torch.cuda.synchronize()
        for _ in range(SIGHTS + 4):
            results = []
            for stream in streams:
                with torch.cuda.stream(stream):
                    results.append(ours(x_BND))
            torch.cuda.synchronize()
            for actual in results:
                torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)
    assert ours.graphs.counts["captured"] == 2


@pytest.mark.filterwarnings("ignore")  # deprecations inside the compiler
@pytest.mark.parametrize("recompute", [True, False])
def test_compiled_networks_replay(recompute: bool) -> None:
    ours, theirs = make(recompute=recompute, blocks=2)
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")

    def run(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
        return (compiled if net is ours else net)(x_BND)

    for _ in range(SIGHTS + 1):
        x_BND = cells()
        assert_same(ours, theirs, lambda net, x_BND=x_BND: run(net, x_BND).square().sum())
    assert ours.graphs.counts["captured"] == 1
    assert ours.graphs.counts["replayed"] == 2
    # The second call comes before the first one's backward pass, and the third after an output nobody went back from.
    xs_BND = [cells() for _ in range(2)]
    for _ in range(SIGHTS + 1):
        assert_same(ours, theirs, lambda net: (run(net, xs_BND[0]) * run(net, xs_BND[1])).sum())
    assert ours.graphs.counts["captured"] == 2
    for _ in range(3):
        run(ours, xs_BND[0])
    assert_same(ours, theirs, lambda net: run(net, xs_BND[0]).square().sum())
    assert ours.graphs.counts["captured"] == 2
    with use_graphs(False):
        assert_same(ours, theirs, lambda net: run(net, xs_BND[0]).square().sum())
    assert ours.graphs.counts["off"] == 1
