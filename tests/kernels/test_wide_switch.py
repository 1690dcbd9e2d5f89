"""Products with epilogues, for wide units: on a GPU with warpgroup products, elsewhere by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.test_fused import assert_as_accurate
from kernels.test_hopper import BINS, draw_layer, on_hopper, plan_of, run
from riffle import ShuffleExchange
from riffle.kernels import tuning
from riffle.kernels.descriptors import DescriptorLaunch
from riffle.kernels.launches import Launch
from riffle.kernels.layer_plan import plan_layer
from riffle.kernels.plan import plan_network
from riffle.kernels.tuning import WIDE_FORMS, ProductBlocks, WideForm

SMALL = ProductBlocks(16, 64, step=32), ProductBlocks(16, 32, step=32, band=2)
"""For units of 32 features."""


def clear_caches() -> None:
    for cache in (tuning.find_layer_form, tuning.layer_form, tuning.wide_form, plan_layer, plan_network):
        cache.cache_clear()


@pytest.fixture
def _only_wide(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuning, "LAYER_ROWS", ())
    monkeypatch.setattr(tuning, "PRODUCT_FORMS", {})
    clear_caches()
    yield
    monkeypatch.undo()
    clear_caches()


@pytest.mark.skipif(torch.cuda.is_available(), reason="by Triton's interpreter")
@pytest.mark.usefixtures("_only_wide")
@pytest.mark.parametrize("update", [SMALL[1], None], ids=["two launches", "the library's candidates"])
@pytest.mark.parametrize(("blocks", "shape"), [(1, (3, 16)), (2, (5, 10))])
def test_a_network_by_the_interpreter(
    update: ProductBlocks | None, blocks: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skip connections, tiles that are not full, sequences that are padded; as exact as eager PyTorch."""
    launched = []
    start = Launch._run

    def run_plainly(launch: Launch, tensors: Sequence[Tensor | None]) -> None:
        launched.append(launch.kernel)
        # The interpreter has no assembly, and runs one launch after the other.
        launch.constants.update(FAST=False, PDL=False)
        start(launch, tensors)

    def describe(launch: DescriptorLaunch, tensors: Sequence[Tensor | None]) -> Sequence[Any]:
        # The interpreter wants the tensors themselves.
        matrices = zip(tensors, launch.matrices, strict=False)
        described = [TensorDescriptor(x, [rows, width], [width, 1], block) for x, (rows, width, *block) in matrices]
        return [*described, *tensors[len(described) :]]

    monkeypatch.setattr(Launch, "_run", run_plainly)
    monkeypatch.setattr(DescriptorLaunch, "_arguments", describe)
    monkeypatch.setattr(tuning, "has_warpgroups", lambda device: True)
    monkeypatch.setattr(tuning, "WIDE_FORMS", {32: (WideForm(0, SMALL[0], update),)})
    torch.manual_seed(0)
    # In float16: to bfloat16 the interpreter does not round.
    options: dict[str, Any] = {"features": 32, "blocks": blocks}
    ours = ShuffleExchange(backend="fused", dtype=torch.float16, **options)
    eager, exact = (
        ShuffleExchange(backend="reference", dtype=dtype, **options) for dtype in (torch.float16, torch.float64)
    )
    for net in (eager, exact):
        net.load_state_dict(ours.state_dict())
    x_BND = torch.rand(*shape, 32).mul(2).sub(1).half()
    with torch.no_grad():
        results = ours(x_BND), eager(x_BND), exact(x_BND.double())
    assert_as_accurate("y", *results)
    assert "reset_product" in launched
    assert ("update_product" in launched) == (update is not None)
    assert ("reset_forward" in launched) is False


FORMS = [(features, form) for features, forms in WIDE_FORMS.items() for form in forms]


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_only_wide")
@pytest.mark.parametrize(("features", "form"), FORMS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_layer_is_as_exact_as_eager(
    features: int, form: WideForm, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    for update in {form.update, None}:
        forms = {features: (form._replace(fewest=0, update=update),)}
        monkeypatch.setattr(tuning, "WIDE_FORMS", forms)
        clear_caches()
        for shuffle, skip, bins in ((1, False, BINS), (-1, True, BINS), (0, False, ((2, 2048),))):
            layer = draw_layer(features, sum(count * length for count, length in bins), dtype, skip=skip)
            plan = plan_of(layer, bins, shuffle=shuffle, keep=False)
            assert plan.reset_product is not None
            actual = run(plan, layer)
            exact, eager = (layer.expected(kind, bins, shuffle)[0] for kind in (torch.float64, dtype))
            assert_as_accurate(f"{shuffle} {skip} {update}", actual, eager, exact)


@pytest.mark.gpu
@on_hopper
@pytest.mark.usefixtures("_only_wide")
@pytest.mark.parametrize(("features", "form"), FORMS, ids=str)
def test_dropout_drops_what_the_other_kernels_drop(
    features: int, form: WideForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = draw_layer(features, sum(count * length for count, length in BINS), torch.bfloat16, skip=False)
    results = []
    for forms in ({features: (form._replace(fewest=0),)}, {}):
        monkeypatch.setattr(tuning, "WIDE_FORMS", forms)
        clear_caches()
        plan = plan_of(layer, BINS, shuffle=1, keep=False, rate=0.25)
        assert (plan.reset_product is None) == (not forms)
        results.append(run(plan, layer, seed=torch.tensor([12345, 67], device="cuda")))
    ours, theirs = results
    assert 0.2 < (ours == 0).float().mean() < 0.3
    assert torch.equal(ours == 0, theirs == 0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.03)
