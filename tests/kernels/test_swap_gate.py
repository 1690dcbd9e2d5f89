"""Networks of the swap-gate unit on the Triton kernels against the reference in float64, as in test_fused.py."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from riffle import load_trained

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import gated_switch, layer_plan, operator, tuning
from riffle.kernels.layer_plan import plan_layer
from riffle.kernels.plan import plan_network
from riffle.kernels.tuning import Blocks
from riffle.kernels.units import KERNELS
from riffle.shuffle import bits, schedule

from . import networks
from .networks import (
    DEVICE,
    actual_eager_exact,
    assert_compiles_whole,
    assert_exported_as_one_operator,
    assert_gradient_is_that_of_differences,
    assert_only_whole_networks,
    assert_several_lengths_at_once,
    both_backends,
    results,
)
from .test_fused import DTYPES, GPU, assert_as_accurate

pytestmark = pytest.mark.usefixtures("_poison")
SHAPES = [(1, 3, 2, 6), (1, 2, 8, 16), (2, 2, 4, 10), (2, 1, 16, 2), (3, 1, 8, 4), (2, 1, 4, 70)]
if GPU:
    SHAPES = [
        (1, 3, 8, 12),
        (1, 1, 2, 16),
        (1, 1, 4096, 96),
        (2, 3, 128, 192),
        (2, 64, 128, 64),
        (2, 7, 64, 384),
        (2, 1, 32, 512),
        (3, 3, 16, 250),
    ]
ON_CHIP = Blocks(16, 16, {"BLOCK_K": 16, "num_warps": 4, "num_stages": 2})


network = partial(networks.network, unit="swap-gate")


def clear_plans() -> None:
    for cache in (plan_layer, plan_network):
        cache.cache_clear()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_every_gradient(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    blocks, batch, length, features = shape
    torch.manual_seed(0)
    x_BND = (torch.rand(batch, length, features, device=DEVICE) * 2 - 1).to(dtype)
    grad_BND = torch.randn(batch, length, features, device=DEVICE).to(dtype)
    for recompute, found in actual_eager_exact(x_BND, grad_BND, features, blocks, unit="swap-gate"):
        for name, tensors in found.items():
            assert_as_accurate(f"{name}, recompute {recompute}", *tensors, layers=len(schedule(bits(length), blocks)))


@pytest.mark.parametrize(("features", "length"), [(48, 8), (96, 2)])
def test_all_after_the_first_product_in_one_kernel(features: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x_BND, grad_BND = (torch.rand(3, length, features, device=DEVICE) * 2 - 1 for _ in range(2))
    found = []
    for blocks in (None, ON_CHIP):
        clear_plans()
        monkeypatch.setattr(layer_plan, "switch_blocks", lambda *shape, blocks=blocks: blocks)
        torch.manual_seed(3)
        net = network(features, dropout=0.3, recompute=True)
        torch.manual_seed(4)
        found.append(results(net, [x_BND], [grad_BND]))
    clear_plans()
    for name, expected in found[0].items():
        # On a GPU these products have factors of ten bits.
        assert (found[1][name] - expected).norm() <= (5e-3 if GPU else 1e-5) * expected.norm(), name


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy computes 0 / 0 where an output was dropped
@pytest.mark.parametrize("recompute", [True, False])
def test_candidates_from_the_outputs(recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the backward pass finds them in 16 bits, here in float32: through skip connections and dropout."""
    x_BND, grad_BND = (torch.rand(3, 8, 6, device=DEVICE) * 2 - 1 for _ in range(2))
    found = []
    for from_sums in (True, False):

        def keeps_sums(dtype: torch.dtype, keeps: bool = from_sums) -> bool:
            return keeps

        clear_plans()
        monkeypatch.setattr(layer_plan, "keeps_sums", keeps_sums)
        monkeypatch.setitem(KERNELS, "swap-gate", replace(KERNELS["swap-gate"], keeps_sums=keeps_sums))
        torch.manual_seed(3)
        net = network(6, 2, dropout=0.3, recompute=recompute)
        torch.manual_seed(4)
        found.append(results(net, [x_BND], [grad_BND]))
    clear_plans()
    for name, expected in found[0].items():
        assert (found[1][name] - expected).norm() <= 1e-4 * expected.norm(), name
    assert any(not torch.equal(found[1][name], expected) for name, expected in found[0].items())


@pytest.mark.parametrize(("sharing", "pad"), [("block", "power"), ("minimal", "power"), ("full", "even")])
def test_several_lengths_at_once(sharing: str, pad: str) -> None:
    nets = both_backends(6, 2, unit="swap-gate", sharing=sharing, pad=pad)
    assert_several_lengths_at_once(nets, lambda *shape, **options: torch.rand(*shape, **options) * 2 - 1, 6)


def test_lengths_of_rows() -> None:
    nets = both_backends(4, 2, unit="swap-gate")
    x_BND = torch.rand(3, 9, 4, device=DEVICE)
    with torch.no_grad():
        ours, theirs = (net(x_BND, lengths=[9, 0, 3]) for net in nets)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_dropout_is_the_gated_units() -> None:
    """The same seed drops the same features, and the gradients are those of what was kept."""
    dropped = []
    x_BND = torch.rand(3, 2, 6, device=DEVICE) + 0.1
    for unit in ("swap-gate", "gated"):
        net = networks.network(6, unit=unit, dropout=0.5)
        torch.manual_seed(5)
        dropped.append(net(x_BND) == 0)
    assert torch.equal(*dropped)
    assert 0 < dropped[0].sum() < dropped[0].numel()
    net = network(6, dropout=0.5)
    leaves = [x_BND.requires_grad_(), *net.units["last"].parameters()]
    torch.manual_seed(5)
    actual = torch.autograd.grad(net(x_BND).square().sum(), leaves)
    # Two cells are one layer; dropout is divided by k = 1.
    expected = torch.autograd.grad((net.eval()(x_BND) * ~dropped[0] * 2).square().sum(), leaves)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recompute", [True, False])
def test_dropout_is_the_same_on_the_way_back(recompute: bool) -> None:
    """Against differences, through skip connections too."""
    net = network(4, 2, dropout=0.5, recompute=recompute)
    bias = net.units["1_forward"].swap_gate.bias
    assert_gradient_is_that_of_differences(net, bias, torch.rand(2, 4, 4, device=DEVICE))


def test_the_shipped_sorter() -> None:
    """Trained weights, in float32, give the same logits by both."""
    ours, theirs = load_trained("sort", DEVICE), load_trained("sort", DEVICE)
    ours.network.backend, theirs.network.backend = "fused", "reference"
    symbols = torch.randint(1, 12, (2, 8), device=DEVICE)
    with torch.no_grad():
        expected = theirs(symbols)
        torch.testing.assert_close(ours(symbols), expected, rtol=0, atol=1e-4 * expected.abs().max().item())
    assert torch.equal(expected.argmax(-1), symbols.sort(1).values)


def test_its_parameters_keep_their_names() -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in network(4).units["last"].named_parameters()}
    assert shapes == {
        "candidates_weight": (2, 4, 8),
        "candidates_bias": (2, 4),
        "gates.weight": (24, 8),
        "gates.bias": (24,),
        "swap_gate.weight": (8, 8),
        "swap_gate.bias": (8,),
    }


@pytest.mark.parametrize("frozen", ["gates", "swap_gate"])
def test_only_the_gradients_that_are_wanted(frozen: str) -> None:
    net, expected = network(4, 2), network(4, 2)
    expected.load_state_dict(net.state_dict())
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(frozen not in name.split("."))
    x_BND = torch.rand(2, 4, 4, device=DEVICE)
    for each in (net, expected):
        each(x_BND).square().sum().backward()
    for (name, parameter), other in zip(net.named_parameters(), expected.parameters(), strict=True):
        assert (parameter.grad is None) == (frozen in name.split(".")), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, other.grad)


def test_parameters_of_units_that_take_no_part_have_no_gradient() -> None:
    net = network(4, 2)
    net(torch.rand(1, 2, 4, device=DEVICE)).sum().backward()
    for name, parameter in net.named_parameters():
        assert (parameter.grad is not None) == (".last." in name and "skip" not in name), name


def test_an_empty_batch() -> None:
    assert network(4)(torch.zeros(0, 8, 4, device=DEVICE)).shape == (0, 8, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("recompute", [True, False])
def test_autocast(recompute: bool) -> None:
    nets = both_backends(64, 2, unit="swap-gate", recompute=recompute)
    exact = network(64, 2, backend="reference", dtype=torch.float64)
    exact.load_state_dict(nets[0].state_dict())
    x_BND = torch.rand(8, 100, 64, device=DEVICE) * 2 - 1
    grad_BND = torch.randn_like(x_BND)
    with torch.autocast("cuda", torch.bfloat16):
        ours, theirs = (results(net, [x_BND], [grad_BND]) for net in nets)
    for name, truth in results(exact, [x_BND.double()], [grad_BND]).items():
        assert_as_accurate(name, ours[name], theirs[name], truth)


def test_the_operator_is_registered_correctly() -> None:
    """In float32 too the copy of the weights is one of its results."""
    net, calls = network(4, 2), []
    original = operator._network
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "_network", lambda *arguments: calls.append(arguments) or original(*arguments))
        patch.setattr(operator, "_wants_operators", lambda *arguments: True)
        for net.recompute in (True, False):
            net.forward_batches([torch.rand(2, length, 4, device=DEVICE) for length in (4, 3)])
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    for arguments in calls:
        torch.library.opcheck(
            torch.ops.riffle.network.default, arguments, test_utils=checks, atol=1e-5, rtol=1e-4
        )  # fmt: skip


def test_the_operator_compiles_whole() -> None:
    assert_compiles_whole(network(4, 2))


def test_it_is_one_operator_in_an_exported_network() -> None:
    assert_exported_as_one_operator(network(4, 2))


def test_layers_by_themselves_have_no_fused_kernels() -> None:
    assert_only_whole_networks(network(4))


@pytest.mark.parametrize("keep", [False, True])
def test_kernels_for_three_gates_serve_no_layer(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a chip that has them, at widths and numbers of pairs at which they serve the gated unit."""
    monkeypatch.setattr(tuning, "has_warpgroups", lambda device: True)
    monkeypatch.setattr(tuning, "multiprocessors", lambda device: 132)
    caches = (tuning.layer_form, tuning.product_form, tuning.wide_form)
    for cache in caches:
        cache.cache_clear()
    clear_plans()
    for features, pairs in ((192, 2**10), (192, 2**14), (384, 2**14), (96, 2**20)):
        plan = plan_layer(
            (1,), (2 * pairs,), (0.0,), features, torch.bfloat16, torch.device("cpu"),
            shuffle=1, swap=False, keep=keep, gates=4,
        )  # fmt: skip
        hopper = plan.wide_forward, plan.layer_forward, plan.layers_forward, plan.product_backward
        assert hopper == (None,) * 4
        backward = plan.update_backward[True, False, True]
        assert hasattr(gated_switch, backward.kernel)
        assert backward.grid[1] == 1, "a program has both cells"
    for cache in caches:
        cache.cache_clear()
    clear_plans()
