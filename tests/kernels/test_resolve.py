"""One place chooses the kernels, and says why where a choice cannot be met."""

from __future__ import annotations

import pytest
import torch

from riffle import ShuffleExchange
from riffle.kernels import resolve


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_cpu_uses_the_reference(backend: str) -> None:
    assert resolve(backend, torch.zeros(1)) == "reference"


@pytest.mark.gpu
def test_a_gpu_uses_the_fused_kernels() -> None:
    assert resolve("auto", torch.zeros(1, device="cuda", dtype=torch.bfloat16)) == "fused"
    assert resolve("auto", torch.zeros(1, device="cuda")) == "fused"
    assert resolve("auto", torch.zeros(1, device="cuda", dtype=torch.float64)) == "reference"
    assert resolve("reference", torch.zeros(1, device="cuda", dtype=torch.bfloat16)) == "reference"


def test_a_request_that_cannot_be_met_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"takes float32, bfloat16 or float16, got torch.float64"):
        resolve("fused", torch.zeros(1, dtype=torch.float64, device="cuda" if torch.cuda.is_available() else "cpu"))
    monkeypatch.setattr("riffle.kernels.INTERPRETED", False)
    with pytest.raises(ValueError, match=r"needs a CUDA tensor, got one on cpu"):
        resolve("fused", torch.zeros(1))
    monkeypatch.setattr("riffle.kernels.TRITON_VERSION", (3, 2))
    with pytest.raises(ValueError, match=r"needs Triton 3\.4 or later, found 3\.2"):
        resolve("fused", torch.zeros(1))
    assert resolve("auto", torch.zeros(1)) == "reference"
    monkeypatch.setattr("riffle.kernels.HAS_TRITON", False)
    with pytest.raises(ValueError, match=r"needs Triton, which is not installed"):
        resolve("fused", torch.zeros(1))


def test_ablated_units_have_no_fused_kernel() -> None:
    with pytest.raises(ValueError, match="unit 'two-fc' has no fused kernel"):
        ShuffleExchange(4, unit="two-fc", backend="fused")


def test_other_chips_widths_and_dtypes_take_the_other_kernels() -> None:
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    from riffle.kernels import tuning

    cells, cpu, cuda = 2**20, torch.device("cpu"), torch.device("cuda")
    for features, dtype, device in ((96, torch.bfloat16, cpu), (100, torch.bfloat16, cuda), (96, torch.float32, cuda)):
        assert tuning.layer_form(cells, features, dtype, device, keep=False) is None
        assert tuning.product_form(cells, features, dtype, device) is None
