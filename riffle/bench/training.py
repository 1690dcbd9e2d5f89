"""A training step: a batch of every bin, one backward pass, one update; on a GPU as one CUDA graph."""

from __future__ import annotations

from dataclasses import replace

import torch

from riffle.bench.jobs import GRADIENT, WEIGHT, Job, Results, compiled
from riffle.bench.workloads import Form, Workload
from riffle.config import RunConfig
from riffle.recipes import paper
from riffle.train.objective import SymbolObjective
from riffle.train.step import EAGER_STEPS, TrainStep

TASK = "sort"
CHECKED_STEPS = EAGER_STEPS + 2
"""Steps after which gradients are compared: the last is the second replay of the graph."""
COMPARED = f"mean loss of {CHECKED_STEPS} steps of the first and last bin without dropout, gradients, with float64"
"""What is compared with the truth, for the record."""


def truth(row: Workload, device: torch.device) -> Results:
    """Loss and gradients of a checked step in float64."""
    return _checked(row, "eager", device, double=True)


def job(row: Workload, form: Form, device: torch.device) -> Job:
    """One step; what is checked is :func:`_checked`, since every form has random numbers of its own for dropout."""
    step = _step(_experiment(row, form), form, device)
    graph = step.use_graph
    return Job(step, lambda: _checked(row, form, device), graph, first_calls=EAGER_STEPS + 1 if graph else 1)


def _experiment(row: Workload, form: Form) -> RunConfig:
    config = paper(TASK)
    return replace(
        config,
        model=replace(
            config.model,
            features=row.features,
            blocks=row.blocks,
            backend="fused" if form in ("fused", "fused-keep") else "reference",
            recompute=form != "fused-keep",
        ),
        data=replace(config.data, bins=row.lengths, batch=row.batch),
        train=replace(config.train, precision="fp32" if form == "eager" else "bf16"),
    )


def _checked(row: Workload, form: Form, device: torch.device, double: bool = False) -> Results:
    """Some steps of the first and the last bin without dropout, so slow that the weights stay: loss and gradients."""
    config = _experiment(row, form)
    config = replace(
        config,
        model=replace(config.model, dropout=0.0),
        data=replace(config.data, bins=(row.lengths[0], row.lengths[-1])),
        train=replace(config.train, learning_rate=1e-12),
    )
    step = _step(config, form, device, double)
    for _ in range(CHECKED_STEPS):
        step()
    embedding = step.model.get_parameter("embedding.weight").grad
    weight = step.model.get_parameter(f"network.{WEIGHT}").grad
    assert embedding is not None
    assert weight is not None
    loss = torch.tensor(step.read().loss)
    return {"loss": loss, f"{GRADIENT}embedding": embedding.clone(), f"{GRADIENT}weight": weight.clone()}


def _step(config: RunConfig, form: Form, device: torch.device, double: bool = False) -> TrainStep:
    torch.manual_seed(0)
    objective = SymbolObjective(config)
    model = objective.build(config.model, device=device).train()
    if double:
        model = model.double()
    if form == "compiled":
        model.forward_batches = compiled(model.forward_batches)  # type: ignore[method-assign]
    return TrainStep(config, model, objective)
