"""The network as one operator: which gradients are asked for, how often it is called, what autograd does with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from riffle import ShuffleExchange

pytest.importorskip("triton", reason="Triton has no build for this platform")


GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
FEATURES = 32 if GPU else 4


def networks(**options: Any) -> tuple[ShuffleExchange, ShuffleExchange]:
    """Equal ones on the fused kernels and on the reference."""
    recompute = options.pop("recompute", True)
    ours = ShuffleExchange(FEATURES, 2, backend="fused", recompute=recompute, device=DEVICE, **options)
    theirs = ShuffleExchange(FEATURES, 2, backend="reference", device=DEVICE, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def cells(batch: int, length: int) -> Tensor:
    return torch.rand(batch, length, FEATURES, device=DEVICE) * 2 - 1


def assert_equal_gradients(
    ours: ShuffleExchange, theirs: ShuffleExchange, x_BND: Tensor, loss: Callable[[ShuffleExchange, Tensor], Tensor]
) -> None:
    """The same loss on both has the same gradients of the input and of every parameter."""
    results = []
    for net in (ours, theirs):
        x_own_BND = x_BND.clone().requires_grad_()
        net.zero_grad()
        loss(net, x_own_BND).backward()
        results.append([x_own_BND.grad, *(parameter.grad for parameter in net.parameters())])
    for actual, expected in zip(*results, strict=True):
        assert (actual is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def used_twice(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
    return (net(net(x_BND)) * net(x_BND)).sum()


def added_up_over_two_calls(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
    first, second = net(x_BND).square().sum(), net(x_BND.flip(0)).sum()
    first.backward(retain_graph=True)
    return first + second


def checkpointed(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
    reentrant, other = (checkpoint(net, x_BND, use_reentrant=kind).square().sum() for kind in (True, False))
    return reentrant + 2 * other


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("loss", [used_twice, added_up_over_two_calls, checkpointed])
def test_several_calls_in_one_graph(loss: Callable[[ShuffleExchange, Tensor], Tensor], recompute: bool) -> None:
    assert_equal_gradients(*networks(recompute=recompute), cells(2, 3), loss)


@pytest.mark.parametrize("wanted", ["input", "last", "one bias", "nothing"])
def test_only_the_gradients_that_are_wanted(wanted: str) -> None:
    ours, theirs = networks()
    x_BND = cells(2, 4).requires_grad_(wanted == "input")
    for net in (ours, theirs):
        for name, parameter in net.named_parameters():
            kinds = {"last": ".last." in name, "one bias": name == "units.0_forward.gates.bias"}
            parameter.requires_grad_(kinds.get(wanted, False))
    outputs = [net(x_BND) for net in (ours, theirs)]
    assert outputs[0].requires_grad == outputs[1].requires_grad == (wanted != "nothing")
    if wanted == "nothing":
        return
    for y_BND in outputs:
        y_BND.square().sum().backward()
    pairs = zip(ours.named_parameters(), theirs.parameters(), strict=True)
    for (name, actual), expected in pairs:
        assert (actual.grad is None) == (expected.grad is None), name
        if expected.grad is not None:
            torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-4, atol=1e-5)


RANDOM = pytest.mark.parametrize("random", [{"dropout": 0.5}, {"noise": 0.5}], ids=str)


@RANDOM
def test_dropout_and_noise_are_repeated_by_their_seed(random: dict[str, float]) -> None:
    net = ShuffleExchange(FEATURES, 2, **random, backend="fused", device=DEVICE)
    x_BND = cells(2, 4).requires_grad_()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        y_BND = net(x_BND)
        results.append((y_BND, *torch.autograd.grad(y_BND.square().sum(), [x_BND, *net.parameters()])))
    for first, again, other in zip(*results, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    net.eval()
    torch.testing.assert_close(net(x_BND), net(x_BND), rtol=0, atol=0)


@pytest.mark.parametrize("unit", ["gated", "swap-gate", "residual"])
def test_noise_is_nearly_normal(unit: Any) -> None:
    """Two cells are one layer, whose outputs the noise multiplies, whatever the number of address bits."""
    net = ShuffleExchange(64, noise=0.01, unit=unit, backend="fused", device=DEVICE)
    x_BND = torch.rand(256, 2, 64, device=DEVICE) + 0.5
    with torch.no_grad():
        noisy, plain, again = net(x_BND), net.eval()(x_BND), net.train()(x_BND)
    factors, others = (((y_BND.double() / plain.double() - 1) / 0.01)[plain.abs() > 1e-3] for y_BND in (noisy, again))
    assert abs(factors.mean().item()) < 0.02
    assert factors.std().item() == pytest.approx(1, abs=0.02)
    within = [(factors.abs() < deviations).double().mean().item() for deviations in (1, 2, 3.5)]
    assert within == pytest.approx([0.668, 0.957, 1], abs=0.01), "68.3, 95.4 and 99.95% of normal ones"
    for pairs in ((factors, others), (factors[1:], factors[:-1])):
        assert abs(torch.corrcoef(torch.stack(pairs))[0, 1].item()) < 0.02, (
            "one call, or one feature, tells nothing of the next"
        )


@pytest.mark.gpu
def test_noise_is_not_rounded_away_in_16_bits() -> None:
    """It multiplies what a layer makes before that is rounded: as a factor in 16 bits it would nearly always be 1."""
    net = ShuffleExchange(64, noise=0.001, backend="fused", device=DEVICE, dtype=torch.float16)
    x_BND = (torch.rand(256, 2, 64, device=DEVICE) * 2 - 1).half()
    with torch.no_grad():
        noisy, plain = net(x_BND).double(), net.eval()(x_BND).double()
    relative = (noisy / plain - 1)[plain.abs() > 0.1]
    assert relative.std().item() == pytest.approx(0.001, rel=0.1)
    assert abs(relative.mean().item()) < 3e-5


def test_second_derivatives_are_refused() -> None:
    net = ShuffleExchange(FEATURES, backend="fused", device=DEVICE)
    x_BND = cells(1, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(net(x_BND).square().sum(), x_BND, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivatives: build the network with backend="reference"'):
        gradient.sum().backward()


def test_parameters_from_elsewhere() -> None:
    net, _ = networks()
    x_BND = cells(2, 4)
    other = {name: (0.5 * parameter).detach().requires_grad_() for name, parameter in net.named_parameters()}
    y_BND = torch.func.functional_call(net, other, (x_BND,))
    net.load_state_dict({name: parameter.detach() for name, parameter in other.items()})
    assert torch.equal(net(x_BND), y_BND)
    y_BND.sum().backward()
    assert all(parameter.grad is not None for parameter in other.values())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_weights_changed_before_the_backward_pass_are_an_error() -> None:
    net, _ = networks()
    loss = net(cells(2, 4)).sum()
    with torch.no_grad():
        net["last"].candidates_bias += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_cells_that_lie_badly() -> None:
    """Neither contiguous nor at an address that suits the kernels."""
    net, reference = networks()
    wide = torch.rand(8 * 3 * FEATURES + 1, device=DEVICE)[1:]
    x_BND = wide.view(8, 3, FEATURES).transpose(0, 1)
    torch.testing.assert_close(net(x_BND), reference(x_BND), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net(x_BND.contiguous()), reference(x_BND), rtol=1e-4, atol=1e-5)
