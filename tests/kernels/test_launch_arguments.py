"""Kernels that are started by Triton's launcher in C get what Triton's own launch would give them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from riffle.kernels import TRITON_VERSION

if TRITON_VERSION < (3, 6):
    pytest.skip("needs Triton 3.6", allow_module_level=True)

import triton
from triton.backends.nvidia import driver

from riffle.kernels import launches
from riffle.kernels.descriptors import Constants, DescriptorLaunch, Matrix
from riffle.kernels.launches import Launch, direct_launcher

DESCRIPTOR = "tensordesc<bf16[64,64],NVMMASharedLayout()>"


class Recorded:
    """A launcher whose part in C notes what it gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, signature: dict[str, str], described: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        module = SimpleNamespace(launch=lambda *arguments: self.calls.append(arguments))
        utils = SimpleNamespace(fill_tma_descriptor=lambda *what: f"descriptor {what}")
        monkeypatch.setattr(driver, "compile_module_from_src", lambda **options: module)
        monkeypatch.setattr(driver, "library_dirs", lambda: [])
        monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(utils=utils))
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
        kind = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [64, 64], "fp4_padded": False}
        sizes = {f"{name}_scratch_{what}": 0 for name in ("global", "profile") for what in ("size", "align")}
        metadata = SimpleNamespace(tensordesc_meta=[kind] * described, num_ctas=1, **sizes)
        metadata.launch_cooperative_grid, metadata.launch_pdl = False, True
        source = SimpleNamespace(signature=signature, constants={}, fn=SimpleNamespace(arg_names=list(signature)))
        self.launcher = driver.CudaLauncher(source, metadata)
        self.compiled = SimpleNamespace(run=self.launcher, function=11, packed_metadata=(4, 1, 1000), metadata=metadata)

    def install(self, launch: Launch, *constants: Any) -> None:
        """As after a first call."""
        launch.compiled, launch.trailing = self.compiled, (*launch.numbers, *constants)
        launch.start = direct_launcher(self.launcher)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = {
        "p_x": "*bf16",
        "p_none": "constexpr",
        "p_y": "*fp32",
        "n": "i32",
        "starts": ("i32", "i32"),
        "D": "constexpr",
    }
    recorded = Recorded(monkeypatch, signature, 0)
    launch = Launch("kernel", (5, 2), 640, (1, 3), D=8)
    recorded.install(launch, 8)
    x, y = torch.zeros(8), torch.zeros(8)
    for _ in range(2):
        launch(x, None, y)
    recorded.launcher(5, 2, 1, 77, 11, (4, 1, 1000), None, None, None, x.data_ptr(), None, y.data_ptr(), 640, (1, 3), 8)
    assert recorded.calls[0] == recorded.calls[1] == recorded.calls[2]


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = {
        "d_x": DESCRIPTOR,
        "d_none": "constexpr",
        "d_y": DESCRIPTOR,
        "p_z": "*fp32",
        "n": "i32",
        "FORM": "constexpr",
    }
    recorded = Recorded(monkeypatch, signature, 2)
    matrices = [Matrix(640, 384, 64, 64), Matrix(640, 768, 64, 64), Matrix(384, 384, 64, 64)]
    form = Constants(D=8)
    launch = DescriptorLaunch(launches, "kernel", (5,), matrices, torch.bfloat16, 640, FORM=form)
    recorded.install(launch, form)
    x, y, z = (torch.zeros(8) for _ in range(3))
    for _ in range(2):
        launch(x, None, y, z)
    described = launch._arguments((x, None, y, z))[:3]
    recorded.launcher(5, 1, 1, 77, 11, (4, 1, 1000), None, None, None, *described, z.data_ptr(), 640, form)
    assert recorded.calls[0] == recorded.calls[1] == recorded.calls[2]
    assert len(launch.described) == 1
    launch(y, None, x, z)
    assert len(launch.described) == 2
    assert recorded.calls[3][13] != recorded.calls[0][13], "another place, another descriptor"


def test_launchers_of_other_versions_are_called_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch, {"p_x": "*bf16", "n": "i32"}, 0)
    assert direct_launcher(recorded.launcher) is not None
    monkeypatch.setattr(driver, "_BASE_ARGS_FORMAT", "iii")
    assert direct_launcher(recorded.launcher) is None
    launch = Launch("kernel", (5,), 640)
    recorded.install(launch)
    launch.start = launch.compiled.run
    launch(torch.zeros(8))
    assert len(recorded.calls) == 1
