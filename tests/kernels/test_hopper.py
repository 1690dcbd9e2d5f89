"""Kernels for GPUs with warpgroup products, against the definition and the other kernels.

Without such a GPU their code runs by an emulator (test_hopper_emulated.py) and is compiled (test_compiles.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from kernels.test_fused import assert_as_accurate, shuffled
from riffle import ShuffleExchange
from riffle.kernels import reference, residual, tuning
from riffle.kernels.launches import Kept, UnitWeights, Workspace, forward_layer, unit_weights
from riffle.kernels.layer_backward import SkipGradient, UnitGradients, backward_layer
from riffle.kernels.layer_plan import LayerPlan, plan_layer, share_gradients
from riffle.kernels.plan import plan_network
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import (
    LAYER_ROWS,
    PRODUCT_FORMS,
    LayerForm,
    LayerRow,
    layer_form,
    product_form,
)

WARPGROUPS = tuning.has_warpgroups(torch.device("cuda"))
on_hopper = pytest.mark.skipif(not WARPGROUPS, reason="needs a GPU of compute capability 9.0 and Triton 3.6")
BINS = ((3, 512), (5, 62))
"""Sequences and cells of each: odd numbers of pairs, so that the last tile is not full."""
FORMS = list(dict.fromkeys((row.features, row.form) for row in LAYER_ROWS))
"""All that the table has."""


class Layer(NamedTuple):
    """A layer's tensors; cells are ``[C, D]``."""

    x: Tensor
    skip: Tensor | None
    weights: UnitWeights
    grad: Tensor

    def tensors(self, dtype: torch.dtype) -> list[Tensor]:
        """Cells and parameters in a dtype, to be differentiated: x, the four parameters, skip connection and scale."""
        w = self.weights
        tensors = [self.x, w.gates, w.gates_bias, w.candidates, w.candidates_bias]
        if self.skip is not None and w.skip_scale is not None:
            tensors += [self.skip, w.skip_scale]
        return [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]

    def expected(
        self, dtype: torch.dtype, bins: tuple[tuple[int, int], ...], shuffle: int, swap: bool = True
    ) -> list[Tensor]:
        """Output and gradients by the reference."""
        leaves = self.tensors(dtype)
        x_CD, skip = leaves[0], leaves[5:]
        pairs = x_CD.shape[0] // 2, 2 * x_CD.shape[1]
        skip_PE = (skip[0] * skip[1]).view(pairs) if skip else None
        y_PE = reference.gated_switch(x_CD.view(pairs), SwitchWeights(*leaves[1:5]), skip_PE, swap=swap)
        y_CD = shuffled(y_PE.view(x_CD.shape), bins, shuffle)
        return [y_CD.detach(), *torch.autograd.grad(y_CD, leaves, self.grad.to(dtype))]


NAMES = ("y", "x", "W_gates", "B_gates", "W_c", "B_c", "skip", "scale")


def draw_layer(features: int, cells: int, dtype: torch.dtype, *, skip: bool) -> Layer:
    torch.manual_seed(0)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, device="cuda")).to(dtype)

    pair = 2 * features
    scale_D = torch.randn(features, device="cuda")
    matrices = draw(3 * pair, pair, scale=pair**-0.5), draw(2, features, pair, scale=pair**-0.5)
    weights = unit_weights(matrices[0], draw(3 * pair), matrices[1], draw(2, features), scale_D if skip else None)
    skip_CD = draw(cells, features).clamp(-1, 1) if skip else None
    return Layer(draw(cells, features).clamp(-1, 1), skip_CD, weights, draw(cells, features))


def plan_of(
    layer: Layer, bins: tuple[tuple[int, int], ...], *, shuffle: int, keep: bool, rate: float = 0.0, swap: bool = True
) -> LayerPlan:
    sequences, cells = zip(*bins, strict=True)
    x_CD = layer.x
    rates, features = (rate,) * len(bins), x_CD.shape[1]
    options: dict[str, Any] = {"shuffle": shuffle, "swap": swap, "keep": keep, "skip": layer.skip is not None}
    return plan_layer.__wrapped__(sequences, cells, rates, features, x_CD.dtype, x_CD.device, **options)


def run(plan: LayerPlan, layer: Layer, kept: Kept | None = None, seed: Tensor | None = None) -> Tensor:
    out_CD = torch.full_like(layer.x, float("nan"))
    for _ in range(2):  # the second call starts the compiled kernel directly
        out_CD.fill_(float("nan"))
        workspace = Workspace(layer.x)
        forward_layer(plan, layer.x, layer.skip, layer.weights, seed, workspace, kept=kept, out_CD=out_CD)
    return out_CD


Table = Callable[..., None]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """Sets what the table has, for all numbers of pairs, and few multiprocessors: programs take several tiles."""
    caches = (
        tuning.find_layer_form, layer_form, product_form, plan_layer, residual.plan_residual_layer, plan_network,
    )  # fmt: skip

    def clear() -> None:
        for cache in caches:
            cache.cache_clear()

    def set_table(layers: list[LayerRow], *, products: bool, multiprocessors: int = 3) -> None:
        modules = [tuning]
        if WARPGROUPS:
            from riffle.kernels import hopper, hopper_backward

            modules += [hopper, hopper_backward]
        for module in modules:
            monkeypatch.setattr(module, "multiprocessors", lambda device: multiprocessors)
        forms = {features: form._replace(fewest=0) for features, form in PRODUCT_FORMS.items()} if products else {}
        monkeypatch.setattr(tuning, "LAYER_ROWS", tuple(row._replace(fewest=0) for row in layers))
        monkeypatch.setattr(tuning, "PRODUCT_FORMS", forms)
        clear()

    yield set_table
    clear()


def rows_of(form: LayerForm, features: int) -> list[LayerRow]:
    return [LayerRow(features, keep, 0, form) for keep in (False, True)]


# Forward


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize(("features", "form"), FORMS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_layer_is_as_exact_as_eager(features: int, form: LayerForm, dtype: torch.dtype, table: Table) -> None:
    if dtype == torch.float16 and (features, form) not in [(row.features, row.form) for row in LAYER_ROWS]:
        pytest.skip("what is tried is tried in bfloat16")
    table(rows_of(form, features), products=False)
    cases = [(1, False, False), (-1, True, True), (0, True, False)] if dtype == torch.bfloat16 else [(-1, True, True)]
    for shuffle, skip, keep in cases:
        for bins in (BINS, ((3, 64),)):
            cells = sum(count * length for count, length in bins)
            layer = draw_layer(features, cells, dtype, skip=skip)
            plan = plan_of(layer, bins, shuffle=shuffle, keep=keep)
            assert plan.layer_forward is not None
            kept = Kept(layer.x.new_full((plan.pairs, 6 * features), float("nan")), None) if keep else None
            actual = run(plan, layer, kept)
            exact, eager = (layer.expected(kind, bins, shuffle)[0] for kind in (torch.float64, dtype))
            assert_as_accurate(f"{shuffle} {skip} {keep} {bins}", actual, eager, exact)
            assert (actual.double() - exact).abs().max() <= 2 * (eager.double() - exact).abs().max()
            if kept is not None:
                read_CD = layer.x.float()
                if layer.skip is not None and layer.weights.skip_scale is not None:
                    read_CD = read_CD + layer.weights.skip_scale * layer.skip.float()
                gates = read_CD.to(dtype).double().view(plan.pairs, -1) @ layer.weights.gates.double().t()
                assert (kept.gates.double() - gates).abs().max() <= 1.01 * torch.finfo(dtype).eps * gates.abs().max()


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize(("features", "form"), [form for form in FORMS if form[0] in (48, 96, 192)], ids=str)
def test_dropout_drops_what_the_other_kernels_drop(features: int, form: LayerForm, table: Table) -> None:
    layer = draw_layer(features, sum(count * length for count, length in BINS), torch.bfloat16, skip=False)
    seed = torch.tensor([12345, 67], device="cuda")
    for swap in (True, False):
        results = []
        for rows in (rows_of(form, features), []):
            table(rows, products=False)
            plan = plan_of(layer, BINS, shuffle=1, keep=False, rate=0.25, swap=swap)
            assert bool(rows) == (plan.layer_forward is not None)
            results.append(run(plan, layer, seed=seed))
        ours, theirs = results
        assert 0.2 < (ours == 0).float().mean() < 0.3
        assert torch.equal(ours == 0, theirs == 0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.03)


# Backward


def gradients_of(
    layer: Layer, plan: LayerPlan, kept: Kept | None, out_CD: Tensor | None, *, together: int = 1, more: bool = False
) -> list[Tensor]:
    """Gradients by the launches, in the order of :data:`NAMES` without y; ``together`` layers are the same one."""
    weights, features = layer.weights, plan.features
    zeros = [torch.zeros_like(weight, dtype=torch.float32) for weight in (weights.gates, weights.candidates)]
    scale = weights.skip_scale
    biases = torch.zeros(8 * features, device="cuda")
    gradients = UnitGradients(*zeros, biases, None if scale is None else torch.zeros_like(scale))
    workspace, results = Workspace(layer.x), []
    more_scale = torch.linspace(-1, 1, features, device="cuda")
    skip_gradient = SkipGradient(layer.grad, more_scale, torch.zeros_like(more_scale)) if more else None
    for share in share_gradients([plan] * together, ["unit"] * together):
        grad_CD = torch.empty_like(layer.x)
        grad_skip_CD = None if layer.skip is None else torch.empty_like(layer.x)
        backward_layer(
            plan, layer.grad, layer.x, out_CD, layer.skip, weights, None, workspace, kept=kept, share=share,
            gradients=gradients, grad_CD=grad_CD, grad_skip_CD=grad_skip_CD, skip_gradient=skip_gradient,
        )  # fmt: skip
        results.append((grad_CD, grad_skip_CD))
    assert all(torch.equal(result[0], results[0][0]) for result in results)
    gates_bias, candidates_bias = biases.split([6 * features, 2 * features])
    found = [gradients.gates, gates_bias, gradients.candidates, candidates_bias.view(2, features)]
    found = [results[0][0], *(gradient / together for gradient in found)]
    if layer.skip is not None and gradients.skip_scale is not None:
        found += [results[0][1], gradients.skip_scale / together]  # type: ignore[list-item]
    if skip_gradient is not None:
        found.append(skip_gradient.grad_scale / together)
    return found


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_poison")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("features", PRODUCT_FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("skip", [False, True])
def test_every_gradient_is_as_exact_as_eager(features: int, dtype: torch.dtype, skip: bool, table: Table) -> None:
    """Gates kept or formed again, candidates from outputs or formed again, layers that share products or not."""
    layer = draw_layer(features, sum(count * length for count, length in BINS), dtype, skip=skip)
    exact, eager = (layer.expected(kind, BINS, -1) for kind in (torch.float64, dtype))
    for keep, from_output, together in ((True, True, 2), (False, True, 1), (True, False, 1), (False, False, 2)):
        for products in (True, False):  # what the other kernels give says that the test is right
            table([], products=products)
            plan = plan_of(layer, BINS, shuffle=-1, keep=keep)
            assert (plan.product_backward is None) == (not products)
            kept = Kept(layer.x.new_empty(plan.pairs, 6 * features), None) if keep else None
            out_CD = run(plan, layer, kept)
            actual = gradients_of(layer, plan, kept, out_CD if from_output else None, together=together)
            for name, *results in zip(NAMES[1:], actual, eager[1:], exact[1:], strict=False):
                assert_as_accurate(f"{name}, keep {keep}, {from_output}, {together}, {products}", *results)


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_poison")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("features", PRODUCT_FORMS)
def test_the_gradient_of_a_later_skip_connection_is_added(features: int, table: Table) -> None:
    layer = draw_layer(features, sum(count * length for count, length in BINS), torch.bfloat16, skip=False)
    for together in (1, 2):
        results = []
        for products in (True, False):
            table([], products=products)
            plan = plan_of(layer, BINS, shuffle=1, keep=True)
            kept = Kept(layer.x.new_empty(plan.pairs, 6 * features), None)
            out_CD = run(plan, layer, kept)
            results.append(gradients_of(layer, plan, kept, out_CD, together=together, more=True))
        for ours, theirs in zip(*results, strict=True):
            assert (ours - theirs).norm() <= 0.01 * theirs.norm()
        # Of the scale: the gradient of what the later layer read, times what that read of this layer.
        expected = (layer.grad.double() * layer.x.double()).sum(0)
        assert (results[0][-1].double() - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize("features", PRODUCT_FORMS)
def test_gradients_are_the_same_bit_for_bit(features: int, table: Table) -> None:
    table([], products=True, multiprocessors=132)
    bins = ((7, 4096),)
    layer = draw_layer(features, 7 * 4096, torch.bfloat16, skip=True)
    plan = plan_of(layer, bins, shuffle=1, keep=True)
    kept = Kept(layer.x.new_empty(plan.pairs, 6 * features), None)
    out_CD = run(plan, layer, kept)
    first, *others = (gradients_of(layer, plan, kept, out_CD, together=2) for _ in range(4))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


# Long, and whole networks


@pytest.mark.gpu
@on_hopper
def test_beyond_two_to_the_31_numbers(table: Table) -> None:
    features, pairs = 96, 2**24
    form = next(row.form for row in LAYER_ROWS if (row.features, row.keep) == (features, True))
    table(rows_of(form, features), products=True, multiprocessors=132)
    layer = draw_layer(features, 128, torch.bfloat16, skip=False)
    x_CD, grad_CD = (
        tensor.view(64, -1).repeat(pairs // 64, 1).view(2 * pairs, features) for tensor in (layer.x, layer.grad)
    )
    long = layer._replace(x=x_CD, grad=grad_CD)
    plan = plan_of(long, ((1, 2 * pairs),), shuffle=0, keep=True)
    assert plan.layer_forward is not None
    assert plan.product_backward is not None
    kept = Kept(x_CD.new_full((pairs, 6 * features), float("nan")), None)
    out_CD = run(plan, long, kept)
    # Every 64 pairs are the same, and so are their outputs and gradients.
    grad_x_CD, *_ = gradients_of(long, plan, kept, out_CD)
    for part in (out_CD, kept.gates, grad_x_CD):
        rows = part.view(pairs // 64, -1)
        assert all(torch.equal(rows[index], rows[0]) for index in (1, pairs // 128, pairs // 64 - 1))
    exact, eager = (layer.expected(dtype, ((1, 128),), 0) for dtype in (torch.float64, torch.bfloat16))
    for name, actual, index in (("y", out_CD, 0), ("x", grad_x_CD, 1)):
        assert_as_accurate(name, actual[:128], eager[index], exact[index])


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize("features", [96, 192])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_network_has_the_gradients_of_the_reference(features: int, recompute: bool, table: Table) -> None:
    """Two blocks, so that layers add skip connections, and two lengths, which share layers."""
    table([LayerRow(*row[:2], 0, row.form) for row in LAYER_ROWS], products=True, multiprocessors=32)
    options: dict[str, Any] = {"features": features, "blocks": 2, "device": "cuda", "dtype": torch.bfloat16}
    ours = ShuffleExchange(backend="fused", recompute=recompute, **options)
    theirs = ShuffleExchange(backend="reference", **options)
    theirs.load_state_dict(ours.state_dict())
    exact = ShuffleExchange(backend="reference", **options | {"dtype": torch.float64})
    exact.load_state_dict(ours.state_dict())
    xs_BND = [(torch.rand(*shape, features, device="cuda") * 2 - 1).bfloat16() for shape in ((2, 2048), (3, 250))]
    grads_BND = [torch.randn_like(x_BND) for x_BND in xs_BND]
    results = []
    for net in (ours, theirs, exact):
        dtype = next(net.parameters()).dtype
        leaves = [x_BND.to(dtype).requires_grad_() for x_BND in xs_BND]
        ys_BND = net.forward_batches(leaves)
        wanted = [*leaves, *net.parameters()]
        gradients = torch.autograd.grad(ys_BND, wanted, [grad_BND.to(dtype) for grad_BND in grads_BND])
        results.append([*(y_BND.detach().double() for y_BND in ys_BND), *(g.double() for g in gradients)])
    for index, (actual, eager, truth) in enumerate(zip(*results, strict=True)):
        assert (actual - truth).norm() <= 2 * (eager - truth).norm() + 1e-6 * truth.norm(), index


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize("features", [96, 192])
def test_a_network_trains_as_with_the_other_kernels(features: int, table: Table) -> None:
    """A few steps with dropout and skip connections, as CUDA graphs from the fourth on."""
    x_BND = torch.rand(8, 1024, features, device="cuda") * 2 - 1
    target_BND = x_BND.flip(1)
    losses, weights = [], []
    for layers, products in ((list(LAYER_ROWS), True), ([], False)):
        table(layers, products=products, multiprocessors=132)
        torch.manual_seed(0)
        net = ShuffleExchange(features, 2, dropout=0.1, backend="fused", device="cuda")
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        trace = []
        for step in range(8):
            torch.manual_seed(step)
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.mse_loss(net(x_BND).float(), target_BND)
            loss.backward()
            optimizer.step()
            trace.append(loss.detach())
        assert net.graphs is not None
        assert net.graphs.counts["replayed"] == 6, net.graphs.counts
        losses.append(torch.stack(trace))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in net.parameters()]))
    torch.testing.assert_close(*losses, rtol=2e-3, atol=0)
    assert (weights[0] - weights[1]).norm() <= 0.05 * weights[1].norm()


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize(("shape", "blocks"), [((1, 4096), 2), ((8, 32), 3), ((1, 512), 1)], ids=str)
def test_half_blocks_as_launches(shape: tuple[int, int], blocks: int, table: Table) -> None:
    """As exact as eager PyTorch, and the same bits in ten calls, plainly and in CUDA graphs."""
    table(list(LAYER_ROWS), products=False, multiprocessors=132)
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    ours, eager, exact = (
        ShuffleExchange(192, blocks, backend=backend, **options) for backend in ("fused", "reference", "reference")
    )
    for net in (eager, exact):
        net.load_state_dict(ours.state_dict())
    exact.double()
    x_BND = torch.rand(*shape, 192, device="cuda").mul(2).sub(1).bfloat16()
    with torch.no_grad():
        found = [ours(x_BND).clone() for _ in range(10)]
        plain, truth = eager(x_BND).double(), exact(x_BND.double())
    assert all(torch.equal(y_BND, found[0]) for y_BND in found)
    assert (found[0].double() - truth).norm() <= 2 * (plain - truth).norm()


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize(
    ("features", "shapes", "unit"),
    [
        *((features, [(4, 1024)], {"recompute": again}) for features in (96, 192) for again in (False, True)),
        *((192, shapes, {"unit": "residual"}) for shapes in ([(64, 64), (64, 32), (64, 16), (64, 8)], [(16, 1024)])),
    ],
    ids=str,
)
def test_dependent_launches_change_no_bit(
    features: int, shapes: list[tuple[int, int]], unit: dict[str, Any], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programmatic dependent launch, plainly and in CUDA graphs (where some launches wait for another stream's)."""
    results = []
    for dependent in (False, True):
        monkeypatch.setattr(tuning, "DEPENDENT_LAUNCH", dependent)
        table([LayerRow(*row[:2], 0, row.form) for row in LAYER_ROWS], products=True, multiprocessors=132)
        torch.manual_seed(0)
        net = ShuffleExchange(features, 2, backend="fused", device="cuda", dtype=torch.bfloat16, **unit)
        results.append(launched_and_replayed(net, shapes))
    for plain, dependent_result in zip(*results, strict=True):
        assert torch.equal(plain, dependent_result)


def launched_and_replayed(net: ShuffleExchange, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Outputs and gradients of five calls, the last of them replayed, and outputs of five without gradients."""
    generator = torch.Generator("cuda").manual_seed(1)
    sizes = [(*shape, net.features) for shape in shapes]
    xs_BND = [(torch.rand(size, device="cuda", generator=generator) * 2 - 1).bfloat16() for size in sizes]
    found = []
    for _ in range(5):
        leaves = [x_BND.clone().requires_grad_() for x_BND in xs_BND]
        ys_BND = net.forward_batches(leaves)
        grads = torch.autograd.grad(ys_BND, [*leaves, *net.parameters()], [torch.ones_like(y_BND) for y_BND in ys_BND])
        found += [*(y_BND.detach() for y_BND in ys_BND), *grads]
    assert net.graphs is not None
    assert net.graphs.counts["replayed"] == 3, net.graphs.counts
    with torch.no_grad():
        for _ in range(5):
            found += net.forward_batches(xs_BND)
    return found
