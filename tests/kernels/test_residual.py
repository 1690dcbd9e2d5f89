"""Networks of the residual unit on the Triton kernels against the reference in float64, as in test_fused.py."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from riffle import ShuffleExchange

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import layer_plan, operator, plan, residual, tuning
from riffle.kernels.launches import Launch, Workspace
from riffle.kernels.layer_plan import GradientShare
from riffle.kernels.plan import plan_network
from riffle.kernels.reference import NORMS
from riffle.kernels.tuning import Blocks

from . import networks
from .networks import (
    DEVICE,
    actual_eager_exact,
    assert_compiles_whole,
    assert_exported_as_one_operator,
    assert_only_whole_networks,
    assert_several_lengths_at_once,
    both_backends,
    results,
)
from .residual_layer import ResidualLayer
from .test_fused import DTYPES, GPU, assert_as_accurate

pytestmark = pytest.mark.usefixtures("_poison")
SHAPES = [(3, 2, 6), (5, 4, 10), (2, 8, 16), (1, 64, 4), (1, 2, 70)]
if GPU:
    SHAPES = [(3, 8, 12), (1, 2, 16), (1, 4096, 96), (3, 128, 192), (7, 64, 384), (1, 32, 512), (3, 16, 250)]


def network(norm: str, features: int, **options: Any) -> ShuffleExchange:
    return networks.network(features, unit="residual", norm=norm, **options)


def clear_plans() -> None:
    for cache in (residual.plan_residual_layer, plan_network):
        cache.cache_clear()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_outputs_and_every_gradient(norm: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    batch, length, features = shape
    torch.manual_seed(0)
    x_BND, grad_BND = (torch.randn(batch, length, features, device=DEVICE).to(dtype) for _ in range(2))
    for recompute, found in actual_eager_exact(x_BND, grad_BND, features, unit="residual", norm=norm):
        for name, tensors in found.items():
            if norm == "sequence" and length == 2 and "hidden_weight" in name:
                # A single pair is its own mean, and this gradient a difference of equal numbers.
                *_, exact = found["units.last.candidate_weight"]
                assert tensors[0].abs().max() <= 1e-4 * exact.abs().max()
                continue
            assert_as_accurate(f"{name}, recompute {recompute}", *tensors)


@pytest.mark.parametrize(("features", "length"), [(48, 8), (96, 2)])
def test_all_after_the_first_product_in_one_kernel(features: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_chip = Blocks(16, 16, {"BLOCK_K": 16, "num_warps": 4, "num_stages": 2})
    x_BND, grad_BND = (torch.randn(3, length, features, device=DEVICE) for _ in range(2))
    found = []
    for blocks in (None, on_chip):
        clear_plans()
        monkeypatch.setattr(residual, "residual_blocks", lambda *shape, blocks=blocks: blocks)
        torch.manual_seed(3)
        net = network("features", features, dropout=0.3)
        torch.manual_seed(4)
        found.append(results(net, [x_BND], [grad_BND]))
    clear_plans()
    for name, expected in found[0].items():
        # On a GPU these products have factors of ten bits.
        assert (found[1][name] - expected).norm() <= (5e-3 if GPU else 1e-5) * expected.norm(), name


def test_launches_that_wait_for_another_stream_are_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one after the wait; all others may begin before the one before has ended."""
    launched: list[tuple[str, bool]] = []
    monkeypatch.setattr(tuning, "has_warpgroups", lambda device: True)
    monkeypatch.setattr(
        Launch,
        "__call__",
        lambda self, *tensors: launched.append((self.kernel, self.constants.get("launch_pdl", False))),
    )

    class Waiting(Workspace):
        def take_set(self, share: GradientShare) -> str:
            self.waited = share.place == 0
            return " 0"

    clear_plans()
    layer = ResidualLayer(8, 64, norm="features", dtype=torch.float32, device=torch.device("cpu"))
    layer.workspace = Waiting(layer.x)
    plan = layer.plan(shuffle=1)
    layer.forward(plan)
    layer.backward(plan, layers=2)
    clear_plans()
    forward = [("features_forward", True), ("residual_forward", True)]
    backward = [("residual_backward", False), ("features_backward", True)]
    assert launched == [*forward, *backward, ("residual_backward", True), ("features_backward", True)]


class FakeStream:
    """A stream that runs everything at once, and counts the streams that it waits for."""

    waits = 0

    def wait_stream(self, other: FakeStream) -> None:
        self.waits += other is not self

    def record_event(self) -> FakeStream:
        return self

    def wait(self) -> None:
        """As an event."""


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("norm", NORMS)
def test_streams_beside_the_way_back(norm: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three layers, two share products, so that one fills the gradients and the other adds to them."""
    monkeypatch.setattr(layer_plan, "GRADIENT_PAIRS", 128)
    clear_plans()
    layer = ResidualLayer(8, 64, norm=norm, dtype=torch.float32, device=torch.device(DEVICE))
    current, *sides = [FakeStream() for _ in range(4)]
    layer.workspace = Workspace(layer.x, sides)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    plan = layer.plan(shuffle=1)
    layer.forward(plan)
    actual = [layer.out, *layer.backward(plan, layers=layers)]
    clear_plans()
    assert all(side.waits for side in sides)
    for ours, theirs in zip(actual, layer.definition(torch.float64, 1), strict=True):
        assert (ours.double() - theirs).norm() <= 1e-4 * theirs.norm()


def test_fewer_copies_of_small_work_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = ((1, 8), (0, 16), (2, 4), (2, 8), (3, 2), (1, 3))
    torch.manual_seed(2)
    xs_BND, grads_BND = ([torch.randn(*shape, 4, device=DEVICE) for shape in shapes] for _ in range(2))
    net, found = network("features", 4, blocks=2, graphs=False), []
    for most in (0, 2**30):
        monkeypatch.setattr(plan, "SMALL_WORK", most)
        clear_plans()
        net.zero_grad()
        found.append(results(net, xs_BND, grads_BND))
    clear_plans()
    assert found[0].keys() == found[1].keys()
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("norm", "features", "length"), [("features", 12, 8), ("features", 70, 4), ("sequence", 6, 64)]
)
def test_kernels_for_few_pairs_and_for_many(
    norm: str, features: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warps with rows of their own or shared ones; sequences in one block or in several."""
    x_BND, grad_BND = (torch.randn(3, length, features, device=DEVICE) for _ in range(2))
    several, found = Blocks(8, 16, {"ONE": False, "num_warps": 1}), []
    for many in (False, True):
        if many:
            monkeypatch.setattr(tuning, "FEWEST_RESIDUAL_PAIRS", 0)
            monkeypatch.setattr(residual, "sequence_blocks", lambda longest, width: several)
        clear_plans()
        torch.manual_seed(3)
        net = network(norm, features)
        found.append(results(net, [x_BND], [grad_BND]))
    clear_plans()
    for name, expected in found[0].items():
        atol = 1e-5 * expected.abs().max().item()
        torch.testing.assert_close(found[1][name], expected, rtol=1e-3 if GPU else 1e-5, atol=atol)


@pytest.mark.parametrize(("sharing", "pad"), [("block", "even"), ("minimal", "power")])
@pytest.mark.parametrize("norm", NORMS)
def test_several_lengths_at_once(norm: str, sharing: str, pad: str) -> None:
    nets = both_backends(6, 2, unit="residual", norm=norm, sharing=sharing, pad=pad)
    assert_several_lengths_at_once(nets, torch.randn, 6)


@pytest.mark.parametrize("norm", NORMS)
def test_lengths_of_rows(norm: str) -> None:
    nets = both_backends(4, unit="residual", norm=norm)
    x_BND = torch.randn(3, 9, 4, device=DEVICE)
    with torch.no_grad():
        ours, theirs = (net(x_BND, lengths=[9, 0, 3]) for net in nets)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * theirs.abs().max().item())


def test_dropout_is_the_same_on_the_way_back() -> None:
    net = network("features", 4, dropout=0.9)
    x_BND = torch.randn(2, 2, 4, device=DEVICE, requires_grad=True)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()  # every layer then halves its input
    torch.manual_seed(0)
    y_BND = net(x_BND)
    y_BND.sum().backward()
    dropped = y_BND == 0
    assert 0 < dropped.sum() < dropped.numel()
    torch.testing.assert_close(x_BND.grad * x_BND, y_BND)
    torch.testing.assert_close(y_BND[~dropped], (5 * x_BND)[~dropped])


def test_an_empty_batch() -> None:
    assert network("sequence", 4)(torch.zeros(0, 8, 4, device=DEVICE)).shape == (0, 8, 4)


@pytest.mark.parametrize("norm", NORMS)
def test_the_operator_compiles_whole(norm: str) -> None:
    assert_compiles_whole(network(norm, 4))


def test_it_is_one_operator_in_an_exported_network() -> None:
    assert_exported_as_one_operator(network("features", 4))


def test_layers_by_themselves_have_no_fused_kernels() -> None:
    assert_only_whole_networks(network("features", 4))


def test_parameters_of_units_that_take_no_part_have_no_gradient() -> None:
    net = network("features", 4)
    net(torch.rand(1, 2, 4, device=DEVICE)).sum().backward()
    for name, parameter in net.named_parameters():
        assert (parameter.grad is not None) == (".last." in name), name


def test_the_whole_network_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = operator.plan_network
    monkeypatch.setattr(operator, "plan_network", lambda *a, **o: calls.append(a[5].kind) or original(*a, **o))
    network("sequence", 4)(torch.rand(2, 8, 4, device=DEVICE))
    assert calls == ["residual-sequence"]
