"""Training the Neural GPU by its kernels: how exact they are, and how long a step takes in several forms.

    python benchmarks/neural_gpu.py --out neural-gpu.json
    python benchmarks/neural_gpu.py --out neural-gpu.json --reference --profile
    python benchmarks/neural_gpu.py --compile          # without a GPU: registers, spills and shared memory

First the loss and the gradients of a training batch, by the kernels and by eager steps, as relative errors to eager
steps in float64. Then the milliseconds of a training step that is a CUDA graph, as ``riffle train add --model dngpu``
makes it with batches of 64, and those of its parts: the launch forward, the launch back, the gradients of the weights.
Forms are compiled by other processes before, for compute capability 9.0.
"""

# C = cells of all sequences, D = feature maps
from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver
from triton.runtime.jit import MockTensor

from research.baselines import NeuralGPU, diagonal_gru
from research.baselines import neural_gpu_operator as neural_gpu
from research.baselines.neural_gpu_operator import Form
from research.bench.scripts.kernel_resources import NoDevice, resources
from riffle.config import Precision, RunConfig
from riffle.kernels import Backend
from riffle.recipes import paper, with_model
from riffle.train.objective import SymbolObjective, set_matrix_precision
from riffle.train.step import DRAWN_STEPS, EAGER_STEPS, TrainStep

DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}
FORMS = {
    (48, "bf16"): [Form(64, 16, 16, 4, 6), Form(64, 16, 64, 4, 3), Form(64, 64, 64, 8, 3)],
    (96, "bf16"): [Form(64, 32, 64, 8, 4), Form(64, 32, 32, 8, 3), Form(64, 64, 64, 8, 3)],
    (48, "fp32"): [Form(64, 16, 16, 4, 3)],
    (96, "fp32"): [Form(64, 32, 32, 8, 3)],
}
"""Forms to be tried, by feature maps and precision."""


def config_of(features: int, precision: Precision, dropout: float) -> RunConfig:
    """That of ``riffle train add --model dngpu``, of another width."""
    config = with_model(paper("add"), "dngpu")
    config = replace(config, model=replace(config.model, features=features, dropout=dropout))
    assert config.data.bins == (8, 16, 32, 64)
    return replace(config, data=replace(config.data, batch=64), train=replace(config.train, precision=precision))


def compile_form(features: int, precision: Precision, form: Form, *, dropout: bool = True) -> list[dict[str, Any]]:
    """Compile both kernels for compute capability 9.0 and say what they need; Triton keeps the code on disk."""
    driver.set_active(NoDevice())
    set_matrix_precision(precision)
    kept, single, seed = MockTensor(DTYPES[precision]), MockTensor(torch.float32), MockTensor(torch.int64)
    config = config_of(features, precision, 0.1)
    batches, widths = [config.data.batch] * len(config.data.bins), sorted(config.data.bins, reverse=True)
    cells, scales = config.data.batch * sum(widths), (0.1,) * len(widths)
    numbers = (0.1, 0.1, cells, *neural_gpu._groups(batches, widths), scales)
    constants = neural_gpu._constants(features, seed if dropout else None, form)
    random = seed if dropout else None
    ways = {
        "steps_forward": [*[single] * 2, *[kept] * 4, random, *[single] * 3, *[kept] * 4],
        "steps_backward": [*[single] * 4, *[kept] * 2, random, *[kept] * 3, *[single] * 2, *[kept] * 2],
    }
    rows = []
    for name, tensors in ways.items():
        compiled = getattr(diagonal_gru, name).warmup(*tensors, *numbers, grid=(sum(batches),), **constants)
        rows.append(
            {
                "kernel": name,
                "features": features,
                "precision": precision,
                "form": form,
                "dropout": dropout,
                **resources(compiled),
            }
        )
    return rows


@contextmanager
def use_form(features: int, precision: Precision, form: Form) -> Iterator[None]:
    """Let the kernels have a form."""
    key = (features, DTYPES[precision])
    before = neural_gpu.FORMS.get(key)
    neural_gpu.FORMS[key] = form
    yield
    del neural_gpu.FORMS[key]
    if before is not None:
        neural_gpu.FORMS[key] = before


def loss_and_gradients(
    model: NeuralGPU, objective: SymbolObjective, examples: tuple[Tensor, ...]
) -> tuple[list[str], list[Tensor]]:
    """The loss, the cost of saturation and all gradients."""
    model.zero_grad(set_to_none=True)
    loss, _ = objective.loss(model, examples)
    cost = model.saturation.cost()
    (loss + 1e-3 * cost).backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return ["loss", "saturation", *named], [loss.detach(), cost.detach(), *named.values()]


def compare(features: int, precision: Precision) -> dict[str, Any]:
    """Relative errors of a batch's loss and gradients to eager steps in float64, by the kernels and by eager steps."""
    set_matrix_precision(precision)
    torch.manual_seed(0)
    config = config_of(features, precision, 0.0)
    objective = SymbolObjective(config)
    model = objective.build(config.model, device="cuda")
    assert isinstance(model, NeuralGPU)
    generator = torch.Generator("cuda").manual_seed(0)
    inputs, targets, weights = (part[0] for part in objective.draw(1, generator))
    results = {}
    for backend in ("fused", "reference"):
        own = copy.deepcopy(model)
        own.backend = backend
        names, results[backend] = loss_and_gradients(own, objective, (inputs, targets, weights))
    exact = SymbolObjective(replace(config, train=replace(config.train, precision="fp32")))
    double = copy.deepcopy(model).double()
    _, truth = loss_and_gradients(double, exact, (inputs, targets, weights.double()))
    errors = {
        backend: {
            name: float((value.double() - true).norm() / true.norm().clamp(min=1e-30))
            for name, value, true in zip(names, values, truth, strict=True)
        }
        for backend, values in results.items()
    }
    return {"features": features, "precision": precision, "relative_errors": errors}


def milliseconds(call: Callable[[], object], calls: int) -> float:
    """The mean time of a call on the device."""
    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / calls


def time_step(config: RunConfig, backend: Backend, profile: bool = False) -> dict[str, Any]:
    """The time of a captured step; with the slowest kernels of one."""
    set_matrix_precision(config.train.precision)
    torch.manual_seed(0)
    objective = SymbolObjective(config)
    model = objective.build(replace(config.model, backend=backend), device="cuda")
    step = TrainStep(config, model, objective)
    for _ in range(EAGER_STEPS + 2):
        step()
    result: dict[str, Any] = {"step_ms": milliseconds(step, 2 * DRAWN_STEPS)}
    metrics = step.pop_metrics()
    result["loss"], result["finite"] = metrics.loss, metrics.first_non_finite is None
    if profile:
        assert step.graph is not None
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as events:
            step.graph.replay()
            torch.cuda.synchronize()
        rows = sorted(events.key_averages(), key=lambda row: -row.self_device_time_total)
        result["kernels"] = [(row.key[:80], row.count, round(row.self_device_time_total, 1)) for row in rows[:25]]
        result["launches"] = sum(row.count for row in rows)
    return result


def time_parts(config: RunConfig) -> dict[str, float]:
    """The times of the launch forward, of the operator back, and of the gradients of weights, which are part of it."""
    features, dtype = config.model.features, DTYPES[config.train.precision]
    set_matrix_precision(config.train.precision)
    batches, widths = [config.data.batch] * len(config.data.bins), sorted(config.data.bins, reverse=True)
    cells, scales = config.data.batch * sum(widths), [0.1] * len(widths)
    model = SymbolObjective(config).build(config.model, device="cuda")
    assert isinstance(model, NeuralGPU)
    unit = model.unit
    x_CD, active_C = torch.rand(cells, features, device="cuda") * 2 - 1, torch.ones(cells, device="cuda")
    seed = torch.zeros(1, dtype=torch.int64, device="cuda")
    numbers = (batches, widths, scales, config.model.dropout, config.model.dropout)
    with torch.no_grad():
        forward = partial(neural_gpu._steps, x_CD, active_C, *unit.parameters(), seed, *numbers, dtype)
        out_CD, saturation_S, *kept = forward()
        inputs = (out_CD, saturation_S, x_CD, active_C, unit.gates.weight, unit.candidate.weight, seed)
        backward = partial(neural_gpu._steps_backward, *inputs, *kept, *numbers)
        states, products, gates, candidates = kept

        def weight_gradients() -> None:
            neural_gpu._weight_gradient(gates, states)
            neural_gpu._weight_gradient(candidates, products)

        calls: dict[str, Callable[[], object]]
        calls = {"forward_ms": forward, "backward_ms": backward, "weight_gradients_ms": weight_gradients}
        return {name: milliseconds(call, 10) for name, call in calls.items()}


def read_form(text: str) -> Form:
    """A form from five numbers."""
    return Form(*map(int, text.split(",")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and time, or compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--features", type=int, nargs="*", default=[48, 96], choices=[48, 96])
    parser.add_argument("--precision", nargs="*", default=["bf16"], choices=list(DTYPES))
    parser.add_argument("--compile", action="store_true", help="compile the forms, and start nothing")
    parser.add_argument("--forms", nargs="*", type=read_form, help="other forms: cells,columns,inner,warps,stages")
    parser.add_argument("--workers", type=int, default=16, help="processes that compile")
    parser.add_argument("--reference", action="store_true", help="time eager steps as well")
    parser.add_argument("--profile", action="store_true", help="list the kernels of a step")
    options = parser.parse_args(arguments)
    began = time.time()
    cases = [(width, precision) for width in options.features for precision in options.precision]
    forms = {case: options.forms or FORMS[case] for case in cases}
    record: dict[str, Any] = {"compiled": [], "compared": [], "timed": []}

    def add(kind: str, row: dict[str, Any]) -> None:
        record[kind].append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n")

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        jobs = [pool.submit(compile_form, *case, form) for case in cases for form in forms[case]]
        if not options.compile:  # to be compared
            jobs += [pool.submit(compile_form, *case, forms[case][0], dropout=False) for case in cases]
        for job in jobs:
            for row in job.result():
                add("compiled", row)
    if options.compile:
        return
    for case in cases:
        with use_form(*case, forms[case][0]):
            add("compared", {**compare(*case), "seconds": time.time() - began})
    for features, precision in cases:
        config = config_of(features, precision, 0.1)
        for form in forms[features, precision]:
            with use_form(features, precision, form):
                times = {**time_step(config, "fused", options.profile), **time_parts(config)}
            form_row = {"features": features, "precision": precision, "backend": "fused", "form": form, **times}
            add("timed", {**form_row, "seconds": time.time() - began})
        if options.reference:
            add("timed", {"features": features, "precision": precision, **time_step(config, "reference")})


if __name__ == "__main__":
    main()
