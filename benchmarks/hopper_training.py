"""Kernels for training that were tried on GPUs of compute capability 9.0, beside those of the library.

    python benchmarks/hopper_training.py layer RESULT.json
    python benchmarks/hopper_training.py product RESULT.json

``layer`` has forms of the layer as one launch that keeps its gates (``hopper_layer.py``), and the launches of a layer's
backward pass one by one. ``product`` has the product of the candidates' gradients with their weights and the reset pass
in one launch (``hopper_product.py``), alone and after ``update_backward``. One layer in bfloat16, microseconds, the
median of five replays of a CUDA graph of many launches. Everything is compared with the definition first.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hopper_layer
import hopper_product
import torch
from torch import Tensor

from riffle.bench.measure import relative_error
from riffle.environment import environment
from riffle.files import write_json
from riffle.kernels import layer_plan, reference
from riffle.kernels.hopper import ROWS, describe
from riffle.kernels.launches import Kept, UnitWeights, Workspace, add_weight_gradient, forward_layer, unit_weights
from riffle.kernels.layer_plan import LayerPlan, plan_layer
from riffle.kernels.tuning import LAYER_FORMS, LayerForm, multiprocessors

DEVICE, DTYPE = torch.device("cuda", 0), torch.bfloat16
CHECKED = 16384
"""Pairs that are compared with the definition."""
LAYER_SHAPES = ((192, 32768), (192, 2**20), (96, 2**21), (96, 32768), (192, 16384))
"""Features and cells."""
PRODUCT_SHAPES = ((192, 32768), (96, 2**21), (192, 2**20), (96, 32768), (192, 7680))
LAYER_TRIALS = {
    "static": {"STORE": "copy", "LOOP": False},
    "loop": {"STORE": "copy", "LOOP": True},
    "loop, nothing stored": {"STORE": "none", "LOOP": True},
    "static, nothing stored": {"STORE": "none", "LOOP": False},
    "static, to shared memory only": {"STORE": "shared", "LOOP": False},
}


class ProductTrial(NamedTuple):
    """A form of ``hopper_product.product_backward``."""

    chunk: int
    chunks: int
    step: int
    stages: int
    depth: int
    reverse: bool = False
    early: bool = False


PRODUCT_TRIALS = {
    192: [
        ProductTrial(64, 2, 64, 2, 1),
        ProductTrial(64, 2, 64, 2, 1, reverse=True),
        ProductTrial(64, 2, 64, 2, 1, early=True),
        ProductTrial(64, 1, 64, 3, 1),
        ProductTrial(64, 1, 64, 2, 2),
    ],
    96: [
        ProductTrial(64, 3, 32, 2, 2),
        ProductTrial(64, 3, 32, 2, 2, reverse=True),
        ProductTrial(64, 3, 32, 2, 2, early=True),
        ProductTrial(64, 3, 32, 3, 1),
        ProductTrial(64, 1, 32, 4, 1),
    ],
}


def draw(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers."""
    return (scale * torch.randn(*shape, device=DEVICE)).to(DTYPE)


def draw_layer(features: int, cells: int) -> tuple[Tensor, UnitWeights]:
    """Cells and the weights of a unit."""
    pair, scale = 2 * features, (2 * features) ** -0.5
    matrices = draw(3 * pair, pair, scale=scale), draw(2, features, pair, scale=scale)
    weights = unit_weights(matrices[0], draw(3 * pair), matrices[1], draw(2, features), None)
    return draw(cells, features).clamp(-1, 1), weights


def plan_of(features: int, cells: int, form: LayerForm | None) -> LayerPlan:
    """The library's plan of a layer that keeps its gates, in one launch of a form or in two."""
    chosen = layer_plan.layer_form
    layer_plan.layer_form = lambda *shape, keep: form  # type: ignore[assignment]
    try:
        return plan_layer.__wrapped__((1,), (cells,), (0.0,), features, DTYPE, DEVICE, shuffle=1, swap=True, keep=True)
    finally:
        layer_plan.layer_form = chosen


def microseconds(call: Callable[[], object]) -> float:
    """Of one call among many in a CUDA graph."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    calls = max(2, min(200, int(12 / max(begin.elapsed_time(end), 1e-3))))
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


def report(**entry: Any) -> dict[str, Any]:
    """Print a row and return it."""
    print(json.dumps(entry), flush=True)
    return entry


def time_product() -> dict[str, Any]:
    """The rate of a large matrix product, for comparison."""
    left, right = draw(8192, 8192), draw(8192, 8192)
    time = microseconds(lambda: left @ right)
    return report(name="product 8192^3", us=time, tflops=round(2 * 8192**3 / time / 1e6, 1))


def time_layers(features: int, cells: int) -> Iterator[dict[str, Any]]:
    """Forms of the layer that keeps its gates."""
    x_CD, weights = draw_layer(features, cells)
    pairs, pair = cells // 2, 2 * features
    out_CD, gates, workspace = torch.empty_like(x_CD), x_CD.new_empty(pairs, 3 * pair), Workspace(x_CD)
    few = min(pairs, CHECKED)
    x_PE = x_CD.view(pairs, pair)[:few]

    def definition(dtype: torch.dtype) -> Tensor:
        tensors = weights.gates, weights.gates_bias, weights.candidates, weights.candidates_bias
        unit = reference.SwitchWeights(*(tensor.to(dtype) for tensor in tensors))
        return reference.gated_switch(x_PE.to(dtype), unit, None).double().view(few, pair)

    exact = definition(torch.float64)
    eager = relative_error(definition(DTYPE), exact)
    exact_gates = x_PE.double() @ weights.gates.double().t()
    groups = min(2, -(-pairs // (ROWS * multiprocessors(DEVICE))))
    form = LAYER_FORMS[features]._replace(groups=groups)
    chunk, out = form.options(features)["CHUNK"], form.options(features)["OUT"]
    address, kept = weights.gates.data_ptr(), gates.data_ptr()
    descriptors = (
        describe(address, DTYPE, 3 * pair, pair, chunk, chunk), describe(address, DTYPE, 3 * pair, pair, out, chunk),
        describe(weights.candidates.data_ptr(), DTYPE, pair, pair, out, chunk),
        describe(kept, DTYPE, pairs, 3 * pair, ROWS, chunk), describe(kept, DTYPE, pairs, 3 * pair, ROWS, out),
    )  # fmt: skip
    tensors = weights.gates_bias, weights.candidates_bias, x_CD, out_CD

    def library(plan: LayerPlan) -> None:
        forward_layer(plan, x_CD, None, weights, None, workspace, kept=Kept(gates, None), out_CD=out_CD)

    def trial(options: dict[str, Any]) -> None:
        hopper_layer.layer_forward[(min(-(-pairs // (ROWS * groups)), multiprocessors(DEVICE)),)](
            *descriptors, *tensors, pairs, (1,), (cells + 1,),
            D=features, SHUFFLE=1, SWAP=True, **form.options(features), **options,
        )  # fmt: skip

    calls: dict[str, Callable[[], None]] = {}
    for name, chosen in (("library product and switch_forward", None), ("one launch of the library", form)):
        calls[name] = partial(library, plan_of(features, cells, chosen))
    for name, options in LAYER_TRIALS.items():
        calls[name] = partial(trial, options)
    for name, call in calls.items():
        out_CD.fill_(float("nan"))
        gates.fill_(float("nan"))
        call()
        # The shuffle brings all first cells before all second ones.
        y_PE = torch.stack([out_CD[:few], out_CD[pairs : pairs + few]], dim=1).view(few, pair)
        error, of_gates = relative_error(y_PE, exact), relative_error(gates[:few], exact_gates)
        complete = name in LAYER_TRIALS and LAYER_TRIALS[name]["STORE"] != "copy"
        if not error <= 2 * eager or not (complete or of_gates < 0.01):
            raise ValueError(f"{name}: outputs are {error}, gates {of_gates} from the definition, eager {eager}")
        yield report(features=features, cells=cells, name=name, groups=groups, error=error, us=microseconds(call))


class Backward:
    """A layer on its way back, with the gates kept."""

    def __init__(self, features: int, cells: int) -> None:
        pairs, pair = cells // 2, 2 * features
        self.features, self.pairs, self.pair, self.plan = features, pairs, pair, plan_of(features, cells, None)
        x_CD, self.weights = draw_layer(features, cells)
        self.state, self.gates, self.grad_gates = x_CD.view(pairs, pair), draw(pairs, 3 * pair), draw(pairs, 3 * pair)
        self.grad_sums, self.out, self.grad_out = (
            draw(pairs, 2, features, scale=0.3),
            draw(cells, features),
            draw(cells, features),
        )
        self.grad_before = draw(pairs, pair)
        self.grad_state, self.product = self.grad_before.clone(), draw(pairs, 2, pair)
        self.grad_product = draw(pairs, 2, pair)
        self.sums = torch.zeros(pairs // 16 + 1, 5 * pair, device=DEVICE)
        self.program_sums = torch.zeros(4 * multiprocessors(DEVICE), 2 * pair, device=DEVICE)
        self.scratch = torch.empty_like(self.grad_sums)

    def update(self) -> None:
        """``update_backward``; the candidates' gradients go where nobody reads them."""
        bias = self.weights.candidates_bias
        self.plan.update_backward[True, False](
            self.gates, self.weights.gates_bias, self.grad_gates, None, self.out, self.state, bias, self.grad_out, None,
            self.scratch, self.grad_state, self.sums, None,
        )  # fmt: skip

    def updated(self, call: Callable[[], None]) -> None:
        """A call after ``update_backward``."""
        self.update()
        call()

    def library(self) -> None:
        """The library's product and ``reset_backward``."""
        torch.bmm(self.grad_sums.transpose(0, 1), self.weights.candidates, out=self.grad_product.transpose(0, 1))
        self.reset()

    def reset(self) -> None:
        """``reset_backward``."""
        self.plan.reset_backward[True, False, True, False, False](
            self.gates, self.weights.gates_bias, self.grad_gates, self.state, None, None, self.state, self.product,
            self.grad_product, self.grad_state, None, None, self.sums,
        )  # fmt: skip

    def weight_gradients(self) -> None:
        """Of one layer by itself."""
        gradient = torch.zeros(3 * self.pair, self.pair, device=DEVICE)
        add_weight_gradient(self.grad_gates, self.state, gradient)
        for i in range(2):
            add_weight_gradient(self.grad_sums[:, i], self.product[:, i], gradient[: self.features])

    def trial(self, form: ProductTrial) -> None:
        """Both in one launch."""
        parts = self.pair // (form.chunk * form.chunks)
        programs = min(multiprocessors(DEVICE) // parts, -(-self.pairs // hopper_product.ROWS)) * parts
        tensors = self.gates, self.grad_gates, self.state, self.product, self.grad_state
        block = hopper_product.ROWS, form.chunk
        hopper_product.product_backward[(programs,)](
            describe(self.grad_sums.data_ptr(), DTYPE, self.pairs, self.pair, hopper_product.ROWS, form.step),
            describe(self.weights.candidates.data_ptr(), DTYPE, self.pair, self.pair, form.step, form.chunk),
            *(describe(tensor.data_ptr(), DTYPE, self.pairs, tensor[0].numel(), *block) for tensor in tensors),
            self.weights.gates_bias, self.program_sums, self.pairs,
            D=self.features, CHUNK=form.chunk, CHUNKS=form.chunks, STEP=form.step, STAGES=form.stages, DEPTH=form.depth,
            REVERSE=form.reverse, EARLY=form.early, num_warps=8, maxnreg=168,
        )  # fmt: skip

    def definition(self, dtype: torch.dtype) -> list[Tensor]:
        """t, the gradients of the reset gates and that of what was read, of the last pairs."""
        last, pair = slice(-CHECKED, None), self.pair
        grad_sums, read, before = (tensor[last].to(dtype) for tensor in (self.grad_sums, self.state, self.grad_before))
        gates = self.gates[last, : 2 * pair].to(dtype) + self.weights.gates_bias[: 2 * pair].to(dtype)
        reset = gates.sigmoid().view(-1, 2, pair)
        grad = torch.stack([grad_sums[:, i] @ self.weights.candidates[i].to(dtype) for i in range(2)], dim=1)
        product = reset * read[:, None]
        return [product, grad * product * (1 - reset), before + (grad * reset).sum(1)]

    def results(self, call: Callable[[], None]) -> list[Tensor]:
        """The same by a call."""
        for tensor in (self.grad_gates, self.product):
            tensor.fill_(float("nan"))
        self.grad_state.copy_(self.grad_before)
        self.program_sums.zero_()
        call()
        last = slice(-CHECKED, None)
        resets = self.grad_gates[last, : 2 * self.pair].reshape(-1, 2, self.pair)
        return [self.product[last], resets, self.grad_state[last]]


def time_backward(features: int, cells: int) -> Iterator[dict[str, Any]]:
    """The launches of the backward pass as they are, one by one."""
    layer = Backward(features, cells)
    read = layer.grad_state
    launches: dict[str, Callable[[], object]] = {
        "update_backward": layer.update, "reset_backward": layer.reset, "gradient of t, reset_backward": layer.library,
        "gradient of a": lambda: read.addmm_(layer.grad_gates, layer.weights.gates), "weights": layer.weight_gradients,
    }  # fmt: skip
    for name, call in launches.items():
        yield report(features=features, cells=cells, name=f"backward: {name}", us=microseconds(call))


def time_products(features: int, cells: int) -> Iterator[dict[str, Any]]:
    """The product and the reset pass in one launch, after the definition was compared."""
    layer = Backward(features, cells)
    exact = layer.definition(torch.float64)
    eager = [relative_error(*pair) for pair in zip(layer.definition(DTYPE), exact, strict=True)]
    calls: dict[str, Callable[[], None]] = {"two launches": layer.library}
    for form in PRODUCT_TRIALS[features]:
        calls[f"one launch {tuple(form)}"] = partial(layer.trial, form)
    for name, call in calls.items():
        errors = [relative_error(*pair) for pair in zip(layer.results(call), exact, strict=True)]
        if call is not layer.library:
            # The gradients of the reset gates' bias, against the sum of what was stored.
            errors.append(
                relative_error(layer.program_sums.sum(0), layer.grad_gates[:, : 2 * layer.pair].double().sum(0))
            )
        if not all(error <= 2 * plain for error, plain in zip(errors, [*eager, 0.005], strict=False)):
            raise ValueError(f"{name}: {errors} from the definition, eager {eager}")
        row = {"errors": errors, "us": microseconds(call), "us_with_update": microseconds(partial(layer.updated, call))}
        yield report(features=features, cells=cells, name=name, **row)


def main() -> None:
    """Time what was asked for, and write the results beside what they were measured on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("layer", "product"))
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    arguments = parser.parse_args()
    rows = [time_product()]
    for features, cells in LAYER_SHAPES if arguments.what == "layer" else PRODUCT_SHAPES:
        for measure in (time_layers, time_backward) if arguments.what == "layer" else (time_products,):
            rows += measure(features, cells)
        torch.cuda.empty_cache()
    write_json(arguments.result, {**environment(DEVICE), "rows": rows})


if __name__ == "__main__":
    main()
