"""Muon and Adam; learning rate schedules; clipping and noise of gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from riffle.config import ModelConfig, TrainConfig
from riffle.nn import ShuffleExchange
from riffle.train.optim import (
    MUON_MOMENTUM,
    MUON_RMS,
    base_learning_rate,
    clip_and_perturb,
    make_optimizer,
    orthogonalise,
)
from riffle.train.schedule import Constant, LinearDecay, StableDecay

CPU = torch.device("cpu")


def test_base_learning_rates() -> None:
    assert base_learning_rate(TrainConfig(), ModelConfig(features=384)) == 0.00125 / 2


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


def test_a_rate_that_falls_at_the_end() -> None:
    seen = over(StableDecay(0.5, TrainConfig(steps=20), CPU))
    assert seen == pytest.approx([*[0.5] * 15, *(0.5 * left / 6 for left in (5, 4, 3, 2, 1))])


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


MUON = TrainConfig(optimizer="muon", weight_decay=0.5)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 4, 9), (1, 9, 4)])
def test_singular_vectors_stay_and_values_come_near_one(shape: tuple[int, ...]) -> None:
    u_KRR, _, v_KCC = torch.linalg.svd(torch.randn(shape, dtype=torch.float64))
    rank = min(shape[1:])
    values_R = torch.linspace(0.5, 2, rank, dtype=torch.float64)
    turned_KRC = orthogonalise(u_KRR[..., :rank] * values_R @ v_KCC[..., :rank, :])
    found_KRR = u_KRR[..., :rank].mT @ turned_KRC @ v_KCC[..., :rank, :].mT
    assert (found_KRR - torch.diag_embed(found_KRR.diagonal(dim1=1, dim2=2))).abs().max() < 1e-9
    assert 0.6 < found_KRR.diagonal(dim1=1, dim2=2).min() < found_KRR.diagonal(dim1=1, dim2=2).max() < 1.3


def test_the_matrices_of_the_paper_are_turned_each_by_itself() -> None:
    torch.manual_seed(0)
    model = ShuffleExchange(8)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = make_optimizer(model, MUON, torch.tensor(0.1))
    gradients = [torch.randn_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    adam = torch.optim.AdamW([nn.Parameter(each.clone()) for each in before], lr=0.1, eps=1e-5, weight_decay=0.0)
    for parameter, gradient in zip(adam.param_groups[0]["params"], gradients, strict=True):
        parameter.grad = gradient
    adam.step()
    names = [name for name, _ in model.named_parameters()]
    turned = [name for name in names if name.endswith(("gates.weight", "candidates_weight"))]
    assert len(turned) == 2 * 3
    for name, old, gradient, by_adam in zip(names, before, gradients, adam.param_groups[0]["params"], strict=True):
        new = model.get_parameter(name)
        if name not in turned:
            torch.testing.assert_close(new, by_adam)
            continue
        ahead = gradient * (1 - MUON_MOMENTUM + MUON_MOMENTUM * (1 - MUON_MOMENTUM))  # the mean began at 0
        for new_16, old_16, ahead_16 in zip(*(each.view(-1, 16, 16) for each in (new, old, ahead)), strict=True):
            wanted = old_16 * (1 - 0.1 * 0.5) - 0.1 * MUON_RMS * 4 * orthogonalise(ahead_16[None])[0]
            torch.testing.assert_close(new_16, wanted)


def test_a_model_without_switches_is_refused() -> None:
    with pytest.raises(ValueError, match="this model has none: take adamw"):
        make_optimizer(nn.Linear(3, 3), MUON, torch.tensor(0.1))
