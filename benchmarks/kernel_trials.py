"""Choose among kernels on a GPU of compute capability 9.0: check each form, then time layers and whole networks.

    python benchmarks/kernel_trials.py RESULT.json --seconds 95
    python benchmarks/kernel_trials.py RESULT.json --rows step-1k call-4k --settings library library+joint2+dependent

A setting is the library's table of ``riffle/kernels/tuning.py``, or what it was before (``before``), with changes
joined by ``+`` (:data:`CHANGES`). First, processes side by side compile every form and compare a layer, forward and
with every gradient, with the definition in float64: a form that is less exact than twice eager PyTorch, or that hangs,
is timed nowhere. Then layers and networks are timed in one process, the important rows first, each setting after the
other. A row that fails does not stop the others, what was measured is written when time is up, and a table is printed
at the end.
"""

# C = cells, D = features per cell, E = 2 * D features per pair, P = pairs
from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.bench.jobs import JOBS, Job
from riffle.bench.measure import relative_error
from riffle.bench.own_loop import OWN_LOOP_JOBS
from riffle.bench.timing import free_memory, repeat, time_call, time_loop
from riffle.bench.workloads import Form, Workload
from riffle.environment import environment
from riffle.files import write_json
from riffle.kernels import reference, tuning
from riffle.kernels.launches import Kept, Workspace, forward_layer, unit_weights
from riffle.kernels.layer_backward import SkipGradient, UnitGradients, backward_layer
from riffle.kernels.layer_plan import LayerPlan, plan_layer, share_gradients
from riffle.kernels.plan import plan_network
from riffle.kernels.tuning import LayerForm, LayerRow, ProductForm
from riffle.shuffle import SHUFFLES

DEVICE, DTYPE = torch.device("cuda", 0), torch.bfloat16
PATIENCE = 10.0
"""Seconds after which a layer hangs."""
LAYER_TRIALS: dict[str, tuple[int, LayerForm]] = {
    "loop": (192, LayerForm(groups=2, stages=6, split=3, shared=True, unroll=1)),
    "joint2": (192, LayerForm(groups=1, rows=128, stages=6, split=3, shared=True, unroll=2)),
    "joint3": (192, LayerForm(groups=1, rows=128, stages=6, split=3, shared=True, unroll=3)),
    "whole2": (192, LayerForm(groups=1, rows=128, stages=2, shared=True, unroll=2)),
    "ways4": (192, LayerForm(groups=1, stages=6, split=3, shared=True, ways=4)),
    "ways2": (192, LayerForm(groups=1, stages=6, split=3, shared=True, ways=2)),
    "joint96": (96, LayerForm(groups=1, rows=128, stages=6)),
}
"""Forms of the layer as one launch that are not in the table for what they are tried for."""
PRODUCT_TRIALS: dict[int, ProductForm] = {
    64: ProductForm(fewest=2**13, stages=4, step=64),
    128: ProductForm(fewest=2**13, stages=3, step=64),
}
BEFORE = tuple(
    row._replace(form=row.form._replace(unroll=None))
    for row in tuning.LAYER_ROWS
    if (row.features, row.keep) != (96, True)
)
"""The rows without what was added; kept gates then left the chip by ordinary stores, which no kernel here does."""


class Setting(NamedTuple):
    """What :mod:`riffle.kernels.tuning` has."""

    rows: tuple[LayerRow, ...] = tuning.LAYER_ROWS
    products: dict[int, ProductForm] = tuning.PRODUCT_FORMS
    dependent: bool = tuning.DEPENDENT_LAUNCH
    numbers_a_warp: int = tuning.NUMBERS_A_WARP
    aside: bool = tuning.PRODUCTS_ASIDE


def _with_form(name: str, keep: bool, fewest: int, setting: Setting, skip: bool | None = None) -> Setting:
    features, form = LAYER_TRIALS[name]
    row = LayerRow(features, keep, fewest, form, skip)
    # Forms for few pairs come before those for many, of which the last that fits is taken.
    return setting._replace(rows=(row, *setting.rows) if form.ways > 1 else (*setting.rows, row))


CHANGES: dict[str, Callable[[Setting], Setting]] = {
    "before": lambda setting: Setting(BEFORE, {}),
    "library": lambda setting: Setting(),
    "other": lambda setting: Setting((), {}),
    "dependent": lambda setting: setting._replace(dependent=True),
    "inline": lambda setting: setting._replace(aside=False),
    "warps": lambda setting: setting._replace(numbers_a_warp=256),
    "spare": lambda setting: setting._replace(
        products={features: form._replace(spare=12) for features, form in setting.products.items()}
    ),
    "products": lambda setting: setting._replace(products=setting.products | PRODUCT_TRIALS),
    **{name: partial(_with_form, name, True, 2**13) for name in ("loop", "joint2", "joint3", "whole2")},
    **{f"{name}-skip": partial(_with_form, name, True, 2**13, skip=True) for name in ("loop", "joint2", "whole2")},
    **{f"{name}-free": partial(_with_form, name, False, 2**13) for name in ("joint2", "joint3", "whole2")},
    **{name: partial(_with_form, name, False, 512) for name in ("ways4", "ways2")},
    "joint96": lambda setting: _with_form("joint96", True, 2**12, _with_form("joint96", False, 2**12, setting)),
}
"""What a part of a setting's name does: forms by their names for kept gates, with "-skip" only where there is a skip
connection, with "-free" where gates are not kept; "ways" for few pairs; "inline" without a second stream for the
weights' products, "spare" with some multiprocessors for it; "other" has no kernels for this chip at all."""
CACHES = (tuning.find_layer_form, tuning.layer_form, tuning.product_form, tuning.pass_blocks, plan_layer, plan_network)


def use(name: str) -> None:
    """Let the library plan by a setting."""
    setting = Setting()
    for change in name.split("+"):
        setting = CHANGES[change](setting)
    tuning.LAYER_ROWS, tuning.PRODUCT_FORMS = setting.rows, setting.products
    tuning.DEPENDENT_LAUNCH, tuning.NUMBERS_A_WARP = setting.dependent, setting.numbers_a_warp
    tuning.PRODUCTS_ASIDE = setting.aside
    for cache in CACHES:
        cache.cache_clear()


# Layers


class Layer:
    """A layer with random weights and cells, forward and back."""

    def __init__(self, features: int, pairs: int, *, skip: bool, device: torch.device) -> None:
        torch.manual_seed(0)
        self.features, self.pairs, self.device = features, pairs, device
        pair, cells = 2 * features, 2 * pairs
        scale = torch.randn(features, device=device) if skip else None
        matrices = self.draw(3 * pair, pair, scale=pair**-0.5), self.draw(2, features, pair, scale=pair**-0.5)
        self.weights = unit_weights(matrices[0], self.draw(3 * pair), matrices[1], self.draw(2, features), scale)
        self.x, self.grad = self.draw(cells, features).clamp(-1, 1), self.draw(cells, features)
        self.skip = self.draw(cells, features).clamp(-1, 1) if skip else None
        self.out, self.workspace = torch.full_like(self.x, float("nan")), Workspace(self.x)
        self.grad_x, self.grad_skip = torch.full_like(self.x, float("nan")), torch.full_like(self.x, float("nan"))
        self.gates: Tensor | None = None

    def draw(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers."""
        return (scale * torch.randn(*shape, device=self.device)).to(DTYPE)

    def plan(self, *, keep: bool, shuffle: int) -> LayerPlan:
        """By the present setting."""
        if keep and self.gates is None:
            self.gates = self.x.new_full((self.pairs, 6 * self.features), float("nan"))
        return plan_layer(
            (1,), (2 * self.pairs,), (0.0,), self.features, DTYPE, self.device,
            shuffle=shuffle, swap=True, keep=keep, skip=self.skip is not None, first=False,
        )  # fmt: skip

    def forward(self, plan: LayerPlan) -> None:
        """Fill the output, and the gates where they are kept."""
        kept = Kept(self.gates, None) if plan.keep and self.gates is not None else None
        forward_layer(plan, self.x, self.skip, self.weights, None, self.workspace, kept=kept, out_CD=self.out)

    def backward(self, plan: LayerPlan, layers: int = 1, more: bool = False) -> list[Tensor]:
        """All gradients, of as many layers as share products, one after the other."""
        weights, features = self.weights, self.features
        gradients = UnitGradients(
            torch.zeros_like(weights.gates, dtype=torch.float32),
            torch.zeros_like(weights.candidates, dtype=torch.float32),
            torch.zeros(8 * features, device=self.device),
            None if weights.skip_scale is None else torch.zeros_like(weights.skip_scale),
        )
        kept = Kept(self.gates, None) if plan.keep and self.gates is not None else None
        scale = torch.zeros(features, device=self.device)
        for share in share_gradients([plan] * layers, ["unit"] * layers):
            backward_layer(
                plan, self.grad, self.x, self.out, self.skip, weights, None, self.workspace, kept=kept, share=share,
                gradients=gradients, grad_CD=self.grad_x, grad_skip_CD=None if self.skip is None else self.grad_skip,
                skip_gradient=SkipGradient(self.grad, scale, scale) if more and self.skip is None else None,
            )  # fmt: skip
        biases = gradients.biases.split([6 * features, 2 * features])
        matrices = [gradients.gates, biases[0], gradients.candidates, biases[1].view(2, features)]
        found = [self.grad_x, *(gradient / layers for gradient in matrices)]
        if self.skip is not None and gradients.skip_scale is not None:
            found += [self.grad_skip, gradients.skip_scale / layers]
        return found

    def definition(self, dtype: torch.dtype, shuffle: int) -> list[Tensor]:
        """Output and gradients by plain PyTorch."""
        w = self.weights
        tensors = [self.x, w.gates, w.gates_bias, w.candidates, w.candidates_bias]
        if self.skip is not None and w.skip_scale is not None:
            tensors += [self.skip, w.skip_scale]
        leaves = [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]
        shape = self.pairs, 2 * self.features
        skip_PE = (leaves[5] * leaves[6]).view(shape) if len(leaves) > 5 else None
        y_PE = reference.gated_switch(leaves[0].view(shape), reference.SwitchWeights(*leaves[1:5]), skip_PE)
        y_CD = SHUFFLES[shuffle](y_PE.view(1, *self.x.shape)).reshape(self.x.shape)
        return [y_CD.detach(), *torch.autograd.grad(y_CD, leaves, self.grad.to(dtype))]


def check_layer(setting: str, features: int, pairs: int, *, keep: bool, skip: bool, shuffle: int) -> dict[str, Any]:
    """Compare a layer with the definition; also compiles what the rows below launch."""
    use(setting)
    layer = Layer(features, pairs, skip=skip, device=DEVICE)
    plan = layer.plan(keep=keep, shuffle=shuffle)
    layers = 2 if 2 * pairs <= tuning.GRADIENT_PAIRS else 1
    layer.forward(plan)
    if not skip:
        layer.backward(plan, layers=layers, more=True)
    actual = [layer.out, *layer.backward(plan, layers=layers)]
    wait()
    exact, eager = (layer.definition(dtype, shuffle) for dtype in (torch.float64, DTYPE))
    errors = [relative_error(*pair) for pair in zip(actual, exact, strict=True)]
    allowed = [max(2 * relative_error(*pair), 1e-6) for pair in zip(eager, exact, strict=True)]
    return {"errors": errors, "allowed": allowed, "passed": all(e <= a for e, a in zip(errors, allowed, strict=True))}


def wait() -> None:
    """For the device, but not forever."""
    event, end = torch.cuda.Event(), time.monotonic() + PATIENCE
    event.record()
    while not event.query():
        if time.monotonic() > end:
            raise Hang(f"no end after {PATIENCE:.0f} seconds")
        time.sleep(0.002)


class Hang(RuntimeError):
    """A kernel that does not end: the process can do nothing else any more."""


MANY = 40960
"""Pairs from which on the passes have the tiles that they have for many, and every layer its own products."""


class Check(NamedTuple):
    """A layer that is compared with the definition before a setting is timed."""

    setting: str
    features: int
    pairs: int
    keep: bool
    skip: bool
    shuffle: int

    @property
    def name(self) -> str:
        """In words."""
        flags = f"{'keep ' * self.keep}{'skip ' * self.skip}{self.shuffle:+d}"
        return f"{self.setting}: {self.features} maps, {self.pairs} pairs, {flags}"


def checks() -> list[Check]:
    """Of every form and change, those first that most rows need."""
    found = []
    for shuffle in (1, -1, 0):
        for setting in (
            "library",
            "loop",
            "joint2",
            "joint3",
            "whole2",
            "before",
            "library+dependent",
            "library+warps",
        ):
            for skip in (True, False) if shuffle or setting in ("library", "before") else (True,):
                found.append(Check(setting, 192, 2**14, True, skip, shuffle))
        for setting in ("ways4", "ways2", "before", "ways4+dependent"):
            found += [
                Check(setting, 192, 2**11, False, skip, shuffle) for skip in ((True, False) if shuffle else (True,))
            ]
        for setting in ("library", "before", "joint2-free", "joint3-free"):
            found.append(Check(setting, 192, MANY, False, False, shuffle))
        found.append(Check("library", 192, MANY, False, True, shuffle))
        for setting in ("library", "joint96"):
            found += [Check(setting, 96, MANY, keep, False, shuffle) for keep in (False, True)]
    found.append(Check("library+spare", 192, 2**14, True, False, 1))
    for setting in ("library", "joint2"):
        found += [Check(setting, 192, 2**13, True, False, shuffle) for shuffle in (1, -1)]
    found += [Check("products", features, 2**14, True, False, 1) for features in PRODUCT_TRIALS]
    return found


def run_checks(part: int, parts: int) -> None:
    """Every so many of the checks, a line of JSON for each."""
    for check in checks()[part::parts]:
        try:
            result = check_layer(*check[:3], keep=check.keep, skip=check.skip, shuffle=check.shuffle)
        except Exception as error:
            result = {"passed": False, "failed": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps({"check": check.name, "setting": check.setting, **result}), flush=True)
        if result.get("failed", "").startswith("Hang"):
            os._exit(1)
        torch.cuda.empty_cache()


def check_all(seconds: float, parts: int) -> tuple[list[dict[str, Any]], set[str]]:
    """All checks in processes side by side; their results, and the changes that must not be timed."""
    command = [sys.executable, __file__, "-", "--check"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    options["env"] = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([*command, str(part), str(parts)], **options) for part in range(parts)]
    end, results, bad = time.monotonic() + seconds, [], set()
    for part, process in enumerate(started):
        try:
            output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        results += lines
        # What there was no time for is compiled when it is timed.
        missing = checks()[part::parts][len(lines) :]
        results += [{"check": check.name, "setting": check.setting, "passed": None} for check in missing]
    for result in results:
        if result["passed"] is False:
            bad |= set(result["setting"].split("+")) - ({"library"} if "+" in result["setting"] else set())
    return results, bad


# Times


def microseconds(call: Callable[[], object]) -> float:
    """Of one call among many in a CUDA graph, the median of five replays."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        call()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    calls = max(2, min(100, int(8 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for _ in range(6):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * begin.elapsed_time(end) / calls)
    return round(statistics.median(times[1:]), 2)


def time_layer(features: int, pairs: int, keep: bool, skip: bool, back: bool, setting: str) -> dict[str, Any]:
    """One layer forward, or on its way back as one of those that share products."""
    use(setting)
    layer = Layer(features, pairs, skip=skip, device=DEVICE)
    plan = layer.plan(keep=keep, shuffle=1)
    layer.forward(plan)
    layers = max(1, min(4, tuning.GRADIENT_PAIRS // pairs))
    if not back:
        return {"microseconds": microseconds(lambda: layer.forward(plan))}
    return {"microseconds": round(microseconds(lambda: layer.backward(plan, layers=layers)) / layers, 2)}


def time_network(workload: Workload, form: Form, setting: str, state: dict[str, Any]) -> dict[str, Any]:
    """A whole network; results are compared with those of the setting before."""
    use(setting)
    kind = (JOBS | OWN_LOOP_JOBS)[workload.kind]
    job: Job = kind.build(workload, form, DEVICE)
    repeat(job.call, job.first_calls)
    entry: dict[str, Any] = {}
    results = job.results() if workload.kind != "training step" else None
    if results is not None:
        if "results" in state:
            pairs = [(name, results[name], state["results"][name]) for name in results]
            entry["differences"] = {name: float(f"{relative_error(ours, theirs):.3g}") for name, ours, theirs in pairs}
        else:
            state["results"] = {name: result.clone() for name, result in results.items()}
        del results
    timing, peak = (time_loop if job.loop else time_call)(job.call, DEVICE, quick=True)
    entry |= {"milliseconds": round(timing.median, 4), "fastest": round(timing.fastest, 4)}
    return entry | {"gigabytes": None if peak is None else round(peak / 1e9, 2)}


def profile_step(workload: Workload, form: Form, setting: str) -> dict[str, Any]:
    """A loop of the host: its time, and the functions in which it spends most, microseconds a call."""
    use(setting)
    job = OWN_LOOP_JOBS[workload.kind].build(workload, form, DEVICE)
    repeat(job.call, job.first_calls + 5)
    timing, _ = time_loop(job.call, DEVICE, quick=True)
    torch.cuda.synchronize()
    profile, calls = cProfile.Profile(), 10
    profile.enable()
    repeat(job.call, calls)
    profile.disable()
    torch.cuda.synchronize()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(40)
    return {"milliseconds": round(timing.median, 3), "fastest": round(timing.fastest, 3), "profile": text.getvalue()}


class Row(NamedTuple):
    """Something to time by several settings."""

    name: str
    settings: tuple[str, ...]
    measure: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...]
    cost: float = 1.5
    """Seconds that a setting takes, about."""


K, M = 2**10, 2**20
GRAPHS: Form = "riffle-graphs"
_KEPT = ("before", "library", "library+loop", "library+joint2", "library+joint3", "library+whole2")


def rows() -> Iterator[Row]:
    """Important ones first; the first setting once more at the end says how far times of one run differ."""
    settings: tuple[str, ...]
    own_1k = Workload("own-step-1k", "plain training step", 192, 2, (K,), batch=32)
    own_256 = Workload("own-step-256", "plain training step", 192, 1, (256,), batch=64)
    more = ("joint2-skip", "inline", "spare", "dependent", "warps")
    yield Row("step-1k", (*_KEPT, *(f"library+{change}" for change in more), "before"), time_network, (own_1k, GRAPHS))
    few = ("before", "library+ways4", "library+ways2", "library+dependent", "library+ways4+dependent", "before")
    call_4k = Workload("own-call-4k", "plain forward", 192, 2, (4 * K,))
    yield Row("call-4k", few, time_network, (call_4k, GRAPHS), 1.0)
    steps = (
        "before",
        "library",
        *(f"library+{change}" for change in ("inline", "dependent", "warps", "joint2")),
        "before",
    )
    yield Row("step-256", steps, time_network, (own_256, GRAPHS), 1.0)
    for name, pairs, keep, skip, back, settings in (
        ("kept", 2**14, True, False, False, _KEPT),
        ("kept, skip", 2**14, True, True, False, _KEPT),
        ("back", 2**14, True, False, True, ("before", "library", "library+warps")),
        ("back, skip", 2**14, True, True, True, ("before", "library")),
        ("few", 2**11, False, False, False, ("before", "library+ways4", "library+ways2")),
    ):
        yield Row(f"layer 192, {pairs} pairs, {name}", settings, time_layer, (192, pairs, keep, skip, back), 0.5)
    backward_1m = Workload("backward-1m", "forward and backward", 192, 1, (M,))
    settings = ("before", "library", "library+joint2")
    yield Row("backward-1m-kept", settings, time_network, (backward_1m, "fused-keep"), 3.0)
    yield Row("backward-1m", ("before", "library", "library+joint2-free"), time_network, (backward_1m, "fused"), 3.0)
    settings = ("before", "library", "library+joint2-free", "library+joint3-free")
    yield Row("infer-1m", settings, time_network, (Workload("infer-1m", "inference", 192, 1, (M,)), "fused"))
    bins = Workload("step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True)
    settings = ("before", "library", "library+inline", "library+dependent")
    yield Row("step-bins", settings, time_network, (bins, "fused-keep"), 3.0)
    backward_2m = Workload("backward-2m", "forward and backward", 96, 1, (2 * M,))
    yield Row("backward-2m", ("before", "library", "library+joint96"), time_network, (backward_2m, "fused"), 3.0)
    infer_2m = Workload("infer-2m", "inference", 96, 1, (2 * M,))
    yield Row("infer-2m", ("library", "library+joint96"), time_network, (infer_2m, "fused"))
    for name, workload in (("host-256", own_256), ("host-1k", own_1k)):
        yield Row(name, ("library",), profile_step, (workload, "riffle"), 2.0)
    own_256k = Workload("own-backward-256k", "plain forward and backward", 192, 2, (256 * K,))
    yield Row("backward-256k", ("before", "library", "library+joint2-free"), time_network, (own_256k, "riffle"), 3.0)
    yield Row("host-256-compiled", ("library",), profile_step, (own_256, "riffle-compiled"), 8.0)
    for features, pairs, keep, back, settings in (
        (192, 2**13, True, False, _KEPT),
        (192, 2**12, False, False, ("before", "library+ways4", "library+ways2")),
        (192, 2**11, True, True, ("before", "library")),
        (96, 2**14, True, False, ("before", "library", "library+joint96")),
        (64, 2**20, True, False, ("other", "library")),
        (128, 2**14, True, True, ("library", "library+products")),
        (64, 2**14, True, True, ("library", "library+products")),
    ):
        name = f"layer {features}, {pairs} pairs{', kept' * keep}{', back' * back}"
        yield Row(name, settings, time_layer, (features, pairs, keep, False, back), 0.5)
    wide = Workload("infer-128k", "inference", 384, 2, (128 * K,))
    yield Row("infer-128k", ("before", "library+dependent"), time_network, (wide, "fused"), 1.0)
    reader = Workload("lambada", "inference", 384, 2, (128,), batch=64, graph=True)
    yield Row("reader", ("before", "library+dependent"), time_network, (reader, "fused"), 1.0)
    yield Row("host-1k-compiled", ("library",), profile_step, (own_1k, "riffle-compiled"), 8.0)


def measure(row: Row, settings: tuple[str, ...], bad: set[str], deadline: float) -> Iterator[dict[str, Any]]:
    """A row by one setting after the other, as long as there is time."""
    state: dict[str, Any] = {}
    for setting in settings:
        entry: dict[str, Any] = {"row": row.name, "setting": setting}
        start = time.monotonic()
        if bad & set(setting.split("+")):
            yield entry | {"failed": "not as exact as eager, or no result: see the checks"}
        elif start + row.cost > deadline:
            yield entry | {"failed": "no time"}
        else:
            try:
                more = {"state": state} if row.measure is time_network else {}
                entry |= row.measure(*row.arguments, setting, **more)
            except Exception as error:
                entry |= {"failed": f"{type(error).__name__}: {error}"[:400]}
            free_memory(compiled=row.name.endswith("compiled"))
            yield entry | {"seconds": round(time.monotonic() - start, 1)}


def table(entries: list[dict[str, Any]]) -> str:
    """A line for each row: every setting with its time, and in brackets how it compares with the first."""
    lines, names = [], list(dict.fromkeys(entry["row"] for entry in entries))
    for name in names:
        parts, first = [], None
        for entry in (entry for entry in entries if entry["row"] == name):
            value = entry.get("milliseconds", entry.get("microseconds"))
            if value is None:
                parts.append(f"{entry['setting']} -")
                continue
            first = first or value
            parts.append(f"{entry['setting']} {value:g}" + (f" ({value / first - 1:+.1%})" if value != first else ""))
        unit = "us" if any("microseconds" in entry for entry in entries if entry["row"] == name) else "ms"
        lines.append(f"{name} [{unit}]: {'; '.join(parts)}")
    return "\n".join(lines)


def main() -> None:
    """Check, time, write and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--seconds", type=float, default=95.0, help="all of it, with the checks")
    parser.add_argument("--check-seconds", type=float, default=45.0, help="at most, for the checks; 0 leaves them out")
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 4) - 2)))
    parser.add_argument("--rows", nargs="*", help="names of rows, all unless given")
    parser.add_argument("--settings", nargs="*", help="by which to time them, each row's own unless given")
    parser.add_argument("--check", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        run_checks(*arguments.check)
        return
    begin = time.monotonic()
    record: dict[str, Any] = {"checks": [], "rows": []}

    def save() -> None:
        write_json(Path(arguments.result), record)

    def give_up() -> None:
        # A kernel that hangs cannot be interrupted.
        save()
        print(table(record["rows"]) + "\ntime is up: a row hangs, or took far longer than it should", flush=True)
        os._exit(3)

    watch = threading.Timer(arguments.seconds + 8, give_up)
    watch.daemon = True
    watch.start()
    bad: set[str] = set()
    if arguments.check_seconds:
        record["checks"], bad = check_all(arguments.check_seconds, arguments.processes)
        passed = [check["passed"] for check in record["checks"]]
        print(f"checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not reached")
        for check in record["checks"]:
            if check["passed"] is False:
                print("  failed:", json.dumps(check)[:300])
        print(f"{time.monotonic() - begin:.0f} s", flush=True)
    record |= environment(DEVICE)
    save()
    for row in rows():
        if arguments.rows and row.name not in arguments.rows:
            continue
        for entry in measure(row, tuple(arguments.settings or row.settings), bad, begin + arguments.seconds):
            record["rows"].append(entry)
            print(json.dumps({name: value for name, value in entry.items() if name != "profile"}), flush=True)
        save()
    print(table(record["rows"]))
    print(f"{time.monotonic() - begin:.0f} s")
    watch.cancel()


if __name__ == "__main__":
    main()
