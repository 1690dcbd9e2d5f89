"""Many runs in processes: a failure is reported, a stopped run is resumed, a finished one is skipped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli.riffle_command import ForkedCommand, riffle

from research.reproduce import runner
from research.reproduce.jobs import RunJob, RunUpdate, pending_jobs, run_job
from research.reproduce.results import read_result
from research.reproduce.runner import MPS_CONTROL, multi_process_service, run_jobs
from research.reproduce.specs import RunSpec
from riffle.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from riffle.environment import device_name
from riffle.files import FolderInUse, FolderLock, read_json
from riffle.kernels.tuning import MPS_SHARE
from riffle.train.run import Run

pytestmark = pytest.mark.usefixtures("fork_server")
PATIENCE = 60
"""Seconds after which a test gives up."""


def nothing(run: Run, device: torch.device) -> dict[str, Any]:
    return {"scores": [], "threads": torch.get_num_threads(), "variable": os.environ.get("RIFFLE_TEST")}


def fails(run: Run, device: torch.device) -> dict[str, Any]:
    raise ValueError("the disk is made of cheese")


def dies(run: Run, device: torch.device) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def make_job(
    folder: Path, group: str, measure: Callable[..., Any] = nothing, steps: int = 6, features: int = 4
) -> RunJob:
    config = RunConfig(
        task="reverse",
        model=ModelConfig(features=features),
        data=DataConfig(bins=(4,), batch=2),
        train=TrainConfig(steps=steps, log_every=2, evaluate_every=0, checkpoint_every=10),
    )
    spec = RunSpec(folder="tests", group=group, config=config, measure=measure)
    (job,) = pending_jobs([spec], folder / "results", folder / "work", {"command": "", "commit": None})
    return job


Updates = dict[str, list[RunUpdate]]


def collect_updates(
    jobs: list[RunJob], then: Callable[[Updates], None] = lambda updates: None, **options: Any
) -> tuple[Updates, int | None]:
    """All updates of each run, and the signal that stopped them; ``then`` is called after every update."""
    updates: Updates = {job.spec.group: [] for job in jobs}

    def on_update(job: RunJob, update: RunUpdate) -> None:
        updates[job.spec.group].append(update)
        then(updates)

    return updates, run_jobs(jobs, ["cpu", "cpu"], on_update=on_update, **options)


def test_a_run_that_fails_or_dies_costs_the_others_nothing(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, "bad", fails), make_job(tmp_path, "dead", dies), make_job(tmp_path, "good")]
    updates, stopped = collect_updates(jobs, variables={"RIFFLE_TEST": "here"}, threads=1)
    assert stopped is None
    assert updates["bad"][-1] == RunUpdate("failed", reason="ValueError: the disk is made of cheese")
    assert "cheese" in jobs[0].log.read_text().splitlines()[-1]
    assert updates["dead"][-1] == RunUpdate("failed", reason="its process ended with status -9")
    assert [update.kind for update in updates["good"]] == ["step", "step", "step", "measuring", "finished"]
    result = read_result(jobs[2].result)
    assert result is not None
    assert (result["threads"], result["variable"]) == (1, "here")
    assert not jobs[0].result.exists()
    assert not jobs[1].result.exists()


def test_time_that_is_over_saves_every_run_and_the_rest_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def both_are_at_it(updates: Updates) -> None:
        now[0] = 61.0 if all(updates[name] for name in names) else 59.0

    names = ("a", "b")
    endless = [make_job(tmp_path, name, steps=1_000_000) for name in names] + [make_job(tmp_path, "never begun")]
    updates, stopped = collect_updates(endless, both_are_at_it, seconds=60)
    assert stopped is None
    assert [updates[name][-1].kind for name in names] == ["stopped", "stopped"]
    assert updates["never begun"] == []
    saved = [Run(job.folder).saved_step() for job in endless[:2]]
    assert all(step >= updates[name][-2].step > 0 for step, name in zip(saved, names, strict=True))
    (again,) = pending_jobs([endless[0].spec], tmp_path / "results", tmp_path / "work", {})
    assert again.step == saved[0]
    assert again.rate is not None


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, parted = (make_job(tmp_path / name, "run", steps=100) for name in ("whole", "parted"))
    run_job(whole, torch.device("cpu"))

    def interrupt(updates: Updates) -> None:
        if len(updates["run"]) == 1:
            signal.raise_signal(signal.SIGINT)

    updates, stopped = collect_updates([parted], interrupt)
    assert (updates["run"][-1].kind, stopped) == ("stopped", signal.SIGINT)
    assert 0 < Run(parted.folder).saved_step() < 100
    updates, stopped = collect_updates([parted])
    assert (updates["run"][-1].kind, stopped) == ("finished", None)
    assert lines(whole) == lines(parted)
    assert pending_jobs([parted.spec], tmp_path / "parted" / "results", tmp_path / "parted" / "work", {}) == []


def lines(job: RunJob) -> list[tuple[Any, ...]]:
    result = read_result(job.result)
    assert result is not None
    return [(line["step"], line["loss"], line["accuracy"]) for line in result["metrics"]]


def command(folder: Path) -> ForkedCommand:
    """``reproduce`` of two quick runs."""
    words = ["reproduce", "convergence", "--quick", "--only", "reverse-shuffle-exchange-paper-seed", "--device", "cpu"]
    for change in ("train.steps=200", "train.checkpoint_every=20", "train.evaluate_every=0", "train.keep=last"):
        words += ["--set", change]
    return ForkedCommand(*words, "--runs", 2, "--out", folder, "--work", folder)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def unlocked(run: Path) -> bool:
    """Whether no process works on a run any more."""
    try:
        FolderLock(run).release()
    except FolderInUse:
        return False
    return True


def test_a_command_that_is_killed_leaves_no_process_behind_and_goes_on(tmp_path: Path) -> None:
    name = "reverse-shuffle-exchange-paper-seed"
    runs = [tmp_path / "generalization" / f"{name}{seed}" for seed in (0, 1)]
    with command(tmp_path) as killed:
        until(lambda: all((run / "checkpoint.safetensors").exists() for run in runs))
        killed.kill()
    until(lambda: all(map(unlocked, runs)))
    assert all(0 < Run(run).saved_step() < 200 for run in runs)
    with command(tmp_path) as finished:
        _, said = finished.communicate(timeout=PATIENCE)
    assert finished.returncode == 0, said
    assert "2 runs, 0 finished before" in said
    results = [read_result(run.with_suffix(".json")) for run in runs]
    assert all(result is not None and result["metrics"][-1]["step"] == 200 for result in results)
    (entry,) = read_json(tmp_path / "convergence" / "time.json")  # the killed command wrote none
    assert entry["finished"] == 2
    assert entry["seconds"] > 0
    assert 0 < entry["steps"] < 400
    assert entry["hardware"] == [device_name(torch.device("cpu"))]
    assert "reproduce convergence" in entry["command"]


@pytest.mark.parametrize("figure", ["sharing", "timing-addition"])
def test_a_figure_has_one_command_at_a_time(figure: str, tmp_path: Path) -> None:
    with FolderLock(tmp_path / figure):
        work = ("--work", tmp_path) if figure == "sharing" else ()
        code, _, said = riffle("reproduce", figure, "--quick", "--out", tmp_path, *work, "--device", "cpu")
    assert code == 1
    assert f"{tmp_path / figure} is in use by process {os.getpid()} on" in " ".join(said.split())


def test_the_multi_process_service_is_started_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with multi_process_service(6) as variables:
        assert variables == {}, "it is not installed"
    # A stand-in that keeps a diary, and answers once it was started.
    script = tmp_path / MPS_CONTROL
    script.write_text(
        f'#!/bin/sh\nread said\necho "$1$said" >> {tmp_path}/diary\n'
        f'case "$1$said" in -d) : > {tmp_path}/started ;; get*) [ -e {tmp_path}/started ] ;; esac\n'
    )
    script.chmod(0o755)
    with multi_process_service(1) as variables:
        assert variables == {}
    with multi_process_service(2) as variables:
        assert set(variables) == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", MPS_SHARE}
    assert (tmp_path / "diary").read_text().split() == ["get_server_list", "get_server_list", "-d", "quit"]
    for clients, share in ((20, "25"), (6, "25"), (4, "50"), (3, "50"), (2, "100")):
        with multi_process_service(clients) as variables:
            assert variables == {MPS_SHARE: share}, "somebody else's is left alone"
    assert (tmp_path / "diary").read_text().split()[-1] == "get_server_list"
