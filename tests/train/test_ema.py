"""Which weights a run is known by: the last ones, their average over steps, those that did best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from research.ship.card import model_card
from research.ship.ship import ship_run
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.train import loop
from riffle.train.ema import EMA, BestWeights
from riffle.train.objective import SymbolObjective
from riffle.train.run import Run
from riffle.train.step import TrainStep

from .tiny import TINY, lines, state, train, train_until, with_train


def weights(run: Any) -> list[Tensor]:
    return [parameter.detach() for parameter in run.model().parameters()]


@pytest.mark.parametrize(
    ("decay", "expected"), [(0.999, (1 + 2 + 3 + 4 + 5) / 5), (0.5, ((((1 + 2) / 2 + 3) / 2 + 4) / 2 + 5) / 2)]
)
def test_an_average_is_even_at_first(decay: float, expected: float) -> None:
    model = build(TINY.model, get_task("reverse"))
    average = EMA(model, decay)
    for step in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step + 1)
        average.update(torch.tensor(step))
    for parameter in average.model.parameters():
        torch.testing.assert_close(parameter, torch.full_like(parameter, expected))


def test_a_run_is_known_by_its_average(tmp_path: Path) -> None:
    config = with_train(average=0.9)
    run = train(tmp_path / "run", config)
    kept = state(run.folder)
    torch.manual_seed(TINY.train.seed)
    model = build(TINY.model, get_task("reverse"))
    step = TrainStep(config, model, SymbolObjective(config))
    expected = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for count in range(config.train.steps):
        step()
        share = max(1 / (count + 1), 0.1)
        expected = [mean + share * (p.detach() - mean) for mean, p in zip(expected, model.parameters(), strict=True)]
    for actual, mean in zip(weights(run), expected, strict=True):
        torch.testing.assert_close(actual, mean, rtol=1e-4, atol=1e-6)
    assert any(not torch.equal(kept[f"model.{name}"], tensor) for name, tensor in run.model().named_parameters())


def test_evaluations_are_of_the_average(tmp_path: Path) -> None:
    plain, averaged = train(tmp_path / "plain"), train(tmp_path / "averaged", with_train(average=0.9))

    def of(run: Any, what: str) -> list[float]:
        return [line[what] for line in lines(run.folder) if what in line]

    assert of(plain, "loss") == of(averaged, "loss"), "an average changes nothing in training"
    assert of(plain, "accuracy/16") != of(averaged, "accuracy/16")


def test_the_best_is_kept_and_of_equals_the_last() -> None:
    model = build(TINY.model, get_task("reverse"))
    choice = BestWeights()
    assert choice.state() == {}
    for step, accuracy in enumerate([0.5, 0.75, 0.75, 0.25]):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step)
        choice.update(step, {"256": accuracy, "512": 1 - accuracy}, model)
    again = BestWeights()
    again.load_state(choice.state())
    for each in (choice, again):
        assert (each.step, each.accuracy) == (2, 0.75)
        assert all((tensor == 2).all() for tensor in each.weights.values())


def test_a_run_is_known_by_its_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = iter([0.4, 0.6, 0.5])
    monkeypatch.setattr(SymbolObjective, "evaluate", lambda self, model: {"16": next(accuracies)})
    best = train(tmp_path / "best", with_train(keep="best"))
    monkeypatch.undo()
    there = train_until(tmp_path / "there", 20, monkeypatch)
    for actual, expected in zip(weights(best), weights(there), strict=True):
        assert torch.equal(actual, expected)
    assert (best.weights_step(), best.saved_step()) == (20, 30)
    assert (there.weights_step(), there.saved_step()) == (20, 20)
    ship_run(best, tmp_path / "shipped")
    shipped = Run(tmp_path / "shipped")
    assert (shipped.weights_step(), shipped.saved_step()) == (20, 30)
    assert "They are those after step 20, the best by accuracy at length 4." in model_card(shipped)
    for actual, expected in zip(weights(shipped), weights(best), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0.01)


@pytest.mark.gpu
def test_a_captured_step_averages_as_an_eager_one(tmp_path: Path) -> None:
    config = replace(with_train(average=0.9), model=replace(TINY.model, dropout=0.0, features=32))
    found = []
    for graph in (True, False):
        run = Run.create(tmp_path / str(graph), config)
        loop.train(run, device="cuda", graph=graph)
        found.append(weights(run))
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
