"""One step: which weights decay, how the learning rate falls, what counts as trained, what is counted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from riffle.config import MODELS, DataConfig, ModelConfig, RunConfig, TrainConfig
from riffle.models.base import SymbolModel
from riffle.models.build import build, symbol_models
from riffle.tasks import get_task
from riffle.train.data import held_out
from riffle.train.evaluate import symbol_loss
from riffle.train.objective import CountCorrect, Examples, SymbolObjective
from riffle.train.optim import make_optimizer
from riffle.train.step import DRAWN_STEPS, TrainStep

CONFIG = RunConfig(
    task="reverse",
    model=ModelConfig(features=8, blocks=2, dropout=0.0),
    data=DataConfig(bins=(4, 16), batch=6),
    train=TrainConfig(steps=10, weight_decay=0.5),
)
LONGER = replace(CONFIG, train=replace(CONFIG.train, steps=1000))
TASK = get_task("reverse")


def make_step(config: RunConfig = CONFIG) -> TrainStep:
    torch.manual_seed(0)
    return TrainStep(config, build(config.model, TASK), SymbolObjective(config))


def one_step(step: TrainStep) -> Examples:
    """The examples of one step."""
    return tuple(part[0] for part in step.objective.draw(1, step.generator))


@pytest.mark.parametrize("kind", symbol_models())
def test_only_matrices_decay(kind: str) -> None:
    model = build(MODELS[kind].config(kind=kind, features=8, dropout=0.0), TASK)
    rate = torch.tensor(0.1)
    optimizer = make_optimizer(model, CONFIG.train, rate)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(1, 2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    embeddings = {f"{n}.weight" for n, module in model.named_modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        # A bias of two candidates is a stack of two vectors, not a matrix; the weight of a norm is a vector.
        matrix = "weight" in name and parameter.dim() > 1 and name not in embeddings
        factor = 1 - 0.1 * 0.5 if matrix else 1.0
        torch.testing.assert_close(parameter.detach(), factor * before[name], msg=f"{name} {factor}")


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_cells_whose_target_is_blank_weigh_less(offset: float) -> None:
    data, train = replace(CONFIG.data, batch=40, offset=offset), replace(CONFIG.train, blank_weight=0.25)
    config = replace(CONFIG, task="parity", data=data, train=train)
    _, *columns = SymbolObjective(config).draw(3, torch.Generator().manual_seed(0))
    sizes = [data.batch * length for length in data.bins]
    for length, targets_SX, weights_SX in zip(data.bins, *(x.split(sizes, dim=1) for x in columns), strict=True):
        blank_BN, weights_BN = targets_SX[2].view(-1, length) == 0, weights_SX[2].view(-1, length)
        trained_B1 = weights_BN.amax(dim=1, keepdim=True) > 0
        answer = weights_BN[trained_B1 & ~blank_BN].unique()
        assert len(answer) == 1
        torch.testing.assert_close(weights_BN[trained_B1 & blank_BN].unique(), answer / 4)
        torch.testing.assert_close(weights_BN.sum(), torch.tensor(0.5), msg="two bins of equal weight")


def test_learning_rate_falls_linearly_to_zero() -> None:
    step = make_step()
    base = CONFIG.train.learning_rate * math.sqrt(96 / 8)
    rates = []
    for _ in range(10):
        step()
        rates.append(float(step.learning_rate))
    assert rates == pytest.approx([base * (1 - n / 10) for n in range(10)], rel=1e-6)
    assert step.optimizer.param_groups[0]["lr"] is step.learning_rate, "the optimiser has another learning rate"


@pytest.mark.parametrize("done", [3, DRAWN_STEPS, DRAWN_STEPS + 1])
def test_a_loaded_step_goes_on_as_before(done: int) -> None:
    """With the same examples, whether some are left of those drawn together, and at the same learning rate."""
    first, second = make_step(LONGER), make_step(LONGER)
    for _ in range(done):
        first()
    second.model.load_state_dict(first.model.state_dict())
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    for _ in range(DRAWN_STEPS + 1):
        first()
        second()
    assert float(second.learning_rate) == float(first.learning_rate)
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_step_has_examples_of_its_own() -> None:
    step = make_step(LONGER)
    seen = []
    original = step.objective.loss

    def noting(model: SymbolModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        seen.append(examples[0])
        return original(model, examples)

    step.objective.loss = noting  # type: ignore[method-assign]
    for _ in range(2 * DRAWN_STEPS):
        step()
    assert len(seen[0]) == 6 * (4 + 16)
    assert len({tuple(inputs_X.tolist()) for inputs_X in seen}) == 2 * DRAWN_STEPS


def test_loss_is_the_mean_over_bins_of_what_is_not_held_out() -> None:
    data = replace(CONFIG.data, bins=(4, 32), batch=64)
    step = make_step(replace(CONFIG, data=data))
    examples = one_step(step)
    loss, _ = step.objective.loss(step.model, examples)
    means = []
    for inputs_X, width in zip(examples[0].split([64 * width for width in data.bins]), data.bins, strict=True):
        inputs_BN = inputs_X.view(64, width)
        kept_BN = inputs_BN[~held_out(inputs_BN)]
        assert (len(kept_BN) < 64) == (width == 32), "short inputs are never held out"
        means.append(symbol_loss(step.model(kept_BN), TASK.answer(kept_BN)).mean())
    torch.testing.assert_close(loss, torch.stack(means).mean(), rtol=1e-5, atol=0)


def test_read_gives_means_and_begins_anew() -> None:
    each, all_three, losses = make_step(), make_step(), []
    for _ in range(3):
        each()
        all_three()
        losses.append(each.pop_metrics().loss)
    progress = all_three.pop_metrics()
    assert progress.loss == pytest.approx(sum(losses) / 3, rel=1e-6)
    assert 0 <= progress.accuracy <= 1
    assert progress.first_non_finite is None
    assert all_three.pop_metrics() == (0.0, 0.0, None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_loss_is_never_computed_in_half_precision(dtype: torch.dtype) -> None:
    logits_BNC, targets_BN = torch.randn(3, 5, 4).to(dtype), torch.randint(4, (3, 5))
    loss_B = symbol_loss(logits_BNC, targets_BN).mean(dim=1)
    assert loss_B.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exact_B = -logits_BNC.double().log_softmax(-1).gather(2, targets_BN[..., None])[..., 0].mean(1)
    torch.testing.assert_close(loss_B.double(), exact_B, rtol=1e-6, atol=0)
