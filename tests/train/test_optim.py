"""Optimisers are those of the authors and of Muon's; learning rate schedules; clipping and noise of gradients."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from nn.golden import assert_near, load
from torch import nn
from torch.nn import functional

from riffle.config import ModelConfig, TrainConfig
from riffle.models import SequenceModel
from riffle.nn import ShuffleExchange
from riffle.recipes import preprint
from riffle.train.optim import (
    MUON_MOMENTUM,
    MUON_RMS,
    AdaMax,
    RAdam,
    base_learning_rate,
    clip_and_perturb,
    make_optimizer,
    orthogonalise,
)
from riffle.train.schedule import Constant, LinearDecay, Plateau, ShortPlateau

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


def rates(schedule: Plateau, losses: list[float]) -> list[float]:
    """The learning rate after each period of constant losses."""
    out = []
    step = torch.zeros((), dtype=torch.int64)
    for loss in losses:
        for _ in range(schedule.period):
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


def test_the_rate_of_the_preprint_falls_when_three_are_above_the_one_before_and_starts_anew() -> None:
    schedule = ShortPlateau(1.0, TrainConfig(steps=10_000), CPU)
    #                     falls after 2 3 4, which are above 1; then 5 6 7 are above 4, but that is forgotten
    losses = [5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 2.0]
    assert rates(schedule, losses) == pytest.approx([1, 1, 1, 1, 0.7, 0.7, 0.7, 0.7, 0.49, 0.49, 0.49])


@pytest.mark.parametrize(("train", "floor"), [(TrainConfig(steps=10_000), 60), (preprint("add").train, 40)])
def test_the_rate_has_a_floor(train: TrainConfig, floor: int) -> None:
    schedule = Plateau(1.0, train, CPU)
    assert rates(schedule, [float(n) for n in range(1, 25)])[-1] == pytest.approx(1 / floor)


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


class Weights(nn.Module):
    """A matrix, a bias and an embedding."""

    def __init__(self, **arrays: torch.Tensor) -> None:
        super().__init__()
        self.w, self.bias = nn.Parameter(arrays["w"]), nn.Parameter(arrays["b"])
        self.e = nn.Embedding.from_pretrained(arrays["e"], freeze=False)


@pytest.mark.parametrize("total", [0, 60])
def test_every_step_is_that_of_the_released_code(total: int) -> None:
    golden = load("optimizer_radam")
    model = Weights(**{name: torch.from_numpy(golden[f"{name}0"].copy()) for name in "wbe"})
    rate = torch.tensor(golden.meta["lr"])
    decay = golden.meta["L2_decay"]
    optimizer = make_optimizer(model, TrainConfig(optimizer="radam", weight_decay=decay), rate)
    assert isinstance(optimizer, RAdam)
    for step in range(40):
        rate.fill_(golden.meta["lr"] * (1 - (step + 1) / total if total else 1))
        model.w.grad, model.bias.grad, model.e.weight.grad = (
            torch.from_numpy(golden[name][step]) for name in ("grad_w", "grad_b", "grad_e_dense")
        )
        optimizer.step()
        for name, weight in (("w", model.w), ("b", model.bias), ("e", model.e.weight)):
            assert_near(f"{name} after {step}", weight, golden[f"{name}_total{total}"][step], 1e-5)


def test_twelve_steps_of_training_are_those_of_the_released_code() -> None:
    golden = load("train_steps")
    model = SequenceModel.from_official(golden.under("var_step0/"), blocks=golden.meta["blocks"])
    model.train()
    rate = torch.tensor(0.0)
    optimizer = make_optimizer(model, TrainConfig(optimizer="radam"), rate)
    for step in range(1, golden.meta["steps"] + 1):
        rate.fill_(golden.meta["learning_rate"] * (1 - step / golden.meta["training_iters"]))
        inputs, answers = (
            [torch.from_numpy(golden[f"{what}/step{step}/bin{width}"]) for width in golden.meta["bins"]]
            for what in "xy"
        )
        losses = [
            functional.cross_entropy(scores.flatten(0, 1), answer.flatten())
            for scores, answer in zip(model.forward_batches(inputs), answers, strict=True)
        ]
        optimizer.zero_grad()
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
        assert loss.item() == pytest.approx(golden["loss"][step - 1], rel=1e-5)
        if step in golden.meta["snapshots"]:
            expected = SequenceModel.from_official(golden.under(f"var_step{step}/"), blocks=golden.meta["blocks"])
            for name, weight in expected.state_dict().items():
                assert_near(f"{name} after {step}", model.state_dict()[name], weight.numpy(), 1e-4)


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
