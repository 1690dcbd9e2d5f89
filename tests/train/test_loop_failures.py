"""Training when something goes wrong: losses that are not finite, full disks, not enough memory."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from cli.riffle_command import small_files
from torch import Tensor

from riffle.nn.switch import SwitchUnit
from riffle.train import objective as objective_module
from riffle.train.evaluate import symbol_loss
from riffle.train.loop import EvaluationFailed, NonFiniteLoss
from riffle.train.run import MetricsWriter, Run, read_metrics
from riffle.train.step import TrainStep

from .tiny import assert_finite, assert_same_run, resume, state, temporary_files, train, train_until, with_train


def spoil(monkeypatch: pytest.MonkeyPatch, at_step: int, spoilt: Callable[[Tensor], Tensor]) -> None:
    """Replace the loss of one step."""
    calls = 0

    def loss(logits_XC: Tensor, targets_X: Tensor, label_smoothing: float = 0.0) -> Tensor:
        nonlocal calls
        calls += 1
        loss_X = symbol_loss(logits_XC, targets_X, label_smoothing)
        return spoilt(loss_X) if calls == at_step else loss_X

    monkeypatch.setattr(objective_module, "symbol_loss", loss)


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
        corrected = with_train(learning_rate=0.001)
        Run.create(tmp_path / "run", corrected).lock.release()
        assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json"}, (
            "the corrected run takes it over"
        )
        with pytest.raises(FileExistsError, match="exists already"):  # a configuration alone may be anybody's
            Run.create(tmp_path / "run", corrected)
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


@pytest.mark.parametrize("reason", ["No space left on device", "File too large"])
def test_a_full_disk_leaves_the_old_checkpoint(
    reason: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path / "run", 15, monkeypatch)
    old, sync = run.checkpoint.read_bytes(), os.fsync

    def full(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as context:
        if reason == "No space left on device":
            context.setattr(os, "fsync", full)
        limit = small_files(len(old) - 1000) if reason == "File too large" else nullcontext()
        with limit, pytest.raises(OSError, match=reason) as error:
            resume(run.folder)
    assert error.value.filename == str(run.checkpoint)
    assert run.checkpoint.read_bytes() == old
    assert temporary_files(run.folder) == []
    resume(run.folder)
    assert_same_run(undisturbed, run.folder)


def test_metrics_that_cannot_be_written_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    metrics = MetricsWriter(tmp_path)
    monkeypatch.setattr(metrics.curves, "add_scalar", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        metrics.write(1, loss=1.0)
    assert error.value.filename == str(tmp_path)
    metrics.close()


def run_out_of_memory(*arguments: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.\nOf the allocated memory ...")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_that_does_not_fit(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "forward":
        monkeypatch.setattr(SwitchUnit, "pairs", run_out_of_memory)
    else:
        monkeypatch.setattr(torch.Tensor, "backward", run_out_of_memory)
    with pytest.raises(torch.OutOfMemoryError) as error:
        train(tmp_path / "run")
    assert str(error.value) == (
        "out of GPU memory in a step of data.batch=4 examples of each of data.bins=[4, 16]: "
        "choose a smaller batch or shorter bins"
    )


def fail_to_allocate(*arguments: object) -> None:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried ...")


write_line = MetricsWriter.write


def fail_before_the_line(metrics: MetricsWriter, step: int, **values: float) -> None:
    if "loss" not in values:
        raise KeyboardInterrupt
    write_line(metrics, step, **values)


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("moment", ["evaluation", "line of metrics"])
def test_a_failed_evaluation_loses_nothing(
    moment: str, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_train(keep=keep, checkpoint_every=1000)
    whole = train(tmp_path / "whole", config)
    with monkeypatch.context() as context:
        if moment == "evaluation":
            context.setattr(TrainStep, "evaluate", fail_to_allocate)
            with pytest.raises(
                EvaluationFailed, match=r"at step 10 failed: out of memory; .* saved in .*: continue with --resume"
            ):
                train(tmp_path / "run", config)
        else:
            context.setattr(MetricsWriter, "write", fail_before_the_line)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "run", config)
    assert Run(tmp_path / "run").saved_step() == 10
    resume(tmp_path / "run", config)
    assert_same_run(whole.folder, tmp_path / "run")


def test_settings_that_do_not_change_the_training_may_change(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path / "run", 7, monkeypatch)
    changed = with_train(log_every=3, evaluate_every=4, evaluate_lengths=(8,), checkpoint_every=9)
    resume(run.folder, changed)
    assert Run(run.folder).config == changed
    a, b = state(undisturbed), state(run.folder)
    assert all(torch.equal(a[name], b[name]) for name in a if name != "sums")  # sums since the last line
    lengths = [name for line in read_metrics(run.folder) if line["step"] > 7 for name in line if "accuracy/" in name]
    assert lengths == ["accuracy/score", "accuracy/8", "accuracy/sequences/8"] * 7


def test_settings_that_choose_the_best_weights_may_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path / "run", 17, monkeypatch, with_train(keep="best"))
    for changes in ({"evaluate_every": 4}, {"evaluate_lengths": (4,)}):
        with pytest.raises(ValueError, match=f"another configuration: train.{next(iter(changes))} is"):
            Run.resume(run.folder, with_train(keep="best", **changes))
    Run.resume(run.folder, with_train(keep="best", log_every=1))
    unchosen = train_until(tmp_path / "unchosen", 7, monkeypatch, with_train(keep="best"))
    Run.resume(unchosen.folder, with_train(keep="best", evaluate_lengths=(16,), evaluate_every=9))
