"""A run so small that a test can afford it, and what two runs have to have in common to be the same."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from riffle.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from riffle.train import loop
from riffle.train.checkpoint import read_checkpoint
from riffle.train.run import Run, read_metrics
from riffle.train.step import TrainStep

TINY = RunConfig(
    task="reverse",
    model=ModelConfig(features=8, dropout=0.2),
    data=DataConfig(bins=(4, 16), batch=4),
    train=TrainConfig(steps=30, log_every=5, evaluate_every=10, evaluate_lengths=(4, 16), checkpoint_every=10),
)


def with_train(**changes: Any) -> RunConfig:
    return replace(TINY, train=replace(TINY.train, **changes))


def train(folder: Path, config: RunConfig = TINY) -> Run:
    run = Run.create(folder, config)
    loop.train(run)
    return run


def stop_after(step: int, monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGTERM) -> None:
    """Let a signal arrive during a step of the next training."""

    class Stopped(TrainStep):
        def _step(self) -> None:
            super()._step()
            if int(self.step) == step:
                signal.raise_signal(number)

    monkeypatch.setattr(loop, "TrainStep", Stopped)


def train_until(folder: Path, step: int, monkeypatch: pytest.MonkeyPatch, config: RunConfig = TINY) -> Run:
    """A run that was stopped after a step."""
    with monkeypatch.context() as context:
        stop_after(step, context)
        with pytest.raises(loop.Interrupted):
            train(folder, config)
    run = Run(folder)
    assert run.saved_step() == step
    return run


def resume(folder: Path, config: RunConfig = TINY) -> Run:
    run = Run.resume(folder, config)
    loop.train(run)
    return run


def state(folder: Path) -> dict[str, Tensor]:
    return read_checkpoint(folder / "checkpoint.safetensors")


def lines(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the one number that is never the same twice."""
    return [{key: v for key, v in line.items() if key != "steps_per_second"} for line in read_metrics(folder)]


def last_step(folder: Path) -> int:
    """The last step on record."""
    recorded = read_metrics(folder)
    return recorded[-1]["step"] if recorded else 0


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimiser, random states and every logged number are equal, bit for bit."""
    a, b = state(one), state(other)
    assert a.keys() == b.keys()
    assert any(name.startswith("model.") for name in a)
    assert any(name.startswith("optimizer.") for name in a)
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different, f"{different} differ"
    assert lines(one) == lines(other)


def assert_finite(folder: Path) -> None:
    assert all(tensor.isfinite().all() for tensor in state(folder).values() if tensor.is_floating_point())


def temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]
