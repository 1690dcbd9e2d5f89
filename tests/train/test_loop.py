"""Training: repeatable, resumable to the same bits, and safe whatever goes wrong."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from riffle.config import DataConfig, ModelConfig
from riffle.train import loop
from riffle.train import step as step_module
from riffle.train.loop import Interrupted, NonFiniteLoss
from riffle.train.metrics import symbol_loss
from riffle.train.record import Metrics, read_metrics
from riffle.train.run import Run, find_run

from .tiny import (
    TINY,
    assert_finite,
    assert_same_run,
    lines,
    resume,
    state,
    stop_after,
    temporary_files,
    train,
    train_until,
    with_train,
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(folder)
    return folder


def test_same_seed_same_bits(undisturbed: Path, tmp_path: Path) -> None:
    torch.manual_seed(12345)  # whatever the process did before
    train(tmp_path / "again")
    assert_same_run(undisturbed, tmp_path / "again")


def test_another_seed_other_weights(undisturbed: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", with_train(seed=1))
    a, b = state(undisturbed), state(tmp_path / "other")
    assert not any(torch.equal(a[name], b[name]) for name in a if name.startswith("model."))


def test_files_of_a_run(undisturbed: Path) -> None:
    files = {"config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "tensorboard"}
    assert {path.name for path in undisturbed.iterdir()} == files
    environment = json.loads((undisturbed / "environment.json").read_text())
    assert {"versions", "device", "threads", "platform", "command", "commit", "started"} <= environment.keys()
    assert {"riffle", "python", "torch", "numpy", "safetensors"} <= environment["versions"].keys()
    assert torch.__version__.startswith(environment["versions"]["torch"])
    assert environment["continued_from_step"] == 0
    assert Run(undisturbed).experiment == TINY


def test_lines_of_metrics(undisturbed: Path) -> None:
    logged = [line for line in read_metrics(undisturbed) if "loss" in line]
    assert [line["step"] for line in logged] == [5, 10, 15, 20, 25, 30]
    base = TINY.train.learning_rate * math.sqrt(96 / 8)
    for line in logged:
        assert 0 < line["loss"] < 10
        assert 0 <= line["accuracy"] <= 1
        assert line["steps_per_second"] > 0
        assert line["learning_rate"] == pytest.approx(base * (1 - (line["step"] - 1) / 30), rel=1e-6)
    evaluated = [line for line in read_metrics(undisturbed) if "accuracy/4" in line]
    assert [line["step"] for line in evaluated] == [10, 20, 30]
    assert all("accuracy/16" in line for line in evaluated)


@pytest.mark.parametrize("step", [1, 10, 17, 29])
def test_stopping_and_resuming_changes_nothing(
    undisturbed: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path / "run", step, monkeypatch)
    resume(run.folder)
    assert_same_run(undisturbed, run.folder)
    assert json.loads((run.folder / "environment.json").read_text())["continued_from_step"] == step


def test_stopping_three_times_changes_nothing(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_until(tmp_path, 3, monkeypatch)
    for step in (4, 21):
        with monkeypatch.context() as context:
            stop_after(step, context, signal.SIGINT)
            with pytest.raises(Interrupted):
                resume(tmp_path)
    resume(tmp_path)
    assert_same_run(undisturbed, tmp_path)


@pytest.mark.parametrize("changes", [{"noise": 0.01, "dropout": 0.0}, {"blocks": 2, "sharing": "minimal"}], ids=str)
def test_resuming_other_models(changes: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = replace(with_train(steps=8, evaluate_every=0), model=replace(TINY.model, **changes))
    train(tmp_path / "whole", experiment)
    train_until(tmp_path / "halves", 5, monkeypatch, experiment)
    resume(tmp_path / "halves", experiment)
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


def test_bf16_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = with_train(steps=8, evaluate_every=0, precision="bf16", label_smoothing=0.1)
    train(tmp_path / "whole", experiment)
    train_until(tmp_path / "halves", 5, monkeypatch, experiment)
    resume(tmp_path / "halves", experiment)
    assert_same_run(tmp_path / "whole", tmp_path / "halves")
    assert {t.dtype for name, t in state(tmp_path / "whole").items() if name.startswith("model.")} == {torch.float32}


def test_a_finished_run_stays_as_it_is(undisturbed: Path) -> None:
    before, written = state(undisturbed), (undisturbed / "checkpoint.safetensors").stat().st_mtime_ns
    resume(undisturbed)
    assert (undisturbed / "checkpoint.safetensors").stat().st_mtime_ns == written
    assert all(torch.equal(before[name], tensor) for name, tensor in state(undisturbed).items())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_so(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as context:
        stop_after(7, context, number)
        with pytest.raises(Interrupted, match="after step 7; everything is saved") as stop:
            train(tmp_path / "run")
    assert signal.Signals(number).name in str(stop.value)
    assert (stop.value.signal_number, stop.value.step) == (number, 7)
    assert Run(tmp_path / "run").saved_step() == 7
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers, "handlers were not restored"


def test_a_signal_during_the_last_step_is_no_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        stop_after(30, context)
        train(tmp_path / "run")
    assert Run(tmp_path / "run").saved_step() == 30


def test_a_second_signal_takes_effect_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(step_module.TrainStep):
        def _step(self) -> None:
            super()._step()
            if int(self.step) == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop, "TrainStep", Stopped)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run")


def test_training_in_a_thread(undisturbed: Path, tmp_path: Path) -> None:
    thread = threading.Thread(target=train, args=(tmp_path / "run", with_train()))
    thread.start()
    thread.join()
    assert_same_run(undisturbed, tmp_path / "run")


def spoil(monkeypatch: pytest.MonkeyPatch, at_step: int, spoilt: Callable[[Tensor], Tensor]) -> None:
    """Replace the loss of one step."""
    calls = 0

    def loss(logits_XC: Tensor, targets_X: Tensor, label_smoothing: float = 0.0) -> Tensor:
        nonlocal calls
        calls += 1
        loss_X = symbol_loss(logits_XC, targets_X, label_smoothing)
        return spoilt(loss_X) if calls == at_step else loss_X

    monkeypatch.setattr(step_module, "symbol_loss", loss)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("at_step", "saved"), [(8, 0), (10, 0), (11, 10), (26, 20)])
def test_non_finite_loss(
    value: float, at_step: int, saved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, at_step, lambda loss_B: loss_B * value)
    with pytest.raises(NonFiniteLoss, match=f"loss is not finite at step {at_step};") as error:
        train(tmp_path / "run", with_train(log_every=1000, evaluate_every=0))
    assert error.value.step == at_step
    assert "learning rate" in str(error.value)
    run = Run(tmp_path / "run")
    assert run.saved_step() == saved
    if saved:
        assert f"{run.checkpoint} at step {saved}" in str(error.value)
        assert_finite(run.folder)
    else:
        assert "no checkpoint exists yet" in str(error.value)
    assert all(math.isfinite(line["loss"]) for line in read_metrics(run.folder))


def test_non_finite_weights_are_not_saved_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The square root adds 0 to the loss and NaN to its gradient.
    spoil(monkeypatch, 20, lambda loss_B: loss_B + (loss_B * 0).sqrt())
    with pytest.raises(NonFiniteLoss, match=r"weights are not finite at step 20; .* at step 10"):
        train(tmp_path / "run", with_train(evaluate_every=0))
    assert Run(tmp_path / "run").saved_step() == 10
    assert_finite(tmp_path / "run")


def test_huge_learning_rate(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLoss):
        train(tmp_path / "run", with_train(learning_rate=1e37, checkpoint_every=1, evaluate_every=0))
    if Run(tmp_path / "run").saved_step():
        assert_finite(tmp_path / "run")


def test_full_disk_leaves_the_old_checkpoint(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path / "run", 15, monkeypatch)
    old, sync = run.checkpoint.read_bytes(), os.fsync

    def full(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            resume(run.folder)
    assert error.value.filename == str(run.checkpoint)
    assert run.checkpoint.read_bytes() == old
    assert temporary_files(run.folder) == []
    resume(run.folder)
    assert_same_run(undisturbed, run.folder)


def test_file_size_limit_leaves_the_old_checkpoint(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path / "run", 15, monkeypatch)
    old = run.checkpoint.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(old) - 1000, hard))
        with pytest.raises(OSError, match="File too large"):
            resume(run.folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.checkpoint.read_bytes() == old
    assert temporary_files(run.folder) == []
    resume(run.folder)
    assert_same_run(undisturbed, run.folder)


def test_metrics_that_cannot_be_written_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    metrics = Metrics(tmp_path)
    monkeypatch.setattr(metrics.curves, "add_scalar", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        metrics.write(1, loss=1.0)
    assert error.value.filename == str(tmp_path)
    metrics.close()


def test_metrics_of_a_later_attempt_replace_those_of_an_earlier(tmp_path: Path) -> None:
    first = Metrics(tmp_path)
    for step in (5, 10, 15, 20):
        first.write(step, loss=float(step))
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "lo')  # cut short by a kill
    second = Metrics(tmp_path, 10)
    assert lines(tmp_path) == [{"step": 5, "loss": 5.0}, {"step": 10, "loss": 10.0}]
    second.write(15, loss=0.5)
    second.close()
    assert [line["loss"] for line in lines(tmp_path)] == [5.0, 10.0, 0.5]
    assert curve(tmp_path, "loss") == [(5, 5.0), (10, 10.0), (15, 0.5)]


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_has_the_same_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path / "run", 10, monkeypatch)
    resume(run.folder)
    for name in ("loss", "accuracy", "learning_rate", "accuracy/4"):
        expected = [(line["step"], line[name]) for line in read_metrics(run.folder) if name in line]
        assert len(expected) >= 3
        actual = curve(run.folder, name)
        assert [step for step, _ in actual] == [step for step, _ in expected]
        assert [value for _, value in actual] == pytest.approx([value for _, value in expected], rel=1e-6)


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
            _ = Run(tmp_path).experiment


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
    ],
}


@pytest.mark.parametrize(
    ("section", "change"), [(s, change) for s, changes in IMPOSSIBLE.items() for change in changes], ids=str
)
def test_impossible_values_are_refused_before_anything_is_written(section: str, change: dict, tmp_path: Path) -> None:
    experiment = replace(TINY, **{section: replace(getattr(TINY, section), **change)})
    named = {"kind": "model", "noise": "dropout"}.get(name := next(iter(change)), name)
    with pytest.raises(ValueError, match=named) as error:
        Run.create(tmp_path / "run", experiment)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'reverse'"):
        Run.create(tmp_path / "run", replace(TINY, task="revers"))
    assert not (tmp_path / "run").exists()


def test_find_run_takes_the_newest_of_the_task(tmp_path: Path) -> None:
    assert find_run("reverse", tmp_path / "nothing") is None
    experiment = replace(with_train(steps=1, evaluate_every=0), model=ModelConfig(features=2))
    for age, (name, task) in enumerate([("old", "reverse"), ("new", "reverse"), ("other", "sort")]):
        run = train(tmp_path / name, replace(experiment, task=task))
        os.utime(run.checkpoint, (age, age))
    (tmp_path / "no-run").mkdir()
    (tmp_path / "no-run" / "checkpoint.safetensors").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "checkpoint.safetensors").touch()
    (tmp_path / "damaged" / "config.json").write_text("{")
    Run.create(tmp_path / "no-checkpoint", experiment)
    found = find_run("reverse", tmp_path)
    assert found is not None
    assert found.folder == tmp_path / "new"
    assert find_run("add", tmp_path) is None
