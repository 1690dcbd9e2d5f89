"""RAdam is that of the paper's released code."""

from __future__ import annotations

import pytest
import torch
from nn.golden import assert_near, load
from torch import nn
from torch.nn import functional

from riffle.config import TrainConfig
from riffle.models import SequenceModel
from riffle.train.optim import RAdam, make_optimizer


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
