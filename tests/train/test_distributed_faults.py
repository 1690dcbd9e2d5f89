"""Ranks are killed, stopped and interrupted; what comes after a restart is as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from riffle.config import RunConfig
from riffle.train.distributed import RankGroup, RankLost
from riffle.train.loop import Interrupted
from riffle.train.run import Run

from .processes import PATIENCE, started, together, train
from .tiny import assert_same_run, last_step, with_train

KILLS = 8
CONFIG = with_train(steps=120, evaluate_every=0, checkpoint_every=3)
"""Checkpoints and log lines do not fall together, so a kill can part them."""


def interruptible(ranks: RankGroup, folder: Path, config: RunConfig) -> int | None:
    """Train; gives the step where all were asked to stop."""
    try:
        train(ranks, folder, config)
    except Interrupted as stop:
        ranks.close()
        return stop.step
    return None


def wait_for_steps(folder: Path, steps: int = 1) -> None:
    """Wait until steps of these processes, not of earlier ones, are on record."""
    before, deadline = last_step(folder), time.monotonic() + PATIENCE
    while last_step(folder) < before + steps:
        assert time.monotonic() < deadline, "the ranks make no steps"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    together(2, train, folder, CONFIG)
    return folder


def test_kills_at_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", random.Random(5)
    for kill in range(KILLS):
        victim, starting = moments.randrange(2), kill % 4 == 3
        with started(2, train, folder, CONFIG) as processes:
            if not starting:
                wait_for_steps(folder)
            time.sleep(moments.uniform(0, 0.2 if starting else 0.02))
            processes.ranks[victim].kill()
            if not starting:  # the other one notices by itself; before they have met, a launcher has to end it
                outcomes = processes.outcomes()
                assert outcomes[victim] is None
                assert isinstance(outcomes[1 - victim], RankLost)
                assert str(outcomes[1 - victim]) == f"rank {1 - victim} of 2 stops: another rank is gone"
    assert 0 < Run(folder).saved_step() < CONFIG.train.steps
    together(2, train, folder, CONFIG)
    assert_same_run(undisturbed, folder)


def test_a_rank_that_hangs_is_reported(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(2, train, folder, CONFIG, timeout=2) as processes:
        wait_for_steps(folder, 20)
        pid = processes.ranks[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        assert processes.pipes[0].poll(PATIENCE)
        lost = processes.pipes[0].recv()
    assert isinstance(lost, RankLost)
    assert "another rank hangs, it has not answered within the --timeout" in str(lost)
    together(2, train, folder, CONFIG)
    assert_same_run(undisturbed, folder)


@pytest.mark.parametrize(("number", "rank"), [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_a_signal_to_one_rank_stops_all_at_the_same_step(
    number: int, rank: int, undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with started(2, interruptible, folder, CONFIG) as processes:
        wait_for_steps(folder, 20)
        pid = processes.ranks[rank].pid
        assert pid is not None
        os.kill(pid, number)
        first, second = processes.outcomes()
    assert first == second == Run(folder).saved_step()
    together(2, train, folder, CONFIG)
    assert_same_run(undisturbed, folder)


LEAVES_GROUP = """
import pathlib, sys
import torch.distributed as dist
import riffle.train.distributed
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
import torch._dynamo  # as every optimiser does
dist.destroy_process_group()
names = [file.read_text() for file in pathlib.Path("/proc/self/task").glob("*/comm")]
print(sum("gloo" in name for name in names))
"""


def test_no_thread_outlives_its_group(tmp_path: Path) -> None:
    """One that still runs when the interpreter ends can abort the process."""
    command = [sys.executable, "-c", LEAVES_GROUP, str(tmp_path / "store")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


def test_torchrun_restarts_what_was_killed(undisturbed: Path, tmp_path: Path) -> None:
    folder = Run.create(tmp_path / "run", CONFIG).folder
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    command = ["riffle", "train", "reverse", "--resume", "--out", str(folder), "--device", "cpu", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", *launch, "-m", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_steps(folder)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    again = f"Continue with: torchrun --nproc-per-node 2 -m riffle train reverse --resume --out {folder}"
    assert f"error: rank 0 of 2 stops: another rank is gone. {again}" in errors
    assert output.count('"task": "reverse"') == 1, "one rank speaks for all"
    assert_same_run(undisturbed, folder)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
