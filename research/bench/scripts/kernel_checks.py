"""Forms of the kernels for compute capability 9.0 that are to be tried: settings that choose them, and a check of each.

    python benchmarks/kernel_checks.py 0 14        # the first of fourteen parts, a line of JSON for each check

A setting is the library's table of ``riffle/kernels/tuning.py``, or what it was before (``before``), with changes
joined by ``+`` (:data:`CHANGES`). A check compares a layer, forward and with every gradient, with the definition in
float64. ``kernel_trials.py`` runs all of them side by side before it times anything, which compiles the kernels, too.
"""

# C = cells, D = features per cell, E = 2 * D features per pair, P = pairs
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from research.bench.measure import relative_error
from research.bench.scripts.residual_layer import ResidualLayer
from riffle import ShuffleExchange
from riffle.kernels import layer_plan, reference, residual, tuning
from riffle.kernels.launches import Kept, Workspace, forward_layer, unit_weights
from riffle.kernels.layer_backward import SkipGradient, UnitGradients, backward_layer
from riffle.kernels.layer_plan import LayerPlan, plan_layer, share_gradients
from riffle.kernels.plan import plan_network
from riffle.kernels.reference import NORMS, Norm
from riffle.kernels.tuning import LayerForm, LayerRow, ProductForm, RowForm, WideForm
from riffle.shuffle import SHUFFLES

DEVICE, DTYPE = torch.device("cuda", 0), torch.bfloat16
PATIENCE = 10.0
"""Seconds after which a layer hangs."""
LAYER_TRIALS: dict[str, tuple[int, LayerForm]] = {
    "loop": (192, LayerForm(groups=2, stages=6, split=3, shared=True, loop=True)),
    "ways4": (192, LayerForm(groups=1, stages=6, split=3, shared=True, ways=4)),
}
"""Forms of the layer as one launch that are tried for other numbers of pairs than the table has them for."""
PRODUCT_TRIALS: dict[int, ProductForm] = {
    64: ProductForm(fewest=2**13, stages=4, step=64),
    128: ProductForm(fewest=2**13, stages=3, step=64),
}
WIDE_TRIALS: dict[str, WideForm] = {"wide": WideForm(fewest=0), "wide-192": WideForm(fewest=0, columns=192)}
"""Forms of the two products of 384 features, each with what follows it."""
SHARED_ROWS = dict.fromkeys(("forward", "backward"), RowForm(32, 8, shared=True))
"""How rows of few pairs were normalised before."""
BEFORE = tuple(
    row._replace(form=row.form._replace(loop=False))
    for row in tuning.LAYER_ROWS
    if (row.features, row.keep) not in ((96, True), (192, True)) and row.form.ways == 1
)
"""The rows without what was added; kept gates then left the chip by ordinary stores, which no kernel here does."""


class Setting(NamedTuple):
    """What :mod:`riffle.kernels.tuning` has."""

    rows: tuple[LayerRow, ...] = tuning.LAYER_ROWS
    products: dict[int, ProductForm] = tuning.PRODUCT_FORMS
    wide: dict[int, tuple[WideForm, ...]] = tuning.WIDE_FORMS
    resident: dict[int, int] = tuning.RESIDENT_PAIRS
    dependent: bool = tuning.DEPENDENT_LAUNCH
    gradient_pairs: int = tuning.GRADIENT_PAIRS
    few_rows: dict[str, RowForm] = tuning.FEW_ROWS


def _with_form(name: str, keep: bool, fewest: int, setting: Setting) -> Setting:
    features, form = LAYER_TRIALS[name]
    return setting._replace(rows=(*setting.rows, LayerRow(features, keep, fewest, form)))


def _with_wide(form: WideForm, setting: Setting) -> Setting:
    return setting._replace(wide={384: (form,)})


CHANGES: dict[str, Callable[[Setting], Setting]] = {
    "before": lambda setting: Setting(BEFORE, {}, {}, {}, dependent=False),
    "library": lambda setting: Setting(),
    "other": lambda setting: Setting((), {}, {}, {}, dependent=False),
    "waiting": lambda setting: setting._replace(dependent=False),
    "products": lambda setting: setting._replace(products=setting.products | PRODUCT_TRIALS),
    "single": lambda setting: setting._replace(resident={}),
    "apart": lambda setting: setting._replace(wide={}),
    **{name: partial(_with_wide, form) for name, form in WIDE_TRIALS.items()},
    "loop": partial(_with_form, "loop", True, 2**13),
    "ways4": partial(_with_form, "ways4", False, 512),
    "loads": lambda setting: setting._replace(
        rows=tuple(row._replace(form=row.form._replace(ahead=0)) for row in setting.rows)
    ),
    "gradients17": lambda setting: setting._replace(gradient_pairs=2**17),
    "gradients15": lambda setting: setting._replace(gradient_pairs=2**15),
    "shared": lambda setting: setting._replace(few_rows=SHARED_ROWS),
}
"""What a part of a setting's name does: forms by their names, for kept gates or for few pairs; "waiting" without
launches that begin before the one before has ended; "single" without launches of several layers; more or fewer pairs a
product for the weights; "apart" the library's products of 384 features, and passes; "other" has no kernels for this
chip at all; in "shared" warps share the rows that they normalise."""
CACHES = (
    tuning.find_layer_form,
    tuning.layer_form,
    tuning.product_form,
    tuning.wide_form,
    tuning.pass_blocks,
    plan_layer,
    residual.plan_layer,
    plan_network,
)


def use(name: str) -> None:
    """Let the library plan by a setting."""
    setting = Setting()
    for change in name.split("+"):
        setting = CHANGES[change](setting)
    tuning.LAYER_ROWS, tuning.PRODUCT_FORMS = setting.rows, setting.products
    tuning.WIDE_FORMS, tuning.DEPENDENT_LAUNCH = setting.wide, setting.dependent
    tuning.RESIDENT_PAIRS = setting.resident
    tuning.FEW_ROWS = setting.few_rows
    layer_plan.GRADIENT_PAIRS = tuning.GRADIENT_PAIRS = setting.gradient_pairs
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
    return compare(layer, actual, shuffle)


def check_residual(setting: str, features: int, pairs: int, *, norm: Norm, shuffle: int) -> dict[str, Any]:
    """The same for a layer of the residual unit."""
    use(setting)
    layer = ResidualLayer(features, pairs, norm=norm, dtype=DTYPE, device=DEVICE)
    plan = layer.plan(shuffle)
    layer.forward(plan)
    return compare(layer, [layer.out, *layer.backward(plan, layers=2)], shuffle)


def check_network(setting: str, features: int, pairs: int, *, blocks: int) -> dict[str, Any]:
    """A whole network in inference, launched and replayed as a CUDA graph: each of five calls with the definition."""
    use(setting)
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": DEVICE, "dtype": DTYPE}
    ours, eager, exact = (
        ShuffleExchange(features, blocks, backend=backend, **options) for backend in ("fused", "reference", "reference")
    )
    for net in (eager, exact):
        net.load_state_dict(ours.state_dict())
    exact.double()
    x_BND = torch.rand(1, 2 * pairs, features, device=DEVICE).mul(2).sub(1).to(DTYPE)
    actual = []
    with torch.no_grad():
        for _ in range(5):
            actual.append(ours(x_BND).clone())
            wait()
        plain, truth = eager(x_BND), exact(x_BND.double())
    errors, allowed = [relative_error(y_BND, truth) for y_BND in actual], max(2 * relative_error(plain, truth), 1e-6)
    same = all(torch.equal(y_BND, actual[0]) for y_BND in actual)
    passed = same and all(error <= allowed for error in errors)
    return {"errors": errors, "allowed": [allowed] * len(errors), "same": same, "passed": passed}


def compare(layer: Layer | ResidualLayer, actual: list[Tensor], shuffle: int) -> dict[str, Any]:
    """Output and gradients with those of the definition."""
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


RESIDUAL_PAIRS = 3840
"""Of a layer of four bins, 64 sequences each, up to 64 cells."""


class Check(NamedTuple):
    """A layer that is compared with the definition before a setting is timed."""

    setting: str
    features: int
    pairs: int
    keep: bool
    skip: bool
    shuffle: int
    norm: Norm | None = None
    """Of the residual unit; None for the gated one."""
    blocks: int = 0
    """Of a whole network that has so many; 0 for a layer."""

    @property
    def name(self) -> str:
        """In words."""
        if self.blocks:
            return f"{self.setting}: {self.features} maps, {self.pairs} pairs, network of {self.blocks}"
        unit = "" if self.norm is None else f"residual {self.norm} "
        flags = f"{unit}{'keep ' * self.keep}{'skip ' * self.skip}{self.shuffle:+d}"
        return f"{self.setting}: {self.features} maps, {self.pairs} pairs, {flags}"

    def run(self) -> dict[str, Any]:
        """Compare it."""
        if self.blocks:
            return check_network(*self[:3], blocks=self.blocks)
        if self.norm is not None:
            return check_residual(*self[:3], norm=self.norm, shuffle=self.shuffle)
        return check_layer(*self[:3], keep=self.keep, skip=self.skip, shuffle=self.shuffle)


def checks() -> list[Check]:
    """Of every form and change, those first that most rows need."""
    found = [
        Check(setting, 192, pairs, False, False, 0, blocks=blocks)
        for pairs, blocks in ((2**11, 2), (2**7, 3), (2**9, 1), (2**10, 2))
        for setting in ("library", "library+single")
    ]
    for shuffle in (1, -1, 0):
        for setting in ("library", "library+loop", "library+waiting", "before"):
            for skip in (True, False):
                found.append(Check(setting, 192, 2**14, True, skip, shuffle))
        for setting in ("library", "library+waiting", "before"):
            found += [Check(setting, 192, 2**11, False, skip, shuffle) for skip in (True, False)]
        for setting in ("library", "before"):
            found += [Check(setting, 192, MANY, False, skip, shuffle) for skip in (True, False)]
        found += [Check("library", 96, MANY, keep, False, shuffle) for keep in (False, True)]
    for setting in ("library+loop", "before"):
        found += [Check(setting, 192, 2**13, True, skip, 1) for skip in (True, False)]
    found += [Check("library+ways4", 192, pairs, False, False, 1) for pairs in (2**9, 2**10, 2**12)]
    found += [
        Check(setting, 96, 4100, False, skip, -1) for setting in ("library", "library+loads") for skip in (True, False)
    ]
    for name in ("apart", *WIDE_TRIALS):
        found += [
            Check(f"library+{name}", 384, 2**13, False, skip, shuffle) for skip, shuffle in ((True, 1), (False, -1))
        ]
    found += [Check("library+products", features, 2**14, True, False, 1) for features in PRODUCT_TRIALS]
    for norm, setting in product(NORMS, ("library", "library+waiting", "library+waiting+shared")):
        found += [Check(setting, 192, RESIDUAL_PAIRS, True, False, shuffle, norm) for shuffle in (1, -1, 0)]
    return [*found, Check("library", 192, 2**14, True, False, 1, "features")]


def run_checks(part: int, parts: int, text: str = "") -> None:
    """Every so many of the checks with a text in their names, a line of JSON for each."""
    for check in select_checks(part, parts, text):
        try:
            result = check.run()
        except Exception as error:
            result = {"passed": False, "failed": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps({"check": check.name, "setting": check.setting, **result}), flush=True)
        if result.get("failed", "").startswith("Hang"):
            os._exit(1)
        torch.cuda.empty_cache()


def select_checks(part: int, parts: int, text: str) -> list[Check]:
    """Every so many of the checks with a text in their names."""
    return [check for check in checks() if text in check.name][part::parts]


def check_all(seconds: float, parts: int, text: str = "") -> tuple[list[dict[str, Any]], set[str]]:
    """All checks with a text in their names in processes side by side; their results, and what must not be timed."""
    command = [sys.executable, __file__]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    options["env"] = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([*command, str(part), str(parts), text], **options) for part in range(parts)]
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
        missing = select_checks(part, parts, text)[len(lines) :]
        results += [{"check": check.name, "setting": check.setting, "passed": None} for check in missing]
    for result in results:
        if result["passed"] is False:
            bad |= set(result["setting"].split("+")) - ({"library"} if "+" in result["setting"] else set())
    return results, bad


if __name__ == "__main__":
    run_checks(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
