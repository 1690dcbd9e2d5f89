"""The switch layer as one launch, on GPUs with warpgroup products, against the definition and the other kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle import ShuffleExchange
from riffle.kernels import layer_plan, reference, tuning
from riffle.kernels.launches import Kept, UnitWeights, Workspace, forward_layer, unit_weights
from riffle.kernels.layer_plan import LayerPlan, plan_layer
from riffle.kernels.plan import plan_network
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import LAYER_FORMS, layer_form
from riffle.shuffle import riffle, unriffle

WARPGROUPS = tuning.has_warpgroups(torch.device("cuda"))
on_hopper = pytest.mark.skipif(not WARPGROUPS, reason="needs a GPU of compute capability 9.0 and Triton 3.6")
SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x_BND: x_BND}
BINS = ((3, 512), (5, 62))
"""Sequences and cells of each: odd numbers of pairs, so that the last tile is not full."""


class Layer(NamedTuple):
    """A layer's tensors; cells are ``[C, D]``."""

    x: Tensor
    skip: Tensor | None
    weights: UnitWeights

    def expected(self, dtype: torch.dtype, bins: tuple[tuple[int, int], ...], shuffle: int) -> Tensor:
        """By the reference."""
        w = self.weights
        weights = SwitchWeights(*(t.to(dtype) for t in (w.gates, w.gates_bias, w.candidates, w.candidates_bias)))
        cells = self.x.shape[0], self.x.shape[1]
        pairs = cells[0] // 2, 2 * cells[1]
        skip_PE = None
        if self.skip is not None and w.skip_scale is not None:
            skip_PE = (self.skip.to(dtype) * w.skip_scale.to(dtype)).view(pairs)
        y_CD = reference.gated_switch(self.x.to(dtype).view(pairs), weights, skip_PE).view(cells)
        parts = y_CD.split([count * length for count, length in bins])
        shuffled = [
            SHUFFLES[shuffle](part.view(*shape, -1)).reshape(part.shape)
            for part, shape in zip(parts, bins, strict=True)
        ]
        return torch.cat(shuffled)


def draw_layer(features: int, cells: int, dtype: torch.dtype, *, skip: bool) -> Layer:
    torch.manual_seed(0)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, device="cuda")).to(dtype)

    pair = 2 * features
    scale_D = torch.randn(features, device="cuda")
    matrices = draw(3 * pair, pair, scale=pair**-0.5), draw(2, features, pair, scale=pair**-0.5)
    weights = unit_weights(matrices[0], draw(3 * pair), matrices[1], draw(2, features), scale_D if skip else None)
    return Layer(draw(cells, features).clamp(-1, 1), draw(cells, features).clamp(-1, 1) if skip else None, weights)


def plan_of(
    layer: Layer, bins: tuple[tuple[int, int], ...], *, shuffle: int, keep: bool, rate: float = 0.0, swap: bool = True
) -> LayerPlan:
    sequences, cells = zip(*bins, strict=True)
    x_CD = layer.x
    rates, features = (rate,) * len(bins), x_CD.shape[1]
    options: dict[str, Any] = {"shuffle": shuffle, "swap": swap, "keep": keep}
    return plan_layer.__wrapped__(sequences, cells, rates, features, x_CD.dtype, x_CD.device, **options)


def run(plan: LayerPlan, layer: Layer, kept: Kept | None = None, seed: Tensor | None = None) -> Tensor:
    out_CD = torch.full_like(layer.x, float("nan"))
    for _ in range(2):  # the second call starts the compiled kernel directly
        out_CD.fill_(float("nan"))
        workspace = Workspace(layer.x)
        forward_layer(plan, layer.x, layer.skip, layer.weights, seed, workspace, kept=kept, out_CD=out_CD)
    return out_CD


@pytest.fixture
def _few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs take several tiles each, and layers of few pairs are done so."""
    for module in (tuning, layer_plan):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 3)
    fewest = {(features, keep): 0 for features in LAYER_FORMS for keep in (False, True)}
    monkeypatch.setattr(tuning, "FEWEST_LAYER_PAIRS", fewest)
    for planned in (layer_form, plan_layer, plan_network):
        planned.cache_clear()
    yield
    for planned in (layer_form, plan_layer, plan_network):
        planned.cache_clear()


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_few_multiprocessors")
@pytest.mark.parametrize("features", LAYER_FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("shuffle", "skip", "keep"), [(1, False, False), (-1, True, True), (0, True, False)])
def test_as_exact_as_eager(features: int, dtype: torch.dtype, shuffle: int, skip: bool, keep: bool) -> None:
    for bins in (BINS, ((3, 64),)):
        cells = sum(count * length for count, length in bins)
        layer = draw_layer(features, cells, dtype, skip=skip)
        plan = plan_of(layer, bins, shuffle=shuffle, keep=keep)
        assert plan.layer_forward is not None
        kept = Kept(layer.x.new_full((plan.pairs, 6 * features), float("nan")), None) if keep else None
        actual = run(plan, layer, kept).double()
        exact, eager = layer.expected(torch.float64, bins, shuffle), layer.expected(dtype, bins, shuffle)
        assert (actual - exact).abs().max() <= 2 * (eager.double() - exact).abs().max()
        if kept is not None:
            read_CD = layer.x.float()
            if layer.skip is not None and layer.weights.skip_scale is not None:
                read_CD = read_CD + layer.weights.skip_scale * layer.skip.float()
            gates = read_CD.to(dtype).double().view(plan.pairs, -1) @ layer.weights.gates.double().t()
            assert (kept.gates.double() - gates).abs().max() <= 1.01 * torch.finfo(dtype).eps * gates.abs().max()


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_few_multiprocessors")
@pytest.mark.parametrize("features", [48, 96, 192])
def test_dropout_drops_what_the_other_kernels_drop(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = draw_layer(features, sum(count * length for count, length in BINS), torch.bfloat16, skip=False)
    seed = torch.tensor([12345, 67], device="cuda")
    for swap in (True, False):
        ours = run(plan_of(layer, BINS, shuffle=1, keep=False, rate=0.25, swap=swap), layer, seed=seed)
        with monkeypatch.context() as context:
            context.setattr(layer_plan, "layer_form", lambda *shape, keep: None)
            plan = plan_of(layer, BINS, shuffle=1, keep=False, rate=0.25, swap=swap)
        theirs = run(plan, layer, seed=seed)
        assert plan.layer_forward is None
        assert 0.2 < (ours == 0).float().mean() < 0.3
        assert torch.equal(ours == 0, theirs == 0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.03)


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_few_multiprocessors")
def test_beyond_two_to_the_31_numbers() -> None:
    features, pairs = 96, 2**24
    layer = draw_layer(features, 2, torch.bfloat16, skip=False)
    x_CD = torch.randn(64, 2 * features, device="cuda").clamp(-1, 1).bfloat16().repeat(pairs // 64, 1)
    layer = layer._replace(x=x_CD.view(2 * pairs, features))
    plan = plan_of(layer, ((1, 2 * pairs),), shuffle=1, keep=True)
    kept = Kept(x_CD.new_full((pairs, 6 * features), float("nan")), None)
    out_CD = run(plan, layer, kept)
    # Every 64 pairs are the same, and so are their outputs, the first cells before the second.
    for part in (*out_CD.chunk(2), kept.gates):
        rows = part.view(pairs // 64, 64, -1)
        assert all(torch.equal(rows[index], rows[0]) for index in (1, pairs // 128, pairs // 64 - 1))
    small = layer._replace(x=layer.x[:128])
    exact, eager = (small.expected(dtype, ((1, 128),), 1) for dtype in (torch.float64, torch.bfloat16))
    actual = torch.cat([half[:64] for half in out_CD.chunk(2)]).double()
    assert (actual - exact).abs().max() <= 2 * (eager.double() - exact).abs().max()


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_few_multiprocessors")
@pytest.mark.parametrize("recompute", [False, True])
def test_a_network_trains_as_on_the_reference(recompute: bool) -> None:
    """Two blocks, so that layers add skip connections."""
    options: dict[str, Any] = {"features": 96, "blocks": 2, "device": "cuda", "dtype": torch.bfloat16}
    ours = ShuffleExchange(backend="fused", recompute=recompute, **options)
    theirs = ShuffleExchange(backend="reference", **options)
    theirs.load_state_dict(ours.state_dict())
    exact = ShuffleExchange(backend="reference", **options | {"dtype": torch.float64})
    exact.load_state_dict(ours.state_dict())
    x_BND = (torch.rand(2, 4096, 96, device="cuda") * 2 - 1).bfloat16()
    assert layer_form(4096, 96, torch.bfloat16, x_BND.device, keep=not recompute) is not None
    grad_BND = torch.randn_like(x_BND)
    results = []
    for net in (ours, theirs, exact):
        dtype = next(net.parameters()).dtype
        leaf = x_BND.to(dtype).requires_grad_()
        y_BND = net(leaf)
        gradients = torch.autograd.grad(y_BND, [leaf, *net.parameters()], grad_BND.to(dtype))
        results.append([y_BND.detach().double(), *(gradient.double() for gradient in gradients)])
    for index, (actual, eager, truth) in enumerate(zip(*results, strict=True)):
        assert (actual - truth).norm() <= 2 * (eager - truth).norm() + 1e-6 * truth.norm(), index


def test_other_chips_widths_and_dtypes_take_the_other_kernels() -> None:
    device = torch.device("cpu")
    assert layer_form(2**20, 96, torch.bfloat16, device, keep=False) is None
    for features, dtype in ((100, torch.bfloat16), (96, torch.float32)):
        assert layer_form(2**20, features, dtype, torch.device("cuda"), keep=False) is None


@pytest.mark.parametrize("features", LAYER_FORMS)
def test_the_forms_fit(features: int) -> None:
    """Places divide the products' weights, and what lies in shared memory fits into a multiprocessor's."""
    form = LAYER_FORMS[features]
    options = form.options(features)
    parts, last = 2 * features // options["CHUNK"], features // options["OUT"]
    assert (parts + last) * form.split % form.stages == parts % form.split == 0
    weights = form.stages * (parts // form.split) * options["CHUNK"] ** 2 * 2
    pairs = form.groups * 64 * 2 * features * 2 if form.shared else 0
    assert weights + pairs + 4 * 8 * features < 227 * 1024
