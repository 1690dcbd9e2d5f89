"""AdaMax is the authors'; the learning rate falls when the loss does not; noise and clipping of gradients."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from nn.golden import assert_near, load
from torch import nn

from riffle.config import ModelConfig, TrainConfig
from riffle.train.optim import AdaMax, base_learning_rate, clip_and_perturb, make_optimizer
from riffle.train.schedule import PLATEAU_PERIOD, Constant, LinearDecay, Plateau

CPU = torch.device("cpu")


def test_every_step_is_that_of_the_authors() -> None:
    golden = load("optimizer_adamax")
    weight = nn.Parameter(torch.from_numpy(golden["w0"]))
    optimizer = make_optimizer(
        nn.ParameterList([weight]), TrainConfig(optimizer="adamax"), torch.tensor(golden.meta["lr"])
    )
    assert isinstance(optimizer, AdaMax)
    for step, gradient in enumerate(golden["grad_w"]):
        weight.grad = torch.from_numpy(gradient)
        optimizer.step()
        assert_near(f"weights after {step}", weight, golden["w"][step], 1e-6)
        assert_near(f"mean after {step}", optimizer.state[weight]["mean"], golden["m"][step], 1e-6)
        assert_near(f"norm after {step}", optimizer.state[weight]["norm"], golden["v"][step], 1e-6)


def test_a_loaded_optimiser_goes_on_as_the_saved_one() -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [AdaMax([weight], torch.tensor(0.1)) for weight in weights]
    gradients = torch.randn(6, 3)
    for gradient in gradients[:3]:
        weights[0].grad = gradient
        optimizers[0].step()
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    weights[1].data.copy_(weights[0].data)
    for gradient in gradients[3:]:
        for weight, optimizer in zip(weights, optimizers, strict=True):
            weight.grad = gradient
            optimizer.step()
    assert torch.equal(weights[0], weights[1])


def test_base_learning_rates() -> None:
    narrow, wide = ModelConfig(features=48), ModelConfig(features=384)
    adamax = TrainConfig(optimizer="adamax", learning_rate=0.005)
    assert [base_learning_rate(adamax, model) for model in (narrow, wide)] == [0.01, 0.00125]
    assert base_learning_rate(TrainConfig(), wide) == 0.00125 / 2


def rates(schedule: LinearDecay, losses: list[float]) -> list[float]:
    """The learning rate after each period of constant losses."""
    out = []
    step = torch.zeros((), dtype=torch.int64)
    for loss in losses:
        for _ in range(PLATEAU_PERIOD):
            schedule.before_step(step)
            schedule.after_step(torch.tensor(loss))
            step += 1
        schedule.before_step(step)
        out.append(float(schedule.rate))
    return out


def test_the_rate_falls_when_two_averages_are_above_the_one_before() -> None:
    schedule = Plateau(1.0, TrainConfig(steps=10_000), CPU)
    #                      first  better  worse  worse: falls  better  worse  still above .5: falls  better than either
    losses = [3.0, 1.0, 2.0, 1.5, 0.5, 0.9, 0.8, 0.4]
    assert rates(schedule, losses) == pytest.approx([1, 1, 1, 0.7, 0.7, 0.7, 0.49, 0.49])


def test_the_rate_has_a_floor() -> None:
    schedule = Plateau(1.0, TrainConfig(steps=10_000), CPU)
    assert rates(schedule, [float(n) for n in range(1, 25)])[-1] == pytest.approx(1 / 60)


def over(schedule: LinearDecay) -> list[float]:
    """The learning rate of every step of a run."""
    seen = []
    for step in range(schedule.train.steps):
        schedule.before_step(torch.tensor(step))
        seen.append(float(schedule.rate))
    return seen


def test_warmup() -> None:
    seen = over(LinearDecay(1.0, TrainConfig(steps=100, warmup=10), CPU))
    assert seen[:3] == pytest.approx([0.1, 0.2 * 0.99, 0.3 * 0.98])
    assert seen[50] == pytest.approx(0.5)


def test_a_rate_that_does_not_fall() -> None:
    seen = over(Constant(0.5, TrainConfig(steps=20, warmup=4), CPU))
    assert seen == pytest.approx([0.125, 0.25, 0.375, *[0.5] * 17])


def with_gradients() -> nn.Module:
    model = nn.Linear(40, 50)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def test_noise_is_truncated_and_follows_the_learning_rate() -> None:
    model = with_gradients()
    clip_and_perturb(model, TrainConfig(gradient_noise=1e-4), torch.tensor(0.5), torch.default_generator)
    assert model.weight.grad is not None
    noise = model.weight.grad / (0.5 * 1e-4)
    assert 1.9 < float(noise.abs().max()) <= 2.0001
    assert float(noise.std()) == pytest.approx(0.88, abs=0.03)
    assert float(noise.mean()) == pytest.approx(0, abs=0.05)


def test_clipping_and_no_change_by_default() -> None:
    model = with_gradients()
    assert model.weight.grad is not None
    model.weight.grad[0, 0] = 5.0
    clip_and_perturb(model, TrainConfig(), torch.tensor(0.5), torch.default_generator)
    assert float(model.weight.grad.norm()) == 5.0
    clip_and_perturb(model, TrainConfig(clip=2.0), torch.tensor(0.5), torch.default_generator)
    assert math.isclose(float(model.weight.grad.norm()), 2.0, rel_tol=1e-4)
