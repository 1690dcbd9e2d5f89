"""What the tests of every unit's kernels do alike with whole networks."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from riffle import ShuffleExchange

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network(features: int, blocks: int = 1, *, backend: str = "fused", **options: Any) -> ShuffleExchange:
    """A network in which no parameter has its initial value."""
    generator = torch.Generator().manual_seed(1)
    net = ShuffleExchange(features, blocks, backend=backend, device=DEVICE, **options)
    for name, parameter in net.named_parameters():
        if not name.endswith("weight"):
            parameter.data.copy_(parameter.data.cpu() + 0.4 * torch.randn(parameter.shape, generator=generator))
    return net


def both_backends(features: int, blocks: int = 1, **options: Any) -> list[ShuffleExchange]:
    """Equal networks on the fused kernels and by the reference."""
    nets = [network(features, blocks, backend=backend, **options) for backend in ("fused", "reference")]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets


def results(net: ShuffleExchange, xs_BND: Sequence[Tensor], grads_BND: Sequence[Tensor]) -> dict[str, Tensor]:
    """Outputs and gradients."""
    xs_BND = [x_BND.clone().requires_grad_() for x_BND in xs_BND]
    ys_BND = net.forward_batches(xs_BND)
    torch.autograd.backward(ys_BND, [grad_BND.to(y.dtype) for grad_BND, y in zip(grads_BND, ys_BND, strict=True)])
    parts = {f"y {index}": y_BND.detach() for index, y_BND in enumerate(ys_BND)}
    parts |= {f"x {index}": x_BND.grad for index, x_BND in enumerate(xs_BND)}
    return parts | {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def actual_eager_exact(
    x_BND: Tensor, grad_BND: Tensor, features: int, blocks: int = 1, **options: Any
) -> Iterator[tuple[bool, dict[str, tuple[Tensor, Tensor, Tensor]]]]:
    """Results of one network by the kernels, and by the reference in the dtype of the cells and in float64.

    First with ``recompute``, then without.
    """
    state = network(features, blocks, dtype=x_BND.dtype, **options).state_dict()
    ways = (("fused", x_BND.dtype), ("reference", x_BND.dtype), ("reference", torch.float64))
    for recompute in (True, False):
        found = []
        for backend, dtype in ways:
            net = network(features, blocks, backend=backend, recompute=recompute, dtype=dtype, **options)
            net.load_state_dict(state)
            found.append(results(net, [x_BND.to(dtype)], [grad_BND]))
        actual, eager, exact = found
        assert actual.keys() == eager.keys() == exact.keys()
        yield recompute, {name: (actual[name], eager[name], exact[name]) for name in exact}


def assert_several_lengths_at_once(nets: Sequence[ShuffleExchange], draw: Callable[..., Tensor], features: int) -> None:
    """Networks have the same results of batches of several lengths."""
    shapes = ((2, 8), (3, 5), (1, 4), (2, 2), (1, 8))
    torch.manual_seed(2)
    xs_BND, grads_BND = ([draw(*shape, features, device=DEVICE) for shape in shapes] for _ in range(2))
    ours, theirs = (results(net, xs_BND, grads_BND) for net in nets)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4 * theirs[name].abs().max().item())


def assert_compiles_whole(net: ShuffleExchange) -> None:
    """Compiled without a break, a network has the results that it has as it is."""
    xs_BND = [torch.rand(2, length, 4, device=DEVICE) for length in (8, 3)]
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the compiler
        compiled = torch.compile(lambda xs_BND: net.forward_batches(xs_BND), fullgraph=True, backend="aot_eager")
        found = []
        for run in (net.forward_batches, compiled):
            ys_BND = run(xs_BND)
            loss = sum(y_BND.square().sum() for y_BND in ys_BND)
            found.append([*ys_BND, *torch.autograd.grad(loss, list(net.parameters()))])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def assert_exported_as_one_operator(net: ShuffleExchange) -> None:
    """Exported, saved and loaded, a network calls the operator, on other cells too."""
    net.eval()
    x_BND, other_BND = (torch.rand(2, 6, 4, device=DEVICE) for _ in range(2))
    file = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the exporter
        torch.export.save(torch.export.export(net, (x_BND,)), file)
        loaded = torch.export.load(io.BytesIO(file.getvalue())).module()
        assert any("riffle.network" in str(node.target) for node in loaded.graph.nodes)
        torch.testing.assert_close(loaded(other_BND), net(other_BND), rtol=0, atol=1e-6)


def assert_only_whole_networks(net: ShuffleExchange) -> None:
    """A call that runs layer by layer is refused; others are not."""
    with pytest.raises(ValueError, match="fused kernels for whole networks alone: use backend='auto'"):
        net.overwrite(torch.rand(2, 8, 4, device=DEVICE))
    assert net(torch.rand(2, 8, 4, device=DEVICE)).isfinite().all()


def assert_gradient_is_that_of_differences(net: ShuffleExchange, bias: Tensor, x_BND: Tensor) -> None:
    """With dropout or noise: the backward pass multiplies by what the forward pass did."""
    direction, step = torch.randn_like(bias), 1e-3

    def loss() -> Tensor:
        torch.manual_seed(5)
        return net(x_BND).double().square().sum()

    (gradient,) = torch.autograd.grad(loss(), bias)
    with torch.no_grad():
        bias += step * direction
        above = loss()
        bias -= 2 * step * direction
        below = loss()
    expected = ((above - below) / (2 * step)).item()
    assert expected != 0
    assert (gradient * direction).sum().item() == pytest.approx(expected, rel=0.02, abs=1e-3)
