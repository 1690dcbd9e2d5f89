"""Training that starts with the weights of another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from riffle.train.run import Run

from .tiny import TINY, resume, train, train_until, with_train


def test_it_starts_where_the_other_run_ended(tmp_path: Path) -> None:
    first = train(tmp_path / "first", with_train(average=0.5))
    still = train(tmp_path / "still", with_train(start=str(first.folder), steps=1, learning_rate=1e-30, seed=7))
    started, ended = still.model().state_dict(), first.model().state_dict()
    assert all(torch.equal(started[name], value) for name, value in ended.items())
    assert still.saved_step() == 1, "its steps are its own"


def test_a_run_that_goes_on_does_not_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path / "first")
    further = with_train(start=str(first.folder), seed=7)
    whole = train(tmp_path / "whole", further)
    train_until(tmp_path / "parted", 10, monkeypatch, further)
    first.folder.rename(tmp_path / "elsewhere")
    parted = resume(tmp_path / "parted", further)
    for actual, expected in zip(parted.model().parameters(), whole.model().parameters(), strict=True):
        assert torch.equal(actual, expected)


def test_what_cannot_be_started_with(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.start must be the folder of a trained run, got nowhere"):
        Run.create(tmp_path / "run", with_train(start="nowhere"))
    first = train(tmp_path / "first", with_train(steps=1))
    wider = replace(with_train(start=str(first.folder)), model=replace(TINY.model, features=16))
    with pytest.raises(ValueError, match=r"first.* does not fit the model in .*run.*config\.json"):
        train(tmp_path / "run", wider)


def test_worst_cases_are_refused_where_there_are_none(tmp_path: Path) -> None:
    for task, share in (("rotate", 0.5), ("reverse", 1.5), ("reverse", -0.5)):
        config = replace(TINY, task=task, data=replace(TINY.data, worst=share))
        with pytest.raises(ValueError, match=r"data\.worst must be within 0\.\.1, and 0 for a task without"):
            Run.create(tmp_path / "run", config)
