"""A workload in a form, ready to be called, and its reference results, computed independently in float32 or float64.

:data:`JOBS` has both for every kind of workload: inference, forward and backward pass, training step, and a pre-norm
transformer encoder on FlashAttention to compare with. All forms of a workload have the same weights and inputs, rounded
to bfloat16, so that their results can be compared.
"""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from research.baselines.transformers import TransformerLayer
from research.bench.timing import graphed
from research.bench.workloads import Form, Workload, WorkloadKind
from riffle.config import override
from riffle.models.sequence import SequenceModel
from riffle.nn.graphed import Graphed
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import PairUnit
from riffle.recipes import paper
from riffle.shuffle import SHUFFLES
from riffle.train.objective import SymbolObjective
from riffle.train.step import EAGER_STEPS, TrainStep

Results = dict[str, Tensor]
"""What a workload computes, by name; the names of gradients begin with :data:`GRADIENT`."""
GRADIENT = "gradient of "
WEIGHT = "units.0_forward.gates.weight"
"""The weight whose gradient is compared: most layers contribute to it."""
WEIGHTS = {"gated": WEIGHT, "residual": "units.0_forward.hidden_weight"}
"""The weight whose gradient is compared, by unit."""
CHECKED_STEPS = EAGER_STEPS + 2
"""Training steps after which gradients are compared: the last is the second replay of the graph."""
HEAD = 64
"""Features per attention head; the encoder's width must be a multiple of it."""
CHECKED_ENCODER = 2**14
"""The longest input at which the encoder is compared with itself in float32, which would take minutes beyond."""


class Job(NamedTuple):
    """A call to time, and ``results``, which runs it once more and returns everything that is compared."""

    call: Callable[[], object]
    results: Callable[[], Results | None]
    """Gives None for a model without reference results."""
    graph: bool = False
    """Whether later calls replay a CUDA graph, which allocates no memory."""
    first_calls: int = 1
    """Calls after which everything is compiled and captured."""
    loop: bool = False
    """Whether it is timed as a loop, with what the host does between the calls."""
    parameters: int | None = None
    """Number of parameters, where models of about the same size are compared."""
    has_floor: bool = True
    """Whether the call makes the workload's FLOPs, so that it has a lower bound of time."""


class JobKind(NamedTuple):
    """How a kind of workload is run and checked."""

    build: Callable[[Workload, Form, torch.device], Job]
    reference: Callable[[Workload, torch.device], Results | None]
    """The reference results; None where computing them would take too long."""
    compared: str


def dtype_of(form: Form) -> torch.dtype:
    """The dtype a form computes in."""
    return torch.float32 if form == "eager" else torch.bfloat16


def make_network(workload: Workload, form: Form, device: torch.device) -> ShuffleExchange:
    """The workload's network, with weights rounded to bfloat16 in every form."""
    torch.manual_seed(0)
    # Rows that are replayed as graphs are captured as a whole.
    options: dict[str, Any] = {"unit": workload.unit, "graphs": False, "recompute": form != "fused-keep"}
    options["backend"] = "fused" if form.startswith("fused") else "reference"
    net = ShuffleExchange(workload.features, workload.blocks, device=device, **options)
    enlarge_weights(net)
    return net.to(torch.bfloat16).to(dtype_of(form))


@torch.no_grad()
def enlarge_weights(net: ShuffleExchange) -> None:
    """Change the initial weights so that cells keep distinct values of about 0.2 through all layers.

    With the initial weights a long random sequence decays towards zero layer by layer. Errors would then be hard to
    see, and the GPU would draw less power and run faster than with a trained network.
    """
    for name, parameter in net.named_parameters():
        if name.endswith("candidates_weight"):
            parameter.mul_(2)
        elif name.endswith("candidates_bias"):
            parameter.normal_(0, 0.3)
        elif name.endswith("gates.bias"):
            parameter[-2 * net.features :] += 1  # the update gate's


def make_cells(workload: Workload, form: Form, device: torch.device, seed: int = 0) -> Tensor:
    """Random cells within ±1, rounded to bfloat16 in every form."""
    generator = torch.Generator(device).manual_seed(seed)
    x_BND = torch.empty(workload.batch, workload.lengths[0], workload.features, dtype=torch.bfloat16, device=device)
    return x_BND.uniform_(-1, 1, generator=generator).to(dtype_of(form))


def definition(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
    """What ``net`` computes, independently of :mod:`riffle.nn.execute`: a unit on adjacent pairs, then a shuffle.

    With gradients only the cells between layers are stored; the backward pass recomputes the inside of each layer, so
    that a million cells fit.
    """
    layers = net.layers(x_BND.shape[1].bit_length() - 1)
    skips = {layer.skip for layer in layers}
    skip_inputs: dict[int, Tensor] = {}

    def run(unit: PairUnit, shuffle: int, x_BND: Tensor, skip_BND: Tensor | None) -> Tensor:
        return SHUFFLES[shuffle](unit(x_BND, skip_BND))

    for index, layer in enumerate(layers):
        if index in skips:
            skip_inputs[index] = x_BND
        skip_BND = None if layer.skip is None else skip_inputs[layer.skip]
        arguments = (net[layer.unit], layer.shuffle, x_BND, skip_BND)
        x_BND = checkpoint(run, *arguments, use_reentrant=False) if x_BND.requires_grad else run(*arguments)
    return x_BND


def _inference(workload: Workload, form: Form, device: torch.device) -> Job:
    """One call of the network; the encoder computes its attention by FlashAttention."""
    encoder = workload.kind == "encoder"
    run: Any = (_make_encoder if encoder else make_network)(workload, form, device).eval()
    x_BND = make_cells(workload, form, device)
    graph = workload.graph and (device.type == "cuda" if encoder else form == "fused")
    if form == "compiled":
        run = torch.compile(run, dynamic=False)
    if graph:
        run = Graphed(run)

    # Not the stricter inference mode, which the compiler does not trace everywhere.
    @torch.no_grad()
    def call() -> Tensor:
        return run(x_BND)

    timed = sdpa_kernel(SDPBackend.FLASH_ATTENTION)(call) if encoder else call
    return Job(timed, lambda: {"output": timed()}, graph)


def _inference_reference(workload: Workload, device: torch.device) -> Results:
    net = make_network(workload, "eager", device).requires_grad_(False)
    # With gradients enabled, though none is needed, the units do not take the optimised path of inference.
    with torch.enable_grad():
        return {"output": definition(net, make_cells(workload, "eager", device))}


def _backward(workload: Workload, form: Form, device: torch.device, *, reference: bool = False) -> Job:
    """One forward and one backward pass, with the gradients of all weights and of the input."""
    net = make_network(workload, form, device)
    run: Callable[..., Tensor] = partial(definition, net) if reference else net
    if form == "compiled":
        run = torch.compile(net, dynamic=False)
    x_BND = make_cells(workload, form, device).requires_grad_()
    grad_BND = make_cells(workload, form, device, seed=1)

    def clear_gradients() -> None:
        net.zero_grad(set_to_none=True)
        x_BND.grad = None

    def call() -> None:
        clear_gradients()
        run(x_BND).backward(grad_BND)  # the output is not stored, so that its memory can be freed

    def results() -> Results:
        clear_gradients()
        y_BND = run(x_BND)
        y_BND.backward(grad_BND)
        gradients = {
            GRADIENT + "input": gradient(x_BND),
            GRADIENT + "weight": gradient(net.get_parameter(WEIGHTS[workload.unit])),
        }
        clear_gradients()
        return {"output": y_BND.detach(), **gradients}

    graph = workload.graph and form in ("fused", "fused-keep")
    return Job(graphed(call) if graph else call, results, graph)


def gradient(x: Tensor) -> Tensor:
    """The gradient of a tensor after a backward pass."""
    assert x.grad is not None
    return x.grad


def _training(workload: Workload, form: Form, device: torch.device) -> Job:
    """One step; dropout differs between forms, so that :func:`_checked_steps` are compared instead of this one."""
    step = _train_step(workload, form, device)
    first_calls = EAGER_STEPS + 1 if step.use_graph else 1
    return Job(step, lambda: _checked_steps(workload, form, device), step.use_graph, first_calls)


def _checked_steps(workload: Workload, form: Form, device: torch.device, *, double: bool = False) -> Results:
    """Loss and gradients of steps that are the same in every form."""
    step = _train_step(workload, form, device, checked=True, double=double)
    for _ in range(CHECKED_STEPS):
        step()
    names = {"embedding": "embedding.weight", "weight": f"network.{WEIGHTS[workload.unit]}"}
    # Copied, since a graph's memory goes with the step.
    gradients = {GRADIENT + short: gradient(step.model.get_parameter(name)).clone() for short, name in names.items()}
    return {"loss": torch.tensor(step.pop_metrics().loss), **gradients}


def _train_step(
    workload: Workload, form: Form, device: torch.device, *, checked: bool = False, double: bool = False
) -> TrainStep:
    """A step on sorting; to be ``checked`` on two bins, without dropout, at a learning rate that changes no weight."""
    config, lengths = paper("sort"), workload.lengths
    network: dict[str, Any] = {"features": workload.features, "blocks": workload.blocks, "unit": workload.unit}
    network["backend"] = "fused" if form.startswith("fused") else "reference"
    config = replace(
        config,
        model=replace(config.model, **network),
        data=replace(config.data, bins=lengths, batch=workload.batch),
        train=replace(config.train, precision="fp32" if form == "eager" else "bf16"),
    )
    if checked:
        bins = f"data.bins={lengths[0]},{lengths[-1]}"
        config = override(config, [bins, "model.dropout=0", "train.learning_rate=1e-12"])
    torch.manual_seed(0)
    objective = SymbolObjective(config)
    model = objective.build(config.model, device=device).train()
    assert isinstance(model, SequenceModel)
    model.network.recompute = form != "fused-keep"
    if double:
        model = model.double()
    if form == "compiled":
        model.forward_batches = torch.compile(model.forward_batches, dynamic=False)
    return TrainStep(config, model, objective)


def _make_encoder(workload: Workload, form: Form, device: torch.device) -> nn.Module:
    """Pre-norm layers without positional encoding, which would only add time."""
    torch.manual_seed(0)
    features, heads = workload.features, workload.features // HEAD
    layers = [TransformerLayer(features, heads, nn.GELU(), device=device) for _ in range(workload.blocks)]
    encoder = nn.Sequential(*layers, nn.LayerNorm(features, device=device))
    return encoder.to(torch.bfloat16).to(dtype_of(form)).eval()


def _encoder_reference(workload: Workload, device: torch.device) -> Results | None:
    if workload.lengths[0] > CHECKED_ENCODER:
        return None
    encoder = _make_encoder(workload, "eager", device)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return {"output": encoder(make_cells(workload, "eager", device))}


JOBS: dict[WorkloadKind, JobKind] = {
    "inference": JobKind(_inference, _inference_reference, "the output at full size with the definition in float32"),
    "forward and backward": JobKind(
        _backward,
        lambda workload, device: _backward(workload, "eager", device, reference=True).results(),
        "output, gradients of the input and of one weight at full size with the definition in float32",
    ),
    "training step": JobKind(
        _training,
        lambda workload, device: _checked_steps(workload, "eager", device, double=True),
        f"mean loss of {CHECKED_STEPS} steps of the first and last bin without dropout, gradients, with float64",
    ),
    "encoder": JobKind(
        _inference, _encoder_reference, f"the output, up to {CHECKED_ENCODER} cells, with the same encoder in float32"
    ),
}
