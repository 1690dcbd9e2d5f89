"""A forward and a backward pass of a network."""

# B = batch, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from riffle.bench.definition import definition
from riffle.bench.jobs import GRADIENT, WEIGHT, Job, Results, compiled, make_cells, make_network
from riffle.bench.timing import replayed
from riffle.bench.workloads import Form, Workload
from riffle.nn.network import ShuffleExchange

COMPARED = f"output, gradients of the input and of {WEIGHT} at full size with the definition in float32"
"""What is compared with the truth, for the record."""


def truth(row: Workload, device: torch.device) -> Results:
    """Output and gradients in float32, by the definition."""
    net = make_network(row, "eager", device)
    return _job(row, "eager", device, net, lambda x_BND: definition(net, x_BND)).results()


def job(row: Workload, form: Form, device: torch.device) -> Job:
    """One forward and one backward pass, with the gradients of all weights and of the input."""
    net = make_network(row, form, device)
    return _job(row, form, device, net, compiled(net) if form == "compiled" else net)


def _job(row: Workload, form: Form, device: torch.device, net: ShuffleExchange, run: Callable[..., Tensor]) -> Job:
    x_BND = make_cells(row, form, device).requires_grad_()
    grad_BND = make_cells(row, form, device, seed=1)

    def forget() -> None:
        net.zero_grad(set_to_none=True)
        x_BND.grad = None

    def call() -> None:
        forget()
        run(x_BND).backward(grad_BND)  # nothing holds the output: what is not needed can go

    def results() -> Results:
        forget()
        y_BND = run(x_BND)
        y_BND.backward(grad_BND)
        grad, grad_weight = x_BND.grad, net.get_parameter(WEIGHT).grad
        assert grad is not None
        assert grad_weight is not None
        computed = {"output": y_BND.detach(), f"{GRADIENT}input": grad, f"{GRADIENT}weight": grad_weight}
        forget()
        return computed

    graph = row.graph and form in ("fused", "fused-keep")
    return Job(replayed(call) if graph else call, results, graph)
