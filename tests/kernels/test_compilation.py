"""What a network's passes launch is compiled before, all of it and nothing else, and with the same result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.plans import training_plan
from riffle import ShuffleExchange
from riffle.kernels import TRITON_VERSION

pytest.importorskip("triton", reason="Triton has no build for this platform")
if TRITON_VERSION < (3, 6):
    pytest.skip("needs Triton 3.6", allow_module_level=True)

from riffle.kernels import (
    compilation,
    gated_switch,
    hopper,
    hopper_backward,
    hopper_resident,
    hopper_wide,
    layer_backward,
    layer_plan,
    operator,
    residual,
    residual_switch,
    tuning,
)
from riffle.kernels.descriptors import TensorDescriptor
from riffle.kernels.plan import NetworkPlan, plan_network
from riffle.kernels.tuning import LayerForm, LayerRow, ProductForm, WideForm

CACHES = (
    tuning.find_layer_form, tuning.layer_form, tuning.product_form, tuning.wide_form, layer_plan.plan_layer,
    residual.plan_residual_layer,
)  # fmt: skip


class RecordedKernel:
    """A kernel that notes what it would be compiled for, and does nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def warmup(self, *arguments: Any, grid: Any, **constants: Any) -> None:
        self.compiled.append(signature(*arguments, **constants))

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **constants: self.launched.append(signature(*arguments, **constants))


def signature(*arguments: Any, **constants: Any) -> tuple[Any, ...]:
    """What Triton tells compiled kernels apart by; numbers are told from each other, which is more than it does."""
    kinds: list[Any] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            kinds.append((argument.dtype, argument.data_ptr() % 16))
        elif isinstance(argument, TensorDescriptor):
            base = (argument.base.dtype, argument.base.data_ptr() % 16)
            kinds.append((*base, *argument.shape, *argument.strides, *argument.block_shape, repr(argument.layout)))
        else:
            kinds.append(argument)
    return (*kinds, *sorted((name, repr(value)) for name, value in constants.items()))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RecordedKernel]]:
    """All kernels record, those for compute capability 9.0 as well, which serve 32, 128 or 384 features here."""
    modules: dict[ModuleType, tuple[str, ...]] = {
        gated_switch: (
            "skip_forward", "reset_forward", "update_forward", "switch_forward", "update_backward", "reset_backward",
            "skip_backward", "swap_gate_backward",
        ),
        residual_switch: (
            "features_switch", "features_forward", "features_backward", "sequence_forward", "sequence_backward",
            "residual_forward", "residual_backward",
        ),
        hopper: ("layer_forward",),
        hopper_backward: ("product_backward",),
        hopper_wide: ("gates_forward", "candidates_forward"),
        hopper_resident: ("layers_forward",),
    }  # fmt: skip
    kernels = []
    for module, names in modules.items():
        for name in names:
            kernels.append(RecordedKernel(name))
            monkeypatch.setattr(module, name, kernels[-1])
    layers = tuple(LayerRow(32, keep, 0, LayerForm(groups=2, stages=2)) for keep in (False, True))
    monkeypatch.setattr(tuning, "LAYER_ROWS", layers)
    monkeypatch.setattr(tuning, "PRODUCT_FORMS", {32: ProductForm(0, stages=2, step=32)})
    monkeypatch.setattr(tuning, "WIDE_FORMS", {384: (WideForm(fewest=0),)})
    monkeypatch.setattr(tuning, "RESIDENT_PAIRS", {128: 2**11})
    monkeypatch.setattr(tuning, "has_warpgroups", lambda device: True)
    for module in (tuning, hopper, hopper_backward, hopper_wide):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    for module in (layer_backward, residual):
        monkeypatch.setattr(module, "add_weight_gradient", lambda grad, read, out, fresh=False: None)
    for cache in (*CACHES, plan_network):
        cache.cache_clear()
    yield kernels
    for cache in (*CACHES, plan_network):
        cache.cache_clear()


COMPUTING = {"add_", "addmm", "addmm_", "bmm", "cat", "copy_", "empty_like", "mm", "sum"}
"""Operators of the passes that a dry run leaves out."""


class NotedOperators(TorchDispatchMode):
    """Notes the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.names.add(func.name().removeprefix("aten::").split(".")[0])
        return func(*args, **kwargs or {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="passes run on a CPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"features": 32, "blocks": 3},
        {"features": 32, "blocks": 2, "dropout": 0.1},
        {"features": 128, "blocks": 2},
        {"features": 384, "dropout": 0.1},
        {"features": 32, "noise": 0.1},
        {"features": 12, "blocks": 2, "pad": "even"},
        {"features": 32, "blocks": 2, "unit": "swap-gate", "dropout": 0.1},
        {"features": 8, "unit": "residual", "norm": "features"},
        {"features": 8, "unit": "residual", "norm": "sequence", "dropout": 0.1},
    ],
    ids=str,
)
def test_all_that_is_launched_is_compiled_before(
    recorded: list[RecordedKernel],
    options: dict[str, Any],
    recompute: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan_and_compile(
        xs: Any, form: Any, dtype: torch.dtype, dropout: float, noise: float, *rest: Any, **more: Any
    ) -> Any:
        assert not any(kernel.launched for kernel in recorded)
        plan = make_plan(xs, form, dtype, dropout, noise, *rest, **more)
        with NotedOperators() as noted:
            compilation.dry_run(plan, dropout=bool(dropout or noise))
        operators.update(noted.names)
        return plan

    operators: set[str] = set()
    make_plan = operator._plan
    monkeypatch.setattr(operator, "_plan", plan_and_compile)
    net = ShuffleExchange(**options, backend="fused", recompute=recompute, graphs=False).to(dtype)
    features = options["features"]
    lengths = ((16, 8), (16, 6), (30,)) if options.get("pad") == "even" else ((16, 8), (16, 5), (32,))
    for shapes in lengths:
        batch = 16 if features == 128 else 3
        xs = [torch.rand(batch, length, features, dtype=dtype) for length in shapes]
        for mode in (torch.enable_grad, torch.no_grad):
            for kernel in recorded:
                kernel.compiled, kernel.launched = [], []
            with mode():
                ys = net.forward_batches(xs)
            if mode is torch.enable_grad:
                torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
            assert any(kernel.launched for kernel in recorded)
            for kernel in recorded:
                assert set(kernel.compiled) == set(kernel.launched), kernel.name
                assert len(kernel.compiled) <= len(kernel.launched), kernel.name
    joined = next(kernel for kernel in recorded if kernel.name == "layers_forward")
    assert bool(joined.launched) == (features == 128 and dtype == torch.bfloat16)
    assert not operators & COMPUTING


@pytest.mark.skipif(torch.cuda.is_available(), reason="passes run on a CPU")
@pytest.mark.parametrize("unit", ["gated", "swap-gate", "residual"])
def test_a_batch_without_sequences_compiles_nothing(
    recorded: list[RecordedKernel], unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, make_plan = [], operator._plan
    monkeypatch.setattr(operator, "_plan", lambda *args, **more: plans.append(make_plan(*args, **more)) or plans[-1])
    for recompute in (True, False):
        net = ShuffleExchange(8, blocks=2, unit=unit, backend="fused", recompute=recompute, graphs=False)
        net(torch.zeros(0, 8, 8, requires_grad=True)).sum().backward()
    for plan in plans:
        compilation.dry_run(plan, dropout=False)
    assert len(plans) >= 2
    assert not any(kernel.compiled or kernel.launched for kernel in recorded)


# When


class Passes:
    """Stands for what compiles the passes of a plan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
        self.missing, self.plans = missing, list[Any]()
        monkeypatch.setattr(compilation, "compile_passes", self)
        plan_network.cache_clear()  # plans note that they are compiled
        monkeypatch.setattr(compilation, "_idle", type(compilation._idle)())
        monkeypatch.setattr(compilation, "INTERPRETED", False)
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def __call__(self, plan: NetworkPlan, *, dropout: bool) -> int:
        self.plans.append(plan)
        return self.missing

    def ask(self, *batches: int) -> int:
        """How many of the plans of these batches are compiled ahead."""
        before = len(self.plans)
        for batch in batches:
            plan = training_plan(features=8, blocks=1, batch=batch, length=4)
            compilation.compile_ahead(plan, torch.device("cuda"), dropout=False)
        return len(self.plans) - before


def test_a_plan_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch, missing=2)
    assert passes.ask(1, 1, 1) == 1
    assert passes.ask(2, 1, 2) == 1


def test_no_more_plans_when_nothing_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "MOST_IDLE", 3)
    passes = Passes(monkeypatch, missing=0)
    assert passes.ask(1, 2) == 2
    passes.missing = 1
    assert passes.ask(3) == 1
    passes.missing = 0
    assert passes.ask(4, 5, 6, 7, 8) == 3


def test_where_nothing_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch, missing=2)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert passes.ask(1) == 0
    assert passes.ask(1) == 1
    for name, value in (("INTERPRETED", True), ("TRITON_VERSION", (3, 5))):
        with monkeypatch.context() as patch:
            patch.setattr(compilation, name, value)
            assert passes.ask(2) == 0
            plan_network.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(compilation.triton, "AsyncCompileMode")
        assert passes.ask(2) == 0


# By Triton


def run_script(script: str, folder: Path) -> str:
    """What a script prints that has an empty cache, and no interpreter of kernels."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    tests = Path(__file__).parents[1]
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


COMPILE = """
import sys, warnings
import triton
from triton.runtime import driver
from kernels.plans import NoLauncher, training_plan
from riffle.kernels import gated_switch
from riffle.kernels.compilation import compile_passes, dry_run

driver.set_active(NoLauncher())
events = []
triton.knobs.runtime.jit_post_compile_hook = lambda **event: events.append(event["fn"].name.split(".")[-1])
plan, filters = training_plan(16, 1, 2, 8), list(warnings.filters)
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
FAILING = """
kernel = gated_switch.update_forward
kernel.device_caches[0]  # which sets the next line's attribute
def fail(*arguments, **options):
    raise ValueError("no such instruction")
kernel.compile = fail
count = compile_passes(plan, dropout=False, threads=4)
assert 0 < len(events) < count and "update_forward" not in events, events
try:
    dry_run(plan, dropout=False)
except ValueError as error:
    print(error)
"""


def binaries(folder: Path) -> dict[Path, bytes]:
    """The kernels in a cache."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.cubin")}


def test_the_same_kernels_side_by_side_as_one_by_one(tmp_path: Path) -> None:
    run_script(COMPILE + SIDE_BY_SIDE, tmp_path / "threads")
    run_script(COMPILE + ONE_BY_ONE, tmp_path / "alone")
    assert binaries(tmp_path / "threads") == binaries(tmp_path / "alone") != {}


def test_an_error_is_that_of_the_launch(tmp_path: Path) -> None:
    assert "no such instruction" in run_script(COMPILE + FAILING, tmp_path)


STEP = """
import hashlib
import torch
import triton
from kernels.plans import training_plan
from riffle import ShuffleExchange
from riffle.kernels import compilation

compilation.MOST_IDLE = MOST_IDLE
launched, ahead = [], []
def note(**event):
    (ahead if event["is_manual_warmup"] else launched).append(event["fn"].name)
triton.knobs.runtime.jit_post_compile_hook = note
torch.manual_seed(0)
for options in (dict(features=192, blocks=2), dict(features=32, unit="residual", dropout=0.1)):
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


@pytest.mark.gpu
def test_a_step_is_the_same_however_its_kernels_were_compiled(tmp_path: Path) -> None:
    """With empty caches, bit for bit; what was compiled ahead is all that was."""
    ahead = run_script(f"MOST_IDLE = 16\n{STEP}", tmp_path / "ahead")
    launched = run_script(f"MOST_IDLE = 0\n{STEP}", tmp_path / "launched")
    assert ahead == launched
