"""A real process is stopped, interrupted, killed or doubled; what comes after is as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.riffle_command import ForkedCommand

from riffle.files import FolderInUse
from riffle.train.run import Run

from .tiny import assert_same_run, last_step, resume, train, with_train

STEPS = 200
CONFIG = with_train(steps=STEPS, evaluate_every=0, checkpoint_every=7)
"""Checkpoints and log lines do not fall together, so a kill can part them."""
SETTINGS = ["model.features=8", "model.dropout=0.2", "model.noise=0", "data.bins=4,16", "data.batch=4"]
SETTINGS += [f"train.steps={STEPS}", "train.log_every=5", "train.evaluate_every=0", "train.checkpoint_every=7"]
SETTINGS += ["train.evaluate_lengths=4,16"]


def command(folder: Path, *, again: bool = False) -> list[str]:
    options = ["--resume"] if again else [part for setting in SETTINGS for part in ("--set", setting)]
    return ["train", "reverse", "--recipe", "paper", "--device", "cpu", "--out", str(folder), *options]


def start_python(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "riffle", *command(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(folder: Path, *, again: bool = False) -> ForkedCommand:
    return ForkedCommand(*command(folder, again=again))


def wait_for(process: subprocess.Popen[str] | ForkedCommand, folder: Path, step: int) -> None:
    """Wait until a step of this process, not of an earlier one, is on record."""
    before, deadline = last_step(folder), time.monotonic() + 120
    while last_step(folder) < max(step, before + 1):
        assert process.poll() is None, process.communicate(timeout=1)
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(folder, CONFIG)
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_to_a_process(undisturbed: Path, tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "run"
    with start_python(folder) as process:
        wait_for(process, folder, 10)
        process.send_signal(number)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert output == ""
    step = Run(folder).saved_step()
    assert 10 <= step < STEPS
    message = errors.splitlines()[-1]
    assert f"stopped by {signal.Signals(number).name} after step {step}; everything is saved" in message
    assert f"riffle train reverse --resume --out {folder}" in message
    assert "Traceback" not in errors
    resume(folder, CONFIG)
    assert_same_run(undisturbed, folder)


def test_kills_at_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", random.Random(5)
    for kill in range(3):
        with start(folder, again=kill > 0) as process:
            wait_for(process, folder, 50 * kill + moments.randrange(5, 30))
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert Run(folder).saved_step() > 0, "no whole checkpoint is left"
    assert Run(folder).saved_step() < STEPS
    resume(folder, CONFIG)
    assert_same_run(undisturbed, folder)


def test_another_trainer_is_refused_while_one_trains(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder) as process:
        wait_for(process, folder, 10)
        process.send_signal(signal.SIGSTOP)
        for another in (lambda: resume(folder, CONFIG), lambda: train(folder, CONFIG)):
            with pytest.raises(FolderInUse, match=f"{folder} is in use by process {process.pid} on "):
                another()
        assert Run(folder).model() is not None, "reading is free"
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=120) == 0
    assert_same_run(undisturbed, folder)


def test_two_trainers_at_once(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder) as first, start(folder) as second:
        errors = {process: process.communicate(timeout=120)[1] for process in (first, second)}
    refused, owner = (first, second) if first.returncode else (second, first)
    assert (owner.returncode, refused.returncode) == (0, 1)
    # The second may come so late that the first is finished.
    assert f"in use by process {owner.pid} on" in errors[refused] or "exists already" in errors[refused]
    assert_same_run(undisturbed, folder)
