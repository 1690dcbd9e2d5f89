"""A run folder has one owner: a process that lives."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from riffle.files import LOCK_FILE, FolderInUse, FolderLock
from riffle.train import loop
from riffle.train.run import Run

from .tiny import TINY, train_until


def in_a_fork(call: object) -> None:
    """Call a function in a process that ends right after it, without any clearing up."""
    child = os.fork()
    if child == 0:
        call()  # type: ignore[operator]
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        for _ in range(2):
            with pytest.raises(
                FolderInUse, match=f"{tmp_path} is in use by process {os.getpid()} on .*: wait for its end"
            ):
                FolderLock(tmp_path)
    assert list(tmp_path.iterdir()) == []
    FolderLock(tmp_path).release()


def test_a_dead_owner_leaves_the_folder_free(tmp_path: Path) -> None:
    in_a_fork(lambda: setattr(test_a_dead_owner_leaves_the_folder_free, "lock", FolderLock(tmp_path)))
    assert (tmp_path / LOCK_FILE).exists(), "it could not remove it"
    with FolderLock(tmp_path), pytest.raises(FolderInUse, match=f"process {os.getpid()} "):
        FolderLock(tmp_path)


def test_a_fork_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    with FolderLock(tmp_path) as lock:
        in_a_fork(lock.release)
        with pytest.raises(FolderInUse):
            FolderLock(tmp_path)


def test_waiting_for_the_owner(tmp_path: Path) -> None:
    owner, taken = FolderLock(tmp_path), []
    waiting = threading.Thread(target=lambda: taken.append(FolderLock(tmp_path, wait=True)))
    waiting.start()
    time.sleep(0.1)
    assert not taken
    owner.release()  # this removes the file that the other waits for
    waiting.join(timeout=10)
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path)
    taken[0].release()


def test_a_run_is_owned_from_its_creation_to_the_end_of_its_training(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", TINY)
    for another in (Run.create, Run.resume):
        with pytest.raises(FolderInUse, match=f"process {os.getpid()} "):
            another(run.folder, TINY)
    with pytest.raises(FolderInUse):
        loop.train(Run(run.folder))
    loop.train(run)
    assert Run.resume(run.folder, TINY).saved_step() == 30


def test_another_configuration_does_not_touch_the_folder_of_a_trainer(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", TINY)
    unfinished = run.folder / ".checkpoint.safetensors.abcd"
    unfinished.touch()
    with pytest.raises(FolderInUse):
        Run.resume(run.folder, TINY)
    assert unfinished.exists(), "the owner is writing it"
    assert run.lock is not None
    run.lock.release()
    Run.resume(run.folder, TINY)
    assert not unfinished.exists()


def test_a_folder_with_nothing_but_leftovers_is_empty(tmp_path: Path) -> None:
    for name in (LOCK_FILE, ".config.json.abcd1234"):
        (tmp_path / name).touch()
    run = Run.create(tmp_path, TINY)
    assert {path.name for path in run.folder.iterdir()} == {LOCK_FILE, "config.json"}


def test_a_failed_creation_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("riffle.train.run.write_json", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError) as kept:
        Run.create(tmp_path, TINY)
    assert kept.value.__traceback__ is not None
    assert list(tmp_path.iterdir()) == []


def test_without_locks_everything_else_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("riffle.files.fcntl", None)
    run = train_until(tmp_path / "run", 3, monkeypatch)
    assert Run.resume(run.folder, TINY).saved_step() == 3
