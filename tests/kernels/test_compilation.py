"""What a network's passes launch is compiled before the first launch, side by side, with the same result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from riffle.kernels import TRITON_VERSION

pytest.importorskip("triton", reason="Triton has no build for this platform")
if TRITON_VERSION < (3, 6):
    pytest.skip("needs Triton 3.6", allow_module_level=True)


def run_script(script: str, folder: Path) -> str:
    """What a script prints that has an empty cache, and no interpreter of kernels."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


COMPILE = """
import sys, warnings
import torch, triton
from triton.runtime import driver
from research.bench.kernel_resources import NO_DEVICE
from riffle import ShuffleExchange
from riffle.kernels import gated_switch
from riffle.kernels.compilation import compile_passes, dry_run
from riffle.kernels.plan import KEEP_GATES, plan_network

NO_DEVICE.launcher_cls = lambda source, metadata: None
driver.set_active(NO_DEVICE)
events = []
triton.knobs.runtime.jit_post_compile_hook = lambda **event: events.append(event["fn"].name.split(".")[-1])
cpu, half = torch.device("cpu"), torch.bfloat16
plan = plan_network((2,), (8,), 16, torch.float32, cpu, ShuffleExchange(16).spec, half, 0.0, 0.0, KEEP_GATES, True)
filters = list(warnings.filters)
"""
SIDE_BY_SIDE = """
assert compile_passes(plan, dropout=False, threads=4) == len(events) > 4
assert compile_passes(plan, dropout=False, threads=4) == 0
assert warnings.filters == filters
assert "torch._dynamo" not in sys.modules and "sympy" not in sys.modules
"""
ONE_BY_ONE = """
dry_run(plan, dropout=False)
"""


def binaries(folder: Path) -> dict[Path, bytes]:
    """The kernels in a cache."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.cubin")}


def test_the_same_kernels_side_by_side_as_one_by_one(tmp_path: Path) -> None:
    run_script(COMPILE + SIDE_BY_SIDE, tmp_path / "threads")
    run_script(COMPILE + ONE_BY_ONE, tmp_path / "alone")
    assert binaries(tmp_path / "threads") == binaries(tmp_path / "alone") != {}


STEP = """
import hashlib
import torch
import triton
from riffle import ShuffleExchange
from riffle.kernels import compilation

compilation.MOST_IDLE = MOST_IDLE
launched, ahead = [], []
def note(**event):
    (ahead if event["is_manual_warmup"] else launched).append(event["fn"].name)
triton.knobs.runtime.jit_post_compile_hook = note
torch.manual_seed(0)
for options in (dict(features=192, blocks=2), dict(features=32, unit="residual", dropout=0.1), *MORE):
    net = ShuffleExchange(**options, graphs=False).cuda()
    x = torch.randn(8, 1024, options["features"], device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = net(x)
    y.float().square().sum().backward()
    for tensor in (y, x.grad, *[p.grad for p in net.parameters() if p.grad is not None]):
        print(hashlib.sha256(tensor.detach().float().cpu().numpy().tobytes()).hexdigest())
compiled, other = (ahead, launched) if MOST_IDLE else (launched, ahead)
assert len(compiled) > 8 and not other, (ahead, launched)
"""
MORE = [
    {"features": 64, "unit": "swap-gate", "noise": 0.1},
    {"features": 12, "blocks": 2, "pad": "even"},
    {"features": 384, "blocks": 2, "recompute": False},
]
"""Networks whose kernels are compiled ahead as well; that they compute the same is tested of the first two."""


@pytest.mark.gpu
def test_a_step_is_the_same_however_its_kernels_were_compiled(tmp_path: Path) -> None:
    """With empty caches, bit for bit; what was compiled ahead is all that was."""
    ahead = run_script(f"MOST_IDLE, MORE = 16, []\n{STEP}", tmp_path / "ahead")
    launched = run_script(f"MOST_IDLE, MORE = 0, []\n{STEP}", tmp_path / "launched")
    assert ahead == launched


@pytest.mark.gpu
def test_all_that_is_launched_is_compiled_before(tmp_path: Path) -> None:
    run_script(f"MOST_IDLE, MORE = 16, {MORE}\n{STEP}", tmp_path)
