"""Inference of a network."""

# B = batch, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from riffle.bench.definition import definition
from riffle.bench.jobs import Job, Results, compiled, make_cells, make_network
from riffle.bench.workloads import Form, Workload
from riffle.nn.graphed import Graphed

COMPARED = "the output at full size with the definition in float32"
"""What is compared with the truth, for the record."""


def truth(row: Workload, device: torch.device) -> Results:
    """The output in float32, by the definition."""
    net = make_network(row, "eager", device).requires_grad_(False)
    # With gradients enabled, though nothing asks for one, the units take none of the short cuts of inference.
    with torch.enable_grad():
        return {"output": definition(net, make_cells(row, "eager", device))}


def job(row: Workload, form: Form, device: torch.device) -> Job:
    """One forward pass."""
    net = make_network(row, form, device).eval()
    x_BND = make_cells(row, form, device)
    graph = row.graph and form == "fused"
    run: Callable[..., Tensor] = compiled(net) if form == "compiled" else Graphed(net) if graph else net

    def call() -> Tensor:
        # Not the stricter inference mode, which the compiler does not trace everywhere.
        with torch.no_grad():
            return run(x_BND)

    return Job(call, lambda: {"output": call()}, graph)
