"""Muon moves the matrices of switches by orthogonal steps, each by itself, and leaves the rest to Adam."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from riffle.config import TrainConfig
from riffle.nn import ShuffleExchange
from riffle.train.optim import MUON_MOMENTUM, MUON_RMS, make_optimizer, orthogonalise

from .tiny import assert_same_run, resume, train, train_until, with_train

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


def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_train(optimizer="muon", average=0.9)
    train(tmp_path / "whole", config)
    train_until(tmp_path / "parts", 14, monkeypatch, config)
    resume(tmp_path / "parts", config)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
