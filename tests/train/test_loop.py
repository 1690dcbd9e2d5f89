"""Training: repeatable, resumable to the same bits, logged, and able to learn."""

from __future__ import annotations

import json
import math
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from riffle.recipes import small
from riffle.tasks import get_task
from riffle.train import loop
from riffle.train import step as step_module
from riffle.train.checkpoint import write_checkpoint
from riffle.train.evaluate import evaluate
from riffle.train.loop import Interrupted
from riffle.train.run import MetricsWriter, Run, read_metrics

from .tiny import TINY, assert_same_run, lines, resume, state, stop_after, train, train_until, with_train


def test_same_seed_same_bits(undisturbed: Path, tmp_path: Path) -> None:
    torch.manual_seed(12345)  # whatever the process did before
    train(tmp_path / "again")
    assert_same_run(undisturbed, tmp_path / "again")
    train(tmp_path / "other", with_train(seed=1, steps=1))
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
    assert Run(undisturbed).config == TINY


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


@pytest.mark.parametrize("step", [1, 3, 10, 17, 29])
def test_stopping_and_resuming_changes_nothing(
    undisturbed: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stops = train_until(tmp_path / "run", step, monkeypatch), [step]
    for further in (step + 1, 21) if step == 3 else ():
        stop_after(further, monkeypatch, signal.SIGINT)
        with pytest.raises(Interrupted):
            resume(run.folder)
        stops.append(further)
        monkeypatch.undo()
    resume(run.folder)
    assert_same_run(undisturbed, run.folder)
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["continued_from_step"] == 0
    assert [sitting["continued_from_step"] for sitting in environment["resumed"]] == stops


@pytest.mark.parametrize("step", [16, 17])
def test_a_run_goes_on_on_another_kind_of_device(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generators of a GPU have states of 16 bytes; examples are then drawn anew, the same ones every time."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        run = train_until(folder, step, monkeypatch)
        elsewhere = dict.fromkeys(("random.sample", "random.drawn", "random.cuda"), torch.arange(16, dtype=torch.uint8))
        write_checkpoint(run.checkpoint, state(folder) | elsewhere)
        assert resume(folder).saved_step() == 30
    assert_same_run(*folders)


SHORT = with_train(steps=8, evaluate_every=0)
RESUMED = {
    "noise": (5, replace(SHORT, model=replace(TINY.model, noise=0.01, dropout=0.0))),
    "two blocks": (5, replace(SHORT, model=replace(TINY.model, blocks=2, sharing="minimal"))),
    "bf16": (5, with_train(steps=8, evaluate_every=0, precision="bf16", label_smoothing=0.1)),
    "muon": (14, with_train(optimizer="muon", average=0.9)),
    "before the first evaluation": (5, with_train(average=0.8, keep="best")),
    "best weights": (17, with_train(average=0.8, keep="best")),
}


@pytest.mark.parametrize("name", RESUMED)
def test_resuming_other_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, config = RESUMED[name]
    train(tmp_path / "whole", config)
    train_until(tmp_path / "halves", step, monkeypatch, config)
    resume(tmp_path / "halves", config)
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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)


def test_training_in_a_thread(undisturbed: Path, tmp_path: Path) -> None:
    thread = threading.Thread(target=train, args=(tmp_path / "run", with_train()))
    thread.start()
    thread.join()
    assert_same_run(undisturbed, tmp_path / "run")


def test_metrics_of_a_later_attempt_replace_those_of_an_earlier(tmp_path: Path) -> None:
    first = MetricsWriter(tmp_path)
    for step in (5, 10, 15, 20):
        first.write(step, loss=float(step))
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "lo')  # cut short by a kill
    second = MetricsWriter(tmp_path, 10)
    assert lines(tmp_path) == [{"step": 5, "loss": 5.0}, {"step": 10, "loss": 10.0}]
    second.write(15, loss=0.5)
    second.close()
    assert [line["loss"] for line in lines(tmp_path)] == [5.0, 10.0, 0.5]
    assert curve(tmp_path, "loss") == [(5, 5.0), (10, 10.0), (15, 0.5)]


@pytest.fixture(autouse=True)
def _count_event_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads the files of one second in the order of their names, in which 10 comes before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(1))


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


def test_reversal_is_learned_on_a_cpu_and_generalises(tmp_path: Path) -> None:
    config = small("reverse")
    assert config.data.longest == 32
    run = train(tmp_path / "reverse", replace(config, train=replace(config.train, steps=300)))
    trained, long = evaluate(run.model(), get_task("reverse"), [32, 256], examples=128, trained_length=32)
    assert trained.symbol_accuracy == 1.0
    assert trained.sequence_accuracy == 1.0
    assert long.symbol_accuracy >= 0.99
