"""A run's folder: what is refused before anything is written, how a run is found, how it starts from another one."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from riffle.config import DataConfig, ModelConfig
from riffle.train.run import Run, find_run

from .tiny import TINY, resume, train, train_until, with_train


def test_a_folder_of_another_configuration_lists_the_differences(undisturbed: Path) -> None:
    other = replace(TINY, task="sort", model=replace(TINY.model, features=16), data=DataConfig(bins=(8,), batch=4))
    with pytest.raises(ValueError, match="another configuration") as error:
        Run.resume(undisturbed, other)
    for part in (
        "task is 'reverse' there and 'sort' here",
        "model.features is 8 there and 16 here",
        "data.bins is (4, 16) there and (8,) here",
    ):
        assert part in str(error.value)
    assert "train." not in str(error.value)


def test_an_existing_folder_is_not_written_over(undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match=r"exists already: .*--resume.*--out"):
        Run.create(undisturbed, TINY)
    Run.create(tmp_path, TINY)  # an empty folder is fine


@pytest.mark.parametrize("what", ["below a file", "no permission"])
def test_a_folder_that_cannot_be_written(what: str, tmp_path: Path) -> None:
    if what == "below a file":
        (tmp_path / "file").touch()
        folder = tmp_path / "file" / "run"
    else:
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        tmp_path.chmod(0o500)
        folder = tmp_path / "run"
    with pytest.raises(OSError) as error:  # noqa: PT011, the system words it
        Run.create(folder, TINY)
    assert str(folder) in str(error.value)


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no run folder .*; train one with: riffle train"):
        Run(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"no run folder: it has no config\.json"):
        Run(tmp_path)
    for content in ("", "{", "[1, 2]", "3", '{"task": "sort", "colour": 3}', '{"task": "sort", "model": null}', "{}"):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"config\.json is no configuration of a run"):
            _ = Run(tmp_path).config


IMPOSSIBLE = {
    "model": [{"kind": "none"}, {"features": 7}, {"features": 0}, {"blocks": 0}, {"dropout": 1.0}, {"noise": 0.1}],
    "data": [{"bins": ()}, {"bins": (0, 4)}, {"bins": (8, 4)}, {"bins": (4, 4)}, {"batch": 0}, {"shorter": 1.5}],
    "train": [
        {"steps": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"weight_decay": -1.0},
        {"label_smoothing": 1.5},
        {"log_every": 0},
        {"evaluate_every": -1},
        {"evaluate_lengths": (0,)},
        {"checkpoint_every": 0},
        {"average": 1.0},
        {"keep": "best", "evaluate_every": 0},
    ],
}


@pytest.mark.parametrize(
    ("section", "change"), [(s, change) for s, changes in IMPOSSIBLE.items() for change in changes], ids=str
)
def test_impossible_values_are_refused_before_anything_is_written(section: str, change: dict, tmp_path: Path) -> None:
    config = replace(TINY, **{section: replace(getattr(TINY, section), **change)})
    named = {"kind": "model", "noise": "dropout"}.get(name := next(iter(change)), name)
    with pytest.raises(ValueError, match=named) as error:
        Run.create(tmp_path / "run", config)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'reverse'"):
        Run.create(tmp_path / "run", replace(TINY, task="revers"))
    assert not (tmp_path / "run").exists()


def test_find_run_takes_the_newest_of_the_task(tmp_path: Path) -> None:
    assert find_run("reverse", tmp_path / "nothing") is None
    config = replace(with_train(steps=1, evaluate_every=0), model=ModelConfig(features=2))
    for age, (name, task) in enumerate([("old", "reverse"), ("new", "reverse"), ("other", "sort")]):
        run = train(tmp_path / name, replace(config, task=task))
        os.utime(run.checkpoint, (age, age))
    (tmp_path / "no-run").mkdir()
    (tmp_path / "no-run" / "checkpoint.safetensors").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "checkpoint.safetensors").touch()
    (tmp_path / "damaged" / "config.json").write_text("{")
    Run.create(tmp_path / "no-checkpoint", config)
    found = find_run("reverse", tmp_path)
    assert found is not None
    assert found.folder == tmp_path / "new"
    assert find_run("add", tmp_path) is None


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
