"""Every model trains, stops, resumes, is saved, loaded, evaluated and refused through the same code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from research.baselines.configs import RecurrentConfig
from riffle.config import MODELS, DataConfig, RunConfig, override
from riffle.models.build import build, symbol_models
from riffle.recipes import small, with_model
from riffle.tasks import TASKS, get_task
from riffle.train.evaluate import evaluate
from riffle.train.objective import SymbolObjective
from riffle.train.run import check_config
from riffle.train.step import TrainStep

from .tiny import TINY, assert_finite, assert_same_run, resume, train, train_until

TASK = get_task("reverse")
SMALLER = {"transformer": ["model.layers=2", "model.heads=2"], "universal-transformer": ["model.layers=3"]}


def config_of(kind: str, *changes: str) -> RunConfig:
    return override(with_model(TINY, kind), ["model.features=8", *SMALLER.get(kind, []), *changes])


@pytest.mark.parametrize("kind", symbol_models())
def test_a_stopped_run_ends_as_one_that_was_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(kind, "model.halting=true") if kind == "universal-transformer" else config_of(kind)
    run = train(tmp_path / "whole", config)
    train_until(tmp_path / "parts", 13, monkeypatch, config)
    resume(tmp_path / "parts", config)
    assert_same_run(run.folder, tmp_path / "parts")
    assert_finite(run.folder)
    model, x_BN = run.model(), torch.randint(0, TASK.symbols, (2, 7))
    assert not model.training
    assert 0 <= evaluate(model, TASK, [5], examples=8)[0].symbol_accuracy <= 1
    assert torch.equal(model(x_BN), run.model()(x_BN))


def test_a_run_of_mixed_even_lengths(tmp_path: Path) -> None:
    changes = ["task=add", "model.pad=even", "data.bins=6,8,14", "train.steps=2", "train.evaluate_every=0"]
    run = train(tmp_path / "run", override(TINY, changes))
    assert run.model().network.pad == "even"
    task = get_task("add")
    for text, cells in (("1+1", 6), ("101101+10111", 13)):
        filled = run.padded(task.parse([text]))
        assert len(filled) == cells, "not filled up to 16 cells, but to the smallest bin at least"
        assert run.model()(torch.tensor([filled])).shape == (1, cells, task.classes)


@pytest.mark.parametrize("kind", symbol_models())
def test_many_batches_are_what_each_is_alone(kind: str) -> None:
    model = build(config_of(kind).model, TASK).eval()
    batches = [torch.randint(0, TASK.symbols, (rows, width)) for rows, width in ((3, 8), (2, 1), (4, 5))]
    for together, batch in zip(model.forward_batches(batches), batches, strict=True):
        torch.testing.assert_close(together, model(batch), rtol=1e-4, atol=1e-5)
    assert model.extra_loss().shape == ()


LEARNING = {  # features, steps, learning rate, share of right symbols at the end
    "shuffle-exchange": (24, 150, 0.005, 0.95),
    "dngpu": (24, 250, 0.005, 0.9),
    "preprint": (24, 150, 0.005, 0.95),
    "variant": (24, 150, 0.005, 0.95),
    "universal-transformer": (48, 300, 0.01, 0.9),
    "transformer": (48, 400, 0.01, 0.8),
    "lstm": (48, 400, 0.01, 0.75),
    "gru": (48, 400, 0.01, 0.75),
    "causal": (24, 100, 0.01, 0.9),
    "causal-transformer": (24, 100, 0.01, 0.5),
    "causal-linear-attention": (24, 100, 0.01, 0.5),
    "causal-gru": (24, 100, 0.01, 0.9),
}


@pytest.mark.parametrize("kind", symbol_models())
def test_a_small_version_learns_to_reverse_or_to_add_up(kind: str) -> None:
    features, steps, rate, expected = LEARNING[kind]
    task = get_task("running-sum" if MODELS[kind].causal else "reverse")
    config = override(
        with_model(replace(small(task.name), data=DataConfig(bins=(4,), batch=32)), kind),
        [
            *(f"model.features={features}", "model.dropout=0", *SMALLER.get(kind, [])),
            *(f"train.steps={steps}", f"train.learning_rate={rate}", f"train.warmup={steps // 10}"),
        ],
    )
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, task), SymbolObjective(config))
    for _ in range(steps - 50):
        step()
    step.pop_metrics()
    for _ in range(50):
        step()
    assert step.pop_metrics().accuracy > expected


def test_an_answer_is_never_longer_than_a_task_says() -> None:
    generator = torch.Generator().manual_seed(0)
    for task in TASKS.values():
        for length in (1, 2, 3, 8, 17, 33):
            batch = task.sample(64, length, generator=generator)
            position_N = torch.arange(1, batch.inputs.shape[1] + 1)
            given_B, answered_B = (torch.where(x != 0, position_N, 0).amax(1) for x in batch)
            assert (answered_B <= task.reach * given_B).all(), (task.name, length)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_network_that_reads_first_answers_as_if_blanks_followed(kind: str) -> None:
    torch.manual_seed(0)
    model = build(RecurrentConfig(kind=kind, features=8, reads_first=True, dropout=0.0), TASK).eval()
    cells_BND = torch.randn(2, 5, 8)
    state_BND = torch.cat([cells_BND, torch.zeros(2, 5, 8)], dim=1)
    for layer in model.layers:  # type: ignore[union-attr]  # a module list
        assert not layer.bidirectional
        state_BND, _ = layer(state_BND)
    torch.testing.assert_close(model.forward_cells(cells_BND), model.output(state_BND[:, 5:]))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["model.blocks=2"],
            "unknown option 'model.blocks'; .*options are model.kind, model.features, model.dropout, ",
        ),
        (["train.optimizer=sgd"], "unknown optimizer 'sgd'; choose one of adamw, muon"),
        (["train.schedule=cosine"], "unknown schedule 'cosine'; choose one of linear, constant"),
        (["train.clip=-1"], "train.clip must be at least 0"),
        (["train.warmup=-1"], "train.warmup must be at least 0"),
    ],
)
def test_mistakes_are_named(changes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_config(config_of("dngpu", *changes))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", symbol_models())
def test_a_step_is_one_graph_on_a_gpu(kind: str, precision: str) -> None:
    changes = [f"train.precision={precision}", "train.gradient_noise=0.0001", "train.clip=1"]
    if kind == "universal-transformer":
        changes.append("model.halting=true")
    config = config_of(kind, *changes)
    step = TrainStep(config, build(config.model, TASK, device="cuda"), SymbolObjective(config))
    for _ in range(8):
        step()
    assert step.graph is not None
    progress = step.pop_metrics()
    assert progress.first_non_finite is None
    assert int(step.step) == 8
    assert all(parameter.isfinite().all() for parameter in step.model.parameters())
