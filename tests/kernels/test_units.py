"""Whole networks of every unit that has kernels, against the reference in float64 and against other forms of theirs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from riffle import ShuffleExchange, load_trained

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import layer_plan, operator, plan, tuning
from riffle.kernels.layer_plan import plan_layer
from riffle.kernels.plan import plan_network
from riffle.kernels.residual import plan_residual_layer
from riffle.kernels.tuning import Blocks
from riffle.kernels.units import KERNELS
from riffle.shuffle import bits, schedule

from .test_fused import DEVICE, DTYPES, GPU, assert_as_accurate

pytestmark = [pytest.mark.usefixtures("_poison"), pytest.mark.filterwarnings("ignore")]  # deprecations in the compiler
GATED = {"gated": {"unit": "gated"}, "swap-gate": {"unit": "swap-gate"}}
RESIDUAL = {"residual": {"unit": "residual"}}
UNITS: dict[str, dict[str, Any]] = GATED | RESIDUAL
every_unit = pytest.mark.parametrize("unit", UNITS)
SHAPES = [(1, 3, 2, 6), (2, 2, 4, 10), (2, 1, 8, 2), (1, 1, 32, 4), (1, 1, 4, 70)]
"""Blocks, batch, length, features; the residual unit, which has no skip connections, takes one block."""
if GPU:
    SHAPES = [(1, 3, 8, 12), (1, 1, 2, 16), (1, 1, 4096, 96), (2, 3, 128, 192), (2, 64, 128, 64), (2, 7, 64, 384)]
    SHAPES += [(2, 1, 32, 512), (3, 3, 16, 250)]


def network(unit: str, features: int, blocks: int = 1, *, backend: str = "fused", **options: Any) -> ShuffleExchange:
    """A network in which no parameter has its initial value."""
    generator = torch.Generator().manual_seed(1)
    net = ShuffleExchange(features, blocks, backend=backend, device=DEVICE, **UNITS[unit], **options)
    for name, parameter in net.named_parameters():
        if not name.endswith("weight"):
            parameter.data.copy_(parameter.data.cpu() + 0.4 * torch.randn(parameter.shape, generator=generator))
    return net


def both_backends(unit: str, features: int, blocks: int = 1, **options: Any) -> list[ShuffleExchange]:
    """Equal networks on the fused kernels and by the reference."""
    nets = [network(unit, features, blocks, backend=backend, **options) for backend in ("fused", "reference")]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets


def draw(*shape: int) -> Tensor:
    return torch.rand(*shape, device=DEVICE) * 2 - 1


def results(net: ShuffleExchange, xs_BND: Sequence[Tensor], grads_BND: Sequence[Tensor]) -> dict[str, Tensor]:
    """Outputs and gradients."""
    xs_BND = [x_BND.clone().requires_grad_() for x_BND in xs_BND]
    ys_BND = net.forward_batches(xs_BND)
    torch.autograd.backward(ys_BND, [grad_BND.to(y.dtype) for grad_BND, y in zip(grads_BND, ys_BND, strict=True)])
    parts = {f"y {index}": y_BND.detach() for index, y_BND in enumerate(ys_BND)}
    parts |= {f"x {index}": x_BND.grad for index, x_BND in enumerate(xs_BND)}
    return parts | {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_unit
def test_outputs_and_every_gradient(unit: str, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    blocks, batch, length, features = shape if unit in GATED else (1, *shape[1:])
    torch.manual_seed(0)
    x_BND, grad_BND = draw(batch, length, features).to(dtype), torch.randn(batch, length, features, device=DEVICE)
    state = network(unit, features, blocks, dtype=dtype).state_dict()
    for recompute in (True, False):
        found = []
        for backend, kind in (("fused", dtype), ("reference", dtype), ("reference", torch.float64)):
            net = network(unit, features, blocks, backend=backend, recompute=recompute, dtype=kind)
            net.load_state_dict(state)
            found.append(results(net, [x_BND.to(kind)], [grad_BND.to(dtype)]))
        actual, eager, exact = found
        assert actual.keys() == eager.keys() == exact.keys()
        for name, truth in exact.items():
            layers = len(schedule(bits(length), blocks))
            assert_as_accurate(f"{name}, recompute {recompute}", actual[name], eager[name], truth, layers=layers)


@pytest.fixture
def fresh_plans() -> Iterator[Callable[[], None]]:
    """Forgets what was planned, now and in the end."""

    def clear() -> None:
        for cache in (plan_layer, plan_residual_layer, plan_network):
            cache.cache_clear()

    yield clear
    clear()


def keep_no_sums(patch: pytest.MonkeyPatch) -> None:
    """The backward pass finds candidates from outputs, as in 16 bits."""
    patch.setattr(layer_plan, "keeps_sums", lambda dtype: False)
    for unit in GATED:
        patch.setitem(KERNELS, unit, replace(KERNELS[unit], keeps_sums=lambda dtype: False))


def form_candidates_on_the_chip(patch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(16, 16, {"BLOCK_K": 16, "num_warps": 4, "num_stages": 2})
    patch.setattr(layer_plan, "switch_blocks", lambda *shape: blocks)


def take_kernels_for_many_pairs(patch: pytest.MonkeyPatch) -> None:
    """Warps share rows."""
    patch.setattr(tuning, "FEWEST_RESIDUAL_PAIRS", 0)


def share_no_products(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layer_plan, "GRADIENT_PAIRS", 1)


def make_more_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "SMALL_WORK", 0)


FORMS = [
    *[(form_candidates_on_the_chip, unit, 1, (3, 8, 48), True) for unit in GATED],
    *[(keep_no_sums, unit, 2, (3, 8, 6), recompute) for unit, recompute in zip(GATED, (True, False), strict=True)],
    (take_kernels_for_many_pairs, "residual", 1, (2, 8, 12), True),
    (take_kernels_for_many_pairs, "residual", 1, (1, 4, 70), False),
    *[(share_no_products, unit, 1, (3, 8, 8), False) for unit in ("gated", "residual")],
    *[(make_more_copies, unit, 1, (2, 8, 4), False) for unit in ("gated", "residual")],
]
"""A change, a unit, blocks, the shape of the first batch, and whether gates are formed again."""


@pytest.mark.parametrize(("change", "unit", "blocks", "shape", "recompute"), FORMS)
def test_every_form_of_the_kernels_gives_the_same(
    change: Callable[[pytest.MonkeyPatch], None], unit: str, blocks: int, shape: tuple[int, ...], recompute: bool,
    fresh_plans: Callable[[], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    torch.manual_seed(2)
    shapes = [shape, (1, 3, shape[2]), (0, 16, shape[2])]
    xs_BND, grads_BND = ([draw(*each) for each in shapes] for _ in range(2))
    state = network(unit, shape[2], blocks).state_dict()
    found = []
    for changed in (False, True):
        fresh_plans()
        with monkeypatch.context() as patch:
            if changed:
                change(patch)
            net = network(unit, shape[2], blocks, dropout=0.3, recompute=recompute, graphs=False)
            net.load_state_dict(state)
            torch.manual_seed(4)
            found.append(results(net, xs_BND, grads_BND))
    assert found[0].keys() == found[1].keys()
    for name, expected in found[0].items():
        # On a GPU some products have factors of ten bits.
        assert (found[1][name] - expected).norm() <= (5e-3 if GPU else 1e-4) * expected.norm(), name


@pytest.mark.parametrize(("sharing", "pad"), [("block", "even"), ("minimal", "power"), ("full", "even")])
@every_unit
def test_several_lengths_at_once(unit: str, sharing: str, pad: str) -> None:
    nets = both_backends(unit, 6, 2, sharing=sharing, pad=pad)
    shapes = ((2, 8), (3, 5), (1, 4), (2, 2), (1, 8))
    torch.manual_seed(2)
    xs_BND, grads_BND = ([draw(*shape, 6) for shape in shapes] for _ in range(2))
    ours, theirs = (results(net, xs_BND, grads_BND) for net in nets)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4 * theirs[name].abs().max().item())


@pytest.mark.parametrize(
    ("unit", "pad", "lengths"), [*((unit, "power", [9, 0, 3]) for unit in UNITS), ("gated", "even", [13, 1, 6, 17, 10])]
)
def test_rows_of_different_length(unit: str, pad: str, lengths: list[int]) -> None:
    found = []
    x_BND = draw(len(lengths), max(lengths), 4).requires_grad_()
    for net in both_backends(unit, 4, 2, pad=pad):
        y_BND = net(x_BND, lengths=lengths)
        found.append((y_BND, *torch.autograd.grad(y_BND.square().sum(), [x_BND, *net.parameters()])))
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-5 * expected.abs().max().item())


@pytest.mark.parametrize(
    ("random", "recompute"), [({"dropout": 0.5}, False), ({"noise": 0.5}, True), ({"noise": 0.5}, False)], ids=str
)
@every_unit
def test_dropout_and_noise_are_the_same_on_the_way_back(unit: str, random: dict[str, float], recompute: bool) -> None:
    """Against differences: the backward pass multiplies by what the forward pass did."""
    net = network(unit, 4, 2, **random, recompute=recompute)
    bias = next(p for name, p in net["1_forward"].named_parameters() if name in ("candidates_bias", "candidate_bias"))
    x_BND, direction, step = draw(2, 4, 4), torch.randn_like(bias), 1e-3

    def loss() -> Tensor:
        torch.manual_seed(5)
        return net(x_BND).double().square().sum()

    (gradient,) = torch.autograd.grad(loss(), bias)
    with torch.no_grad():
        bias += step * direction
        above = loss()
        bias -= 2 * step * direction
        expected = ((above - loss()) / (2 * step)).item()
    assert expected != 0
    assert (gradient * direction).sum().item() == pytest.approx(expected, rel=0.02, abs=1e-3)


def test_the_shipped_sorter() -> None:
    """Trained weights, in float32, give the same logits by both."""
    ours, theirs = load_trained("sort", DEVICE), load_trained("sort", DEVICE)
    ours.network.backend, theirs.network.backend = "fused", "reference"
    symbols = torch.randint(1, 12, (2, 8), device=DEVICE)
    with torch.no_grad():
        expected = theirs(symbols)
        torch.testing.assert_close(ours(symbols), expected, rtol=0, atol=1e-4 * expected.abs().max().item())
    assert torch.equal(expected.argmax(-1), symbols.sort(1).values)


@every_unit
def test_parameters_of_units_that_take_no_part_have_no_gradient(unit: str) -> None:
    net = network(unit, 4, 2)
    net(draw(1, 2, 4)).sum().backward()
    for name, parameter in net.named_parameters():
        assert (parameter.grad is not None) == (".last." in name and "skip" not in name), name


@every_unit
def test_an_empty_batch(unit: str) -> None:
    x_BND = torch.zeros(0, 8, 4, device=DEVICE, requires_grad=True)
    network(unit, 4)(x_BND).sum().backward()
    assert x_BND.grad is not None
    assert x_BND.grad.shape == (0, 8, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("unit", ["gated", "swap-gate"])  # eager keeps the residual unit's cells in float32
def test_autocast(unit: str, recompute: bool) -> None:
    nets = both_backends(unit, 64, 2, recompute=recompute)
    exact = network(unit, 64, 2, backend="reference", dtype=torch.float64)
    exact.load_state_dict(nets[0].state_dict())
    x_BND = draw(8, 100, 64)
    grad_BND = torch.randn_like(x_BND)
    with torch.autocast("cuda", torch.bfloat16):
        ours, theirs = (results(net, [x_BND], [grad_BND]) for net in nets)
    for name, truth in results(exact, [x_BND.double()], [grad_BND]).items():
        assert_as_accurate(name, ours[name], theirs[name], truth)


@pytest.mark.parametrize(("lengths", "recompute"), [([3], True), ([4, 2], False)], ids=str)
@pytest.mark.parametrize("unit", ["gated", "swap-gate", "residual"])
def test_the_operator_is_registered_correctly(unit: str, lengths: list[int], recompute: bool) -> None:
    net = network(unit, 4, 2, recompute=recompute)
    torch.compiler.reset()
    # Batches of four sequences fill regions of eight rows: what lies between regions is not written.
    xs_BND = [torch.rand(4, length, 4, device=DEVICE, requires_grad=True) for length in lengths]
    calls: list[tuple[Any, ...]] = []
    original = operator._network
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "_wants_operators", lambda *tensors: True)
        patch.setattr(operator, "_network", lambda *arguments: calls.append(arguments) or original(*arguments))
        net.forward_batches(xs_BND)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    checks += ["test_aot_dispatch_dynamic"] if unit == "gated" else []
    torch.library.opcheck(torch.ops.riffle.network.default, calls[0], test_utils=checks, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("unit", "recompute"), [*((unit, True) for unit in UNITS), ("gated", False)])
def test_a_network_compiles_whole(unit: str, recompute: bool) -> None:
    net, xs_BND = network(unit, 4, 2, recompute=recompute), [draw(2, length, 4) for length in (8, 3)]
    torch.compiler.reset()
    compiled = torch.compile(lambda xs_BND: net.forward_batches(xs_BND), fullgraph=True, backend="aot_eager")
    found = []
    for run in (net.forward_batches, compiled):
        ys_BND = run(xs_BND)
        loss = sum(y_BND.square().sum() for y_BND in ys_BND)
        found.append([*ys_BND, *torch.autograd.grad(loss, list(net.parameters()))])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@every_unit
def test_an_exported_network_is_one_operator(unit: str) -> None:
    net, file = network(unit, 4, 2).eval(), io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(net, (draw(2, 6, 4),)), file)
        loaded = torch.export.load(io.BytesIO(file.getvalue())).module()
        assert any("riffle.network" in str(node.target) for node in loaded.graph.nodes)
        other_BND = draw(2, 6, 4)
        torch.testing.assert_close(loaded(other_BND), net(other_BND), rtol=0, atol=1e-6)


@pytest.mark.parametrize("unit", ["swap-gate", *RESIDUAL])
def test_layers_by_themselves_have_no_fused_kernels(unit: str) -> None:
    net = network(unit, 4)
    with pytest.raises(ValueError, match=r"fused kernels for whole networks alone|cannot be overwritten"):
        net.overwrite(draw(2, 8, 4))
    assert net(draw(2, 8, 4)).isfinite().all()
    assert ShuffleExchange(4, unit="residual", norm="sequence").spec is None, "plain PyTorch normalises sequences"
