"""A user's own loop: a module with float32 weights under autocast, plainly called, compiled, or by CUDA graphs.

Beside this layer stand a transformer encoder and two layers of flash-linear-attention, an optional package, with about
as many parameters. What this layer computes is compared with the definition, as everywhere in ``bench``.
"""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from research.bench.jobs import GRADIENT, HEAD, JOBS, WEIGHT, Job, JobKind, Results, gradient, make_cells, make_network
from research.bench.workloads import Form, Workload, WorkloadKind
from riffle.kernels.graphs import SIGHTS, GraphCache
from riffle.nn.graphed import Graphed
from riffle.nn.network import ShuffleExchange

LAYERS = 6
"""Layers of the transformer encoder."""
NO_CHANGE = 1e-12
"""A learning rate at which no weight changes, so that results can be compared after any number of steps."""
FIRST_CALLS = SIGHTS + 1
"""Calls after which our own graphs are captured."""


def _own_loop(workload: Workload, form: Form, device: torch.device) -> Job:
    """One round of a loop, for each of the plain kinds of workloads."""
    how = [part for part in form.split("-") if part in ("graphs", "compiled", "reduced")]
    name = form.removesuffix("-".join(["", *how]))
    forward = workload.kind == "plain forward"
    model = make_model(name, workload, device).train(not forward)
    x_BND = make_cells(workload, "eager", device).requires_grad_(not forward)
    run: Any = _with_graphs(model, x_BND) if "graphs" in how else model
    if "compiled" in how or "reduced" in how:
        run = torch.compile(run, mode="reduce-overhead" if "reduced" in how else None)
    target_BND = make_cells(workload, "eager", device, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=NO_CHANGE)

    def call_model() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return run(x_BND)

    @torch.no_grad()
    def infer() -> Results:
        return {"output": call_model()}

    def back() -> Results:
        model.zero_grad()
        x_BND.grad = None
        y_BND = call_model()
        y_BND.backward(target_BND.to(y_BND.dtype))
        return {"output": y_BND.detach()}

    def step() -> None:
        optimizer.zero_grad()
        x_BND.grad = None
        F.mse_loss(call_model().float(), target_BND).backward()
        optimizer.step()

    def results() -> Results | None:
        if name != "riffle":
            return None
        if forward:
            return infer()
        output, weight = back(), model.get_parameter(WEIGHT)
        return output | {GRADIENT + "input": gradient(x_BND), GRADIENT + "weight": gradient(weight)}

    calls: dict[WorkloadKind, Callable[[], object]]
    calls = {"plain forward": infer, "plain forward and backward": back, "plain training step": step}
    return Job(
        calls[workload.kind],
        results,
        graph="graphs" in how or "reduced" in how,
        first_calls=FIRST_CALLS if name == "riffle" else 1,
        loop=True,
        parameters=_count_parameters(model),
        has_floor=name == "riffle",
    )


def _with_graphs(model: nn.Module, x_BND: Tensor) -> Any:
    """The model with its calls replayed as CUDA graphs: ours by its own option, others by PyTorch's functions."""
    if isinstance(model, ShuffleExchange):
        model.graphs = GraphCache()
        return model
    if not x_BND.requires_grad:
        return Graphed(model)

    @cache
    def graphed() -> Any:
        # What autocast keeps from one run to the next would be outside the graphs.
        with torch.autocast(x_BND.device.type, torch.bfloat16, cache_enabled=False):
            return torch.cuda.make_graphed_callables(model, (x_BND,))

    return lambda x_BND: graphed()(x_BND)  # captured by the first call, whose memory is measured


def make_model(name: str, workload: Workload, device: torch.device) -> nn.Module:
    """The layer, or one of the others with about as many parameters."""
    net = make_network(workload, "eager", device)
    net.backend, net.recompute, net.graphs = "auto", None, None  # the kernels that a user gets
    if name == "riffle":
        return net
    torch.manual_seed(0)
    features = workload.features
    if name == "encoder":
        layer = nn.TransformerEncoderLayer(
            features, max(1, features // HEAD), 4 * features, 0.0, "gelu", batch_first=True, norm_first=True
        )
        return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(features), enable_nested_tensor=False).to(device)
    make_layer = partial(_linear_attention, name)
    count = _count_parameters(net) / _count_parameters(TwoWayLayer(features, make_layer))
    layers = [TwoWayLayer(features, make_layer) for _ in range(max(1, round(count)))]
    return nn.Sequential(*layers, nn.LayerNorm(features)).to(device)


class TwoWayLayer(nn.Module):
    """A causal layer in each direction and a feed-forward layer, each with pre-norm and a residual connection."""

    def __init__(self, features: int, make_layer: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.onward, self.backward_layer = make_layer(features), make_layer(features)
        self.widen = nn.Sequential(
            nn.LayerNorm(features), nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features)
        )

    def forward(self, x_BND: Tensor) -> Tensor:
        h_BND = self.norm(x_BND)
        x_BND = x_BND + self.onward(h_BND)[0] + self.backward_layer(h_BND.flip(1))[0].flip(1)
        return x_BND + self.widen(x_BND)


def _linear_attention(name: str, features: int) -> nn.Module:
    from fla import layers

    if name == "gla":
        return layers.GatedLinearAttention(hidden_size=features, num_heads=max(1, features // HEAD))
    return layers.GatedDeltaNet(hidden_size=features, head_dim=HEAD, num_heads=max(1, 3 * features // (4 * HEAD)))


def _count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


_FORWARD, _BACKWARD = (
    JobKind(_own_loop, JOBS[kind].reference, JOBS[kind].compared) for kind in ("inference", "forward and backward")
)
OWN_LOOP_JOBS: dict[WorkloadKind, JobKind] = {
    "plain forward": _FORWARD,
    "plain forward and backward": _BACKWARD,
    "plain training step": _BACKWARD,
}
