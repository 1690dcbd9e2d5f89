"""A row in one form, ready to be called: the network, its weights and its input."""

# B = batch, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from riffle.bench.workloads import Form, Workload
from riffle.kernels import Backend
from riffle.nn.network import ShuffleExchange

Results = dict[str, Tensor]
"""What a row computes, by name; the names of gradients begin with :data:`GRADIENT`."""
GRADIENT = "gradient of "
WEIGHT = "units.0_forward.gates.weight"
"""The weight whose gradient is compared: most layers add to it."""


@dataclass(frozen=True)
class Job:
    """Something to time, and a way to look at what it computes."""

    call: Callable[[], object]
    """The work."""
    results: Callable[[], Results]
    """The work once more, with everything it computed."""
    graph: bool = False
    """Whether later calls replay a CUDA graph, which allocates nothing any more."""
    first_calls: int = 1
    """Calls after which nothing is compiled or captured any more."""


def dtype_of(form: Form) -> torch.dtype:
    """The dtype a form computes in."""
    return torch.float32 if form == "eager" else torch.bfloat16


def make_network(row: Workload, form: Form, device: torch.device) -> ShuffleExchange:
    """The row's network; the same weights in every form, rounded to bfloat16."""
    torch.manual_seed(0)
    backend: Backend = "fused" if form in ("fused", "fused-keep") else "reference"
    recompute = form != "fused-keep"
    net = ShuffleExchange(row.features, row.blocks, backend=backend, recompute=recompute, device=device)
    keep_cells_apart(net)
    return net.to(torch.bfloat16).to(dtype_of(form))


@torch.no_grad()
def keep_cells_apart(net: ShuffleExchange) -> None:
    """Change the initial weights so that they tell right from wrong.

    As they are, a long random sequence averages out to nothing, layer by layer, which would leave little to compare and
    give the chip easier numbers than a trained network does. Larger candidates with biases of their own keep cells
    apart and around 0.2.
    """
    for name, parameter in net.named_parameters():
        if name.endswith("candidates_weight"):
            parameter.mul_(2)
        elif name.endswith("candidates_bias"):
            parameter.normal_(0, 0.3)
        elif name.endswith("gates.bias"):
            parameter[-2 * net.features :] += 1  # the update gate's


def make_cells(row: Workload, form: Form, device: torch.device, seed: int = 0) -> Tensor:
    """Random cells within ±1, the same in every form, rounded to bfloat16."""
    generator = torch.Generator(device).manual_seed(seed)
    x_BND = torch.empty(row.batch, row.lengths[0], row.features, dtype=torch.bfloat16, device=device)
    return x_BND.uniform_(-1, 1, generator=generator).to(dtype_of(form))


def compiled(run: Callable[..., Any]) -> Any:
    """A module or a function through ``torch.compile``, for one shape."""
    return torch.compile(run, dynamic=False)
