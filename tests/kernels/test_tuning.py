"""The table of kernel forms: which is taken where, and that all of them fit into a multiprocessor."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from kernels.test_hopper import FORMS, table
from riffle.kernels import TRITON_VERSION, layer_plan, tuning
from riffle.kernels.tuning import (
    PRODUCT_FORMS,
    LayerForm,
    ProductForm,
    layer_form,
    product_form,
)

__all__ = ["table"]  # the fixture that sets the table


def test_other_chips_widths_and_dtypes_take_the_other_kernels() -> None:
    device = torch.device("cpu")
    assert layer_form(2**20, 96, torch.bfloat16, device, keep=False) is None
    assert product_form(2**20, 96, torch.bfloat16, device) is None
    assert tuning.wide_form(2**20, 384, torch.bfloat16, device) is None
    for features, dtype in ((100, torch.bfloat16), (96, torch.float32)):
        assert layer_form(2**20, features, dtype, torch.device("cuda"), keep=False) is None
        assert product_form(2**20, features, dtype, torch.device("cuda")) is None


@pytest.mark.parametrize(("features", "form"), FORMS, ids=str)
def test_the_forms_fit(features: int, form: LayerForm) -> None:
    """Places divide the products' weights, and what lies in shared memory fits into a multiprocessor's."""
    chunk = form.chunk(features)
    out, parts = chunk // 2, 2 * features // chunk
    last = features // out // (1 if form.ways == 1 else 2)
    assert parts % form.split == 0
    assert form.ways > 1 or (parts + last) * form.split % form.stages == 0
    weights = form.stages * (parts // form.split) * chunk**2 * 2
    pairs = form.groups * 64 * 2 * features * 2 if form.shared else 0
    kept = form.groups * 64 * chunk * 2
    assert weights + pairs + kept + 4 * 8 * features < 226 * 1024


@pytest.mark.skipif(TRITON_VERSION < (3, 6), reason="needs Triton 3.6")
@pytest.mark.parametrize(("features", "form"), PRODUCT_FORMS.items(), ids=str)
def test_the_forms_of_the_way_back_fit(features: int, form: ProductForm) -> None:
    from riffle.kernels.hopper_backward import constants

    assert features % form.step == 2 * features % form.chunk == 0
    block = 64 * form.chunk * 2
    for add, more, skip, copy in ((1, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 1), (1, 1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 0)):
        flags = {"ADD": add, "MORE": more, "PRODUCT": 1, "SKIP": skip, "COPY": copy, "PDL": 0}
        found = constants(form, features, **{name: bool(flag) for name, flag in flags.items()})
        blocks = form.stages * found.BLOCKS.value + found.FREE.value  # type: ignore[attr-defined]
        assert 2 * features * (form.chunk + 64) * 2 + blocks * block < 226 * 1024
        places = [found.SUM.value, found.PRODUCT_0.value, found.PRODUCT_1.value]  # type: ignore[attr-defined]
        assert len(set(places)) == 3, "each leaves by a block of its own"
        assert (0 in places) == (not copy), "and what was read stays where it is copied from"


def test_layers_whose_sums_lie_elsewhere_share_no_products() -> None:
    plans = [
        layer_plan.plan_layer(
            (1,), (8,), (0.0,), 8, torch.float32, torch.device("cpu"), shuffle=1, swap=True, keep=False
        )
    ] * 4
    plans[1:3] = [plan._replace(sum_rows=12) for plan in plans[1:3]]
    shares = layer_plan.share_gradients(plans, ["unit"] * 4)
    assert [share.number for share in shares] == [0, 1, 1, 2]
    assert shares[1].sums == shares[2].sums == (12, 12)
