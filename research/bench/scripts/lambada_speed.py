"""How fast readers of LAMBADA train: the parts of a step on a GPU, and the steps that fit into a given time."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from riffle.config import LambadaRunConfig
from riffle.files import write_json
from riffle.kernels.graphs import capture
from riffle.lambada.train import make_lambada_objective
from riffle.train.objective import autocast, set_matrix_precision
from riffle.train.optim import clip_and_perturb
from riffle.train.run import Run
from riffle.train.step import DRAWN_STEPS, EAGER_STEPS, TrainStep

TIMED_SECONDS = 8.0
"""How long runs are timed beside one another."""
REBUILD_SECONDS = 6.0
"""About what the model, its data and the graph of its step take after the timing, before the first step."""
MARGIN = 0.97
"""The share of the time left that is planned with."""
WARM_UP_SHARE = 0.1
"""The share of the steps in which the learning rate of a timed run rises."""
READY_FILE = "ready"
"""In a run's folder: it waits for the others to be timed."""
NOT_CAPTURED = 75
"""The exit status of a run whose step cannot be captured; it is started again without a graph."""


def fit_steps(run: Run, device: torch.device, graph: bool, until: float, beside: Sequence[Path]) -> None:
    """Set the steps of a run so that its training ends at a time, at the speed that it has beside the other runs.

    Waits until all of them are ready to be timed, so that what is measured is the speed of the training to come.
    """
    latest = (time.time() + until) / 2

    def wait_for_others() -> None:
        (run.folder / READY_FILE).touch()
        while time.time() < latest and not all((folder / READY_FILE).exists() for folder in beside):
            time.sleep(0.02)

    assert isinstance(run.config, LambadaRunConfig)
    try:
        speed = steps_per_second(run.config, run.folder, device, graph, wait_for_others)
    except RuntimeError as error:
        if not graph or device.type != "cuda":
            raise
        print(f"{error}\nits step cannot be captured: once more without a graph", flush=True)
        sys.exit(NOT_CAPTURED)  # what a failed capture leaves behind ends with the process
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    steps = max(1, int(speed * MARGIN * (until - time.time() - REBUILD_SECONDS)))
    print(f"{speed:.2f} steps a second: {steps} steps", flush=True)
    settings = replace(run.config.train, steps=steps, warmup=int(WARM_UP_SHARE * steps))
    write_json(run.config_path, asdict(replace(run.config, train=settings)))


def steps_per_second(
    config: LambadaRunConfig, folder: Path, device: torch.device, graph: bool, wait_for_others: Callable[[], None]
) -> float:
    """The speed of training steps, which leave nothing behind."""
    set_matrix_precision(config.train.precision)
    objective = make_lambada_objective(config, folder, device)
    step = TrainStep(config, objective.build(config.model, device=device), objective, graph=graph)
    for _ in range(EAGER_STEPS + 2):
        step()
    step.pop_metrics()  # waits for the device
    wait_for_others()
    steps, begin = 0, time.perf_counter()
    while (seconds := time.perf_counter() - begin) < TIMED_SECONDS or not steps:
        step()
        step.pop_metrics()
        steps += 1
    return steps / seconds


def time_step(config: LambadaRunConfig) -> dict[str, float]:
    """Milliseconds of a training step on a GPU and of its parts, each replayed as a CUDA graph of its own."""
    device = torch.device("cuda")
    objective = make_lambada_objective(config, None, device)
    model = objective.build(config.model, device=device)
    step = TrainStep(config, model, objective)
    for _ in range(10):
        step()
    ids_BN = objective.draw(1, step.generator)[0][0]
    with autocast(config.train.precision, device):
        cells_BND = model.words(ids_BN).detach().requires_grad_()

    def words() -> None:
        with autocast(config.train.precision, device):
            model.words(ids_BN).float().sum().backward()

    def reader() -> None:
        with autocast(config.train.precision, device):
            model.reader.forward_cells(cells_BND).float().sum().backward()

    parts: dict[str, Any] = {
        f"draw, {DRAWN_STEPS} steps": lambda: objective.draw(DRAWN_STEPS, step.generator),
        "words": words,
        "reader": reader,
        "clip": lambda: clip_and_perturb(model, config.train, step.learning_rate, step.generator),
        "optimizer": step.optimizer.step,
    }
    milliseconds = {"step": _milliseconds(step)}
    for name, part in parts.items():
        try:
            graph, _ = capture(part, generators=[step.generator])
        except RuntimeError as error:
            print(f"{name} cannot be captured alone: {error}", flush=True)
        else:
            milliseconds[name] = _milliseconds(graph.replay)
    return milliseconds


def _milliseconds(call: Callable[[], None], calls: int = 20) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return round(start.elapsed_time(end) / calls, 3)
