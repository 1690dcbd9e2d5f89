"""The Neural GPU's kernels against eager steps in float64: on a GPU in every dtype, elsewhere by the interpreter."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from kernels.test_fused import DEVICE, GPU, assert_as_accurate

from research.baselines import neural_gpu_operator as neural_gpu
from research.baselines.neural_gpu import DiagonalGRU, NeuralGPU
from riffle.kernels.graphs import capture, on_side_stream

pytestmark = [pytest.mark.usefixtures("_poison"), pytest.mark.filterwarnings("ignore")]
KINDS = ["float32", *(["bfloat16"] if GPU else [])]
CASES = [
    (6, [(2, 5), (3, 3), (1, 1), (2, 5)]),
    (8, [(1, 17), (2, 4)]),  # more cells than a tile has
    (12, [(2, 6)]),
    (48, [(1, 3), (1, 2)]),
]
if GPU:
    CASES += [
        (48, [(7, 64), (5, 8), (6, 32), (8, 16)]),
        (96, [(7, 64), (5, 8), (6, 32), (8, 16)]),
        (96, [(2, 100), (3, 3), (1, 1), (2, 65)]),
        (50, [(3, 20)]),
        (256, [(2, 40), (1, 7)]),
    ]


def build(features: int, *, reach: int = 1, scale: float = 2.0, dropout: float = 0.0) -> NeuralGPU:
    """A model of which something saturates."""
    model = NeuralGPU(12, 5, features, reach=reach, dropout=dropout, backend="fused", device=DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def symbols(shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Batches; in each of several rows the first is shorter than the others."""
    batches = [torch.randint(1, 12, shape) for shape in shapes]
    for batch_BN in batches:
        if len(batch_BN) > 1:
            batch_BN[0, batch_BN.shape[1] // 3 :] = 0
    return [batch_BN.to(DEVICE) for batch_BN in batches]


def train(
    model: NeuralGPU, batches: Sequence[Tensor], precision: AbstractContextManager[object] | None = None
) -> dict[str, Tensor]:
    """Scores, the cost of saturation, and the gradients of both; the input's have those of the cells."""
    model.zero_grad(set_to_none=True)
    with precision or nullcontext():
        scores = model.forward_batches(batches)
    cost = model.saturation.cost()
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(part.shape, generator=generator).to(part) for part in scores]
    (sum((part * weight).sum() for part, weight in zip(scores, weights, strict=True)) + cost).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    named = {f"scores {index}": part.detach() for index, part in enumerate(scores)}
    return {**named, "cost": cost.detach(), **gradients}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("features", "shapes"), CASES, ids=str)
def test_scores_cost_and_every_gradient(
    features: int, shapes: list[tuple[int, int]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not GPU and features == 8:
        form = neural_gpu.Form(16, 16, 16, 4, 1)
        monkeypatch.setattr(neural_gpu, "find_form", lambda *_: form)
    # Long sequences of large weights are chaotic: two roundings of the same numbers part.
    model, batches = build(features, reach=2, scale=1.5 if GPU else 2.0), symbols(shapes)
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    eager.backend = exact.backend = "reference"

    def precision() -> AbstractContextManager[object]:
        return torch.autocast(DEVICE, dtype=torch.bfloat16) if kind == "bfloat16" else nullcontext()

    actual, plain, true = train(model, batches, precision()), train(eager, batches, precision()), train(exact, batches)
    assert true["cost"] > 0
    for name in true:
        assert_as_accurate(name, actual[name], plain[name], true[name])


@pytest.mark.parametrize("name", ["unit.gates.bias", "unit.candidate.weight", "input.weight"])
def test_dropout_is_the_same_forward_and_back(name: str) -> None:
    """Against differences: the backward pass multiplies by what the forward pass did."""
    model, batches = build(6, scale=0.5, dropout=0.3), symbols([(2, 7), (3, 4)])
    parameter, step = model.get_parameter(name), 1e-3
    direction = torch.randn_like(parameter)

    def loss() -> Tensor:
        torch.manual_seed(5)
        return sum(part.double().square().sum() for part in model.forward_batches(batches))

    (gradient,) = torch.autograd.grad(loss(), parameter)
    with torch.no_grad():
        parameter += step * direction
        above = loss()
        parameter -= 2 * step * direction
        expected = ((above - loss()) / (2 * step)).item()
    assert (gradient * direction).sum().item() == pytest.approx(expected, rel=0.02, abs=1e-3)


def test_dropout_of_the_input() -> None:
    rate, batch, maps = 0.25, 8, 48
    # With open update gates the first third of the maps, which does not move, stays as it is.
    biases = torch.cat([torch.zeros(maps), torch.full((maps,), 5.0)]), torch.zeros(maps)
    matrices = torch.zeros(2 * maps, 3 * maps), torch.zeros(maps, 3 * maps)
    parameters = [part.to(DEVICE) for pair in zip(matrices, biases, strict=True) for part in pair]
    x_CD = torch.full((batch, maps), 0.5, device=DEVICE, requires_grad=True)
    active_C = torch.ones(batch, device=DEVICE)
    out_CD, _ = neural_gpu.run_steps(x_CD, active_C, parameters, [(batch, 1)], [1.0], input_dropout=rate)
    still_CD = out_CD[:, : maps // 3]
    (grad_CD,) = torch.autograd.grad(still_CD.sum(), x_CD)
    kept_CD = still_CD != 0
    assert float(kept_CD.float().mean()) == pytest.approx(1 - rate, abs=0.15)
    torch.testing.assert_close(still_CD, 0.5 / (1 - rate) * kept_CD)
    torch.testing.assert_close(grad_CD[:, : maps // 3], kept_CD / (1 - rate))


def test_dropout_differs_between_calls() -> None:
    model, batches = build(6, dropout=0.5), symbols([(2, 4)])
    first, second = model(batches[0]), model(batches[0])
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    first = model(batches[0])
    torch.manual_seed(1)
    assert torch.equal(model(batches[0]), first)


def test_the_operator_is_registered_correctly() -> None:
    unit = DiagonalGRU(4, device=DEVICE)
    x_CD, active_C = torch.rand(3, 4, device=DEVICE, requires_grad=True), torch.ones(3, device=DEVICE)
    numbers = ([1, 1], [2, 1], [1.0, 1.0], 0.0, 0.0)
    arguments = (x_CD, active_C, *unit.parameters(), None, *numbers, torch.float32)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    torch.library.opcheck(torch.ops.riffle.neural_gpu.default, arguments, test_utils=checks)
    grad_CD, grad_S = torch.rand(3, 4, device=DEVICE), torch.rand(2, device=DEVICE)
    with torch.no_grad():
        kept = neural_gpu._steps(*arguments)[2:]
        weights = (unit.gates.weight, unit.candidate.weight)
        backward = (grad_CD, grad_S, x_CD.detach(), active_C, *weights, None, *kept, *numbers)
        checks = ["test_schema", "test_faketensor"]
        torch.library.opcheck(torch.ops.riffle.neural_gpu_backward.default, backward, test_utils=checks)


@pytest.mark.gpu
def test_a_captured_step_is_the_eager_one() -> None:
    model, batches = build(48), symbols([(3, 16), (2, 40)])
    parameters = list(model.parameters())

    def step() -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model.forward_batches(batches)
        (sum(part.float().square().sum() for part in scores) + model.extra_loss()).backward()
        return [*(part.detach() for part in scores), *(parameter.grad for parameter in parameters)]

    # A gradient is added on the stream on which it was first: never on the default one, if it is to be captured.
    expected = [result.clone() for result in on_side_stream(step)]
    graph, results = capture(step, warm_up=1)
    for _ in range(2):
        graph.replay()
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
