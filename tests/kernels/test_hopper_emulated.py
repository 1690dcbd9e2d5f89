"""The kernels for Hopper by an emulator on a CPU: addresses, tiles, rings and barriers, against the definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from riffle.kernels import TRITON_VERSION, reference, tuning
from riffle.kernels.reference import SwitchWeights

if TRITON_VERSION < (3, 6):
    pytest.skip("needs Triton 3.6", allow_module_level=True)

from kernels.gluon_emulator import Deadlock, Descriptor, Emulated, Pointer
from kernels.test_fused import shuffled
from kernels.test_hopper import FORMS
from riffle import ShuffleExchange
from riffle.kernels import (
    gated_switch,
    hopper,
    hopper_backward,
    hopper_resident,
    layer_backward,
    layer_plan,
)
from riffle.kernels.descriptors import DescriptorLaunch
from riffle.kernels.launches import Launch
from riffle.kernels.plan import plan_network
from riffle.kernels.tuning import PRODUCT_FORMS, LayerForm, LayerRow, ProductForm

DTYPE, CPU = torch.bfloat16, torch.device("cpu")
KERNELS = {module: Emulated(gated_switch, module) for module in (hopper, hopper_backward, hopper_resident)}


@pytest.fixture(autouse=True)
def _multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that programs take several tiles."""
    for module in (hopper, hopper_backward, tuning):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 13)


def draw(*shape: int, scale: float = 1.0, dtype: torch.dtype = DTYPE) -> Tensor:
    return (scale * torch.randn(*shape)).to(dtype)


def run(launch: DescriptorLaunch, *tensors: Tensor | None) -> None:
    """A launch by the emulator."""
    matrices = launch.matrices
    described = [
        None if tensor is None else Descriptor(tensor, matrix.rows, matrix.columns, matrix[2:])
        for tensor, matrix in zip(tensors, matrices, strict=False)
    ]
    pointers = [None if tensor is None else Pointer(tensor.view(-1)) for tensor in tensors[len(matrices) :]]
    form = SimpleNamespace(**launch.constants["FORM"])
    together = launch.constants.get("launch_cooperative_grid", False)
    arguments = (*described, *pointers, *launch.numbers, form)
    KERNELS[launch.kernels].run(launch.kernel, launch.grid[0], *arguments, together=together)


def forward(form: LayerForm, features: int, bins: tuple[tuple[int, int], ...], **flags: Any) -> tuple[Any, ...]:
    """What the kernels make, and the definition in float64."""
    torch.manual_seed(0)
    pair, cells = 2 * features, sum(count * length for count, length in bins)
    pairs = cells // 2
    x_CD, skip_CD = draw(cells, features).clamp(-1, 1), draw(cells, features).clamp(-1, 1)
    gates, candidates = draw(3 * pair, pair, scale=pair**-0.5), draw(2, features, pair, scale=pair**-0.5)
    gates_bias, candidates_bias, scale_D = draw(3 * pair), draw(2, features), torch.randn(features)
    rate = 0.25 if flags["DROPOUT"] else 0.0
    lengths = tuple(length for _, length in bins)
    groups = layer_plan.group_numbers([count * length // 2 for count, length in bins], lengths, (rate,) * len(bins))
    shape = (CPU, pairs, features)
    kept = torch.full((pairs, 3 * pair), float("nan"), dtype=DTYPE) if flags["KEEP"] else None
    out_CD = torch.full_like(x_CD, float("nan"))
    skip = skip_CD if flags["SKIP"] else None
    seed = torch.zeros(2, dtype=torch.int64)
    launch = hopper.layer_launch(form, *shape, groups, DTYPE, PDL=False, **flags)
    run(
        launch, gates, gates, candidates, kept, kept, x_CD, gates_bias, candidates_bias, x_CD, skip,
        scale_D if flags["SKIP"] else None, out_CD, seed,
    )  # fmt: skip
    weights = SwitchWeights(*(tensor.double() for tensor in (gates, gates_bias, candidates, candidates_bias)))
    added = (skip_CD.double() * scale_D.double()).view(pairs, pair) if flags["SKIP"] else None
    y_PE = reference.gated_switch(x_CD.double().view(pairs, pair), weights, added, swap=flags["SWAP"])
    if flags["DROPOUT"]:
        columns = torch.arange(pair)
        numbers = torch.arange(pairs)[:, None] * 7 + columns // features * 3 + columns % features
        y_PE = y_PE * (numbers % 4 > 0) / (1 - rate)
    exact_CD = shuffled(y_PE.view(cells, features), bins, flags["SHUFFLE"])
    read_PE = x_CD.double().view(pairs, pair) + (0 if added is None else added)
    return out_CD.double(), exact_CD, kept, read_PE @ gates.double().t()


@pytest.mark.parametrize(("features", "form"), FORMS, ids=str)
def test_layer_forward(features: int, form: LayerForm) -> None:
    """Two lengths, an odd number of pairs, several tiles a program where a program takes more than one."""
    bins = ((5, 640), (3, 62)) if form.ways == 1 else ((1, 256), (3, 6))
    for shuffle, skip, keep, dropout, swap in ((1, False, True, False, True), (-1, True, False, True, False)):
        flags = {"SHUFFLE": shuffle, "SKIP": skip, "KEEP": keep, "DROPOUT": dropout, "SWAP": swap}
        actual, exact, kept, gates = forward(form, features, bins, **flags)
        assert (actual - exact).abs().max() < 0.05
        if kept is not None:
            assert (kept.double() - gates).norm() < 0.005 * gates.norm()


def backward(form: ProductForm, features: int, pairs: int, **flags: bool) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Names, what the kernel makes, and the definition in float64."""
    torch.manual_seed(0)
    pair = 2 * features
    grad_sums, weight, read = draw(pairs, 2, features), draw(2, features, pair, scale=pair**-0.5), draw(pairs, pair)
    bias, before, skip, more = draw(3 * pair), draw(pairs, pair), draw(pairs, pair), draw(pairs, pair)
    scale_D, more_scale_D = torch.randn(features), torch.randn(features)
    gates = draw(pairs, 3 * pair)
    reset = (gates.double() + bias.double())[:, : 2 * pair].view(pairs, 2, pair).sigmoid()
    a = read.double() + (scale_D.repeat(2) * skip.double() if flags["SKIP"] else 0)
    grad = torch.stack([grad_sums[:, i].double() @ weight[i].double() for i in range(2)], 1)
    products = reset * a[:, None]
    grad_gates = grad * products * (1 - reset)
    grad_read = (grad * reset).sum(1) + (before.double() if flags["ADD"] else 0)
    grad_read = grad_read + (more_scale_D.repeat(2) * more.double() if flags["MORE"] else 0)
    launch = hopper_backward.product_launch(form, CPU, pairs, features, DTYPE, PDL=False, **flags)
    rows = hopper_backward.product_sum_rows(form, features, pairs, CPU)
    nan = float("nan")
    out, sums = before.clone() if flags["ADD"] else torch.full_like(before, nan), torch.full((rows, 3 * pair), nan)
    t, copy = torch.full((pairs, 2, pair), nan, dtype=DTYPE), torch.full_like(read, nan)
    run(
        launch, grad_sums, weight, gates, gates, read, t if flags["PRODUCT"] else None, out,
        skip if flags["SKIP"] else None, more if flags["MORE"] else None, copy if flags["COPY"] else None, bias,
        scale_D if flags["SKIP"] else None, more_scale_D if flags["MORE"] else None, sums,
    )  # fmt: skip
    yield "resets", gates[:, : 2 * pair].reshape(pairs, 2, pair), grad_gates
    yield "read", out, grad_read
    yield "sums", sums[:, : 2 * pair].sum(0), grad_gates.sum(0).flatten()
    if flags["PRODUCT"]:
        yield "t", t, products
    if flags["COPY"]:
        yield "copy", copy, a
    if flags["MORE"]:
        yield "scale", sums[:, 2 * pair :].sum(0), (more.double() * a).sum(0)


USED = [
    (add, more, store, skip, copy)
    for add, more, store, skip, copy in product((True, False), repeat=5)
    if (add or (not more and copy == skip)) and (not skip or (store and not add))
]
"""Flags that occur: a layer with a skip connection adds to nothing, and copies the sum where it forms that itself."""


@pytest.mark.parametrize(("features", "form"), PRODUCT_FORMS.items(), ids=str)
def test_product_backward(features: int, form: ProductForm) -> None:
    for flags in USED:
        names = dict(zip(("ADD", "MORE", "PRODUCT", "SKIP", "COPY"), flags, strict=True))
        for name, actual, exact in backward(form, features, 64 * 9 + 37, **names):
            error = (actual.double() - exact).norm() / exact.norm()
            assert error < 0.008, (name, names)


def resident(
    features: int, bins: tuple[tuple[int, int], ...], layers: int, dtype: torch.dtype, **flags: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    """What each of some layers makes in one launch, and the definition in float64 of what came before."""
    torch.manual_seed(0)
    sample = partial(draw, dtype=dtype)
    pair, cells = 2 * features, sum(count * length for count, length in bins)
    pairs = cells // 2
    x_CD, skips = sample(cells, features).clamp(-1, 1), sample(layers + 1, cells, features).clamp(-1, 1)
    gates, candidates = sample(3 * pair, pair, scale=pair**-0.5), sample(2, features, pair, scale=pair**-0.5)
    gates_bias, candidates_bias, scale_D = sample(3 * pair), sample(2, features), torch.randn(features)
    lengths = tuple(length for _, length in bins)
    groups = layer_plan.group_numbers([count * length // 2 for count, length in bins], lengths, (0.0,) * len(bins))
    launch = hopper_resident.layers_launch(pairs, features, groups, dtype, layers=layers, **flags)
    states, reads, products = (
        torch.full((rows, features), float("nan"), dtype=dtype) for rows in (layers * cells, 2 * cells, 2 * cells)
    )
    counters = torch.zeros(hopper_resident.counters(pairs), dtype=torch.int32)
    read = (x_CD + scale_D * skips[0]).to(dtype) if flags["SKIP"] else x_CD
    more = (reads, skips[1:], scale_D) if flags["SKIP"] else (None, None, None)
    run(
        launch, gates, gates, candidates, read, reads if flags["SKIP"] else states, products, gates_bias,
        candidates_bias, x_CD, states, *more, products, counters,
    )  # fmt: skip
    weights = SwitchWeights(*(tensor.double() for tensor in (gates, gates_bias, candidates, candidates_bias)))
    for out_CD, skip_CD in zip(states.view(layers, cells, features), skips, strict=False):
        added = (skip_CD.double() * scale_D.double()).view(pairs, pair) if flags["SKIP"] else None
        y_PE = reference.gated_switch(x_CD.double().view(pairs, pair), weights, added, swap=flags["SWAP"])
        yield out_CD.double(), shuffled(y_PE.view(cells, features), bins, flags["SHUFFLE"])
        x_CD = out_CD


@pytest.mark.parametrize(
    ("features", "bins", "shuffle", "swap", "skip", "dtype"),
    [
        (192, ((1, 512),), 1, True, False, torch.bfloat16),
        (192, ((2, 192), (2, 64)), -1, True, True, torch.float16),
        (128, ((1, 256),), -1, False, False, torch.bfloat16),
    ],
    ids=str,
)
def test_layers_forward(
    features: int, bins: tuple[tuple[int, int], ...], shuffle: int, swap: bool, skip: bool, dtype: torch.dtype
) -> None:
    """Three layers in one launch, two tiles of pairs, programs side by side that wait for each other."""
    for actual, exact in resident(features, bins, 3, dtype, SHUFFLE=shuffle, SWAP=swap, SKIP=skip):
        assert (actual - exact).abs().max() < 0.05


# Through the library: launches, buffers and sums


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Chooses these kernels for 32 features, and lets them and the others run on a CPU; names of those that ran."""
    others, names = Launch._run, set()
    caches = (
        tuning.find_layer_form, tuning.layer_form, tuning.product_form, layer_plan.plan_layer, plan_network,
    )  # fmt: skip

    def run_others(launch: Launch, tensors: Sequence[Tensor | None]) -> None:
        # Triton's interpreter has no assembly, and runs one launch after the other.
        launch.constants.update(FAST=False, PDL=False)
        others(launch, tensors)

    def run_these(launch: DescriptorLaunch, tensors: Sequence[Tensor | None]) -> None:
        names.add(launch.kernel)
        run(launch, *tensors)

    def add_product(grad: Tensor, read: Tensor, out: Tensor) -> None:
        out.addmm_(grad.t().float(), read.float())

    monkeypatch.setattr(tuning, "has_warpgroups", lambda device: True)
    monkeypatch.setattr(Launch, "_run", run_others)
    monkeypatch.setattr(DescriptorLaunch, "_run", run_these)
    monkeypatch.setattr(layer_backward, "add_weight_gradient", add_product)

    layers = tuple(LayerRow(32, keep, 0, LayerForm(groups=2, stages=2)) for keep in (False, True))
    monkeypatch.setattr(tuning, "LAYER_ROWS", layers)
    monkeypatch.setattr(tuning, "PRODUCT_FORMS", {32: ProductForm(0, stages=2, step=32)})
    monkeypatch.setattr(tuning, "RESIDENT_PAIRS", {128: 2**11})
    for cache in caches:
        cache.cache_clear()
    yield names
    for cache in caches:
        cache.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other launches run by Triton's interpreter")
@pytest.mark.parametrize(("blocks", "recompute"), [(2, True), (2, False), (3, False)])
def test_a_network_has_the_gradients_of_the_definition(blocks: int, recompute: bool, emulated: set[str]) -> None:
    """Skip connections, two lengths that share layers, layers that share products; as exact as eager PyTorch."""
    torch.manual_seed(0)
    # In float16: to bfloat16 Triton's interpreter, which runs the other launches, does not round.
    ours = ShuffleExchange(32, blocks, backend="fused", recompute=recompute, dtype=torch.float16)
    eager, exact = (ShuffleExchange(32, blocks, backend="reference", dtype=torch.float16) for _ in range(2))
    for net in (eager, exact):
        net.load_state_dict(ours.state_dict())
    exact.double()
    xs_BND = [torch.rand(*shape, 32).mul(2).sub(1).half() for shape in ((3, 16), (7, 6))]
    grads_BND = [torch.randn_like(x_BND) for x_BND in xs_BND]
    results = []
    for net in (ours, eager, exact):
        dtype = next(net.parameters()).dtype
        leaves = [x_BND.to(dtype).requires_grad_() for x_BND in xs_BND]
        wanted = [*leaves, *net.parameters()]
        ys_BND = net.forward_batches(leaves)
        gradients = torch.autograd.grad(ys_BND, wanted, [grad_BND.to(dtype) for grad_BND in grads_BND])
        results.append([*(y_BND.detach().double() for y_BND in ys_BND), *(gradient.double() for gradient in gradients)])
    assert emulated == {"layer_forward", "product_backward"}
    names = ["y 0", "y 1", "x 0", "x 1", *(name for name, _ in ours.named_parameters())]
    for name, actual, plain, truth in zip(names, *results, strict=True):
        assert (actual - truth).norm() <= 2 * (plain - truth).norm() + 1e-6 * truth.norm(), name


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other launches run by Triton's interpreter")
@pytest.mark.parametrize(("blocks", "shapes"), [(1, ((8, 32),)), (3, ((16, 16),)), (2, ((8, 32), (32, 8)))], ids=str)
def test_a_network_whose_half_blocks_are_launches(
    blocks: int, shapes: tuple[tuple[int, int], ...], emulated: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skip connections of layers that are joined add what such layers made; the last layer is a launch of its own."""
    monkeypatch.setattr(tuning, "multiprocessors", lambda device: 16)
    torch.manual_seed(0)
    ours, eager, exact = (
        ShuffleExchange(128, blocks, backend=backend, dtype=torch.float16)
        for backend in ("fused", "reference", "reference")
    )
    for net in (eager, exact):
        net.load_state_dict(ours.state_dict())
    exact.double()
    xs_BND = [torch.rand(*shape, 128).mul(2).sub(1).half() for shape in shapes]
    with torch.no_grad():
        actual, plain = (torch.cat([y.flatten() for y in net.forward_batches(xs_BND)]) for net in (ours, eager))
        truth = torch.cat([y.flatten() for y in exact.forward_batches([x.double() for x in xs_BND])])
    assert emulated == {"layers_forward"}
    assert (actual.double() - truth).norm() <= 2 * (plain.double() - truth).norm()


# The emulator itself


def test_the_emulator_sees_a_place_that_is_never_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS[hopper].names, "_release", lambda *arguments: None)
    monkeypatch.setattr("kernels.gluon_emulator.PATIENCE", 0.5)
    flags: dict[str, Any] = {"SHUFFLE": 1, "SKIP": False, "KEEP": False, "DROPOUT": False, "SWAP": True}
    with pytest.raises(Deadlock):
        forward(FORMS[0][1], FORMS[0][0], ((1, 64),), **flags)


def test_the_emulator_sees_a_place_that_is_left_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    names = KERNELS[hopper_backward].names
    early = {**vars(names["tma"]), "store_wait": lambda outstanding: None}
    monkeypatch.setitem(names, "tma", SimpleNamespace(**early))
    with pytest.raises(AssertionError, match="a copy that nobody waits for"):
        list(backward(PRODUCT_FORMS[96], 96, 640, ADD=True, MORE=False, PRODUCT=True, SKIP=False, COPY=False))
