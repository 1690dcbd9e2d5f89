"""Optimisers and schedules of the authors' codes, against steps that these codes made."""

from __future__ import annotations

import copy

import pytest
import torch
from nn.golden import assert_near, load
from torch import nn
from torch.nn import functional

from research.optimizers import AdaMax, Plateau, RAdam, ShortPlateau
from riffle.config import BaseModelConfig, TrainConfig
from riffle.models import SequenceModel
from riffle.train.optim import base_learning_rate, make_optimizer

CPU = torch.device("cpu")


def test_every_step_is_that_of_the_authors() -> None:
    golden = load("optimizer_adamax")
    weight = nn.Parameter(torch.from_numpy(golden["w0"]))
    optimizer = make_optimizer(
        nn.ParameterList([weight]), TrainConfig(optimizer="adamax", weight_decay=0.0), torch.tensor(golden.meta["lr"])
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


def test_the_rate_has_a_floor() -> None:
    for schedule, floor in ((Plateau, 60), (ShortPlateau, 40)):
        falling = rates(schedule(1.0, TrainConfig(steps=10_000), CPU), [float(n) for n in range(1, 60)])
        assert falling[-1] == pytest.approx(1 / floor)


def test_adamax_has_a_rate_of_its_own_and_no_decay() -> None:
    adamax = TrainConfig(optimizer="adamax", learning_rate=0.005)
    assert [base_learning_rate(adamax, BaseModelConfig(kind="any", features=f)) for f in (48, 384)] == [0.01, 0.00125]
    with pytest.raises(ValueError, match=r"train\.weight_decay must be 0 for adamax"):
        make_optimizer(nn.Linear(3, 3), TrainConfig(optimizer="adamax", weight_decay=0.1), torch.tensor(0.1))
