"""Checkpoints are whole or not there, hold tensors and nothing else, and damage is told apart from absence."""

from __future__ import annotations

import errno
import os
import pickle
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

import riffle
from riffle.files import write_atomically
from riffle.train import checkpoint
from riffle.train.checkpoint import read_checkpoint, write_checkpoint
from riffle.train.run import Run

from .tiny import resume, temporary_files, train_until


def test_round_trip(tmp_path: Path) -> None:
    shared = torch.arange(12.0).view(3, 4)
    tensors = {
        "model.a": shared,
        "model.b": shared.T,
        "model.c": shared[1:, ::2],
        "step": torch.tensor(7),
        "random": torch.get_rng_state(),
        "empty": torch.zeros(0, 3),
        "half": torch.randn(3).bfloat16(),
        "double": torch.randn(3, dtype=torch.float64, requires_grad=True),
    }
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, tensors)
    loaded = read_checkpoint(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert read_checkpoint(path, "model.").keys() == {"a", "b", "c"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"old", b"newer", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o604)
    write_atomically(path, b"again")
    assert path.stat().st_mode & 0o777 == 0o604, "a file keeps its own mode"
    before = os.umask(0o027)
    write_atomically(tmp_path / "other", b"")
    os.umask(before)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o640, "a new one has that of the umask"


@pytest.mark.parametrize(
    ("device", "redirection"), [("stdout", ">>log"), ("stdout", "| cat >>log"), ("fd/3", "3>>log")]
)
def test_what_a_shell_redirects_is_continued(device: str, redirection: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before ")
    program = (
        f"import pathlib, riffle.files as f; print('printed', end=' '); f.write_json(pathlib.Path('/dev/{device}'), 1)"
    )
    command = f'{sys.executable} -c "{program}" {redirection}'
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    printed = "printed " if device == "stdout" else ""
    assert (tmp_path / "log").read_text() == f"before {printed}1\n"


def test_links_are_followed_and_devices_stay(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"content"
    os.mkfifo(tmp_path / "device")
    reader = os.open(tmp_path / "device", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "device", b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert (tmp_path / "device").is_fifo()


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_killed_before_the_rename(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    child = os.fork()
    if child == 0:
        setattr(os, moment, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
        write_atomically(path, b"new" * 10_000)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    write_atomically(path, b"newest")
    assert path.read_bytes() == b"newest"


@pytest.mark.parametrize("moment", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_failure_before_the_rename(
    tmp_path: Path, moment: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as context:
        context.setattr(os, moment, fail)
        with pytest.raises(type(error)):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert temporary_files(tmp_path) == []
    if isinstance(error, OSError):
        assert error.filename == str(path)


WHOLE = save({"step": torch.tensor(3), "model.weight": torch.randn(40, 40)}, {"format": checkpoint.FORMAT})
CONTENTS = {
    **{f"{kept} bytes": WHOLE[:kept] for kept in (0, 4, 8, 60, 200, -1)},
    "random": random.Random(0).randbytes(10_000),
    "ones": b"\xff" * 100,
    "zeros": bytes(100),
    "text": b"hello" * 50,
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_that_is_cut_short_or_something_else(tmp_path: Path, content: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(CONTENTS[content])
    with pytest.raises(ValueError, match=r"damaged or no safetensors file .*; restore it or train again") as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}], ids=str)
def test_safetensors_of_another_program(tmp_path: Path, metadata: dict | None) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_file({"weight": torch.randn(3)}, path, metadata)
    with pytest.raises(ValueError, match=r"no checkpoint of riffle: .*riffle-checkpoint-1.*; restore it") as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)


class Bomb:
    def __reduce__(self) -> tuple:
        return os.abort, ()


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_is_never_run(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Bomb()))
    else:
        torch.save({"step": Bomb()}, path)
    with pytest.raises(ValueError, match="damaged or no safetensors file"):
        read_checkpoint(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist: the run has not written a checkpoint yet"):
        read_checkpoint(tmp_path / "checkpoint.safetensors")


def test_no_pickle_anywhere_in_the_package() -> None:
    """Pickles run code: nothing in the package may load one."""
    forbidden = re.compile(
        r"torch\.load\b|torch\.save\b|import (pickle|marshal|shelve|joblib|dill)|(?<![.\w])(eval|exec)\("
    )
    sources = list(Path(riffle.__file__).parent.rglob("*.py"))
    assert Path(checkpoint.__file__) in sources
    for path in sources:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not forbidden.search(line), f"{path}:{number}: {line}"


def test_a_checkpoint_of_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path, 1, monkeypatch)
    tensors = read_checkpoint(run.checkpoint)
    write_checkpoint(run.checkpoint, {**tensors, "model.output.bias": torch.zeros(99)})
    for use in (run.model, lambda: resume(tmp_path)):
        with pytest.raises(ValueError, match=r"does not fit the model in .*config\.json: .*output\.bias") as error:
            use()
        assert str(run.checkpoint) in str(error.value)
    write_checkpoint(run.checkpoint, {n: t for n, t in tensors.items() if n != "model.output.bias"})
    with pytest.raises(ValueError, match=r"output\.bias"):
        run.model()


@pytest.mark.parametrize("missing", ["random.sample", "random.cpu", "sums", "step"])
def test_a_checkpoint_without_its_training_state(tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path, 1, monkeypatch)
    tensors = read_checkpoint(run.checkpoint)
    write_checkpoint(run.checkpoint, {name: tensor for name, tensor in tensors.items() if name != missing})
    run.model()  # the weights are all there
    with pytest.raises(ValueError, match=f"lacks training state .*{missing}.*; restore it or train again"):
        resume(tmp_path)


def test_a_folder_without_a_checkpoint_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path, 3, monkeypatch)
    run.checkpoint.unlink()
    assert run.saved_step() == 0
    assert resume(tmp_path).saved_step() == 30
    assert Run(tmp_path).saved_step() == 30


def test_every_flipped_bit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path, 1, monkeypatch)
    content, generator = run.checkpoint.read_bytes(), random.Random(0)
    for at in [*range(0, 200, 5), *(generator.randrange(len(content)) for _ in range(60))]:
        damaged = bytearray(content)
        damaged[at] ^= 1 << generator.randrange(8)
        run.checkpoint.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"(damaged|no checkpoint of riffle).*; restore it or train again"):
            read_checkpoint(run.checkpoint)


def test_a_checkpoint_without_a_checksum_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions wrote none."""
    run = train_until(tmp_path, 1, monkeypatch)
    tensors = read_checkpoint(run.checkpoint)
    save_file(tensors, run.checkpoint, {"format": "riffle-checkpoint-1"})
    assert all(torch.equal(tensors[name], tensor) for name, tensor in read_checkpoint(run.checkpoint).items())
    assert resume(tmp_path).saved_step() == 30


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_checkpoint(tmp_path / name, {"x": torch.arange(5.0), "y": torch.zeros(3, 3)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_until(tmp_path, 1, monkeypatch)
    tensors = read_checkpoint(run.checkpoint)
    tensors["model.output.bias"][0] = value
    write_checkpoint(run.checkpoint, tensors)
    for use in (run.model, lambda: resume(tmp_path)):
        with pytest.raises(ValueError, match=r"damaged: the weights output\.bias are not all finite; restore it"):
            use()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("step", torch.tensor([1, 2])),
        ("step", torch.tensor(10**6)),
        ("step", torch.tensor(-1)),
        ("step", torch.tensor(0.5)),
        ("sums", torch.zeros(3)),
        ("random.cpu", torch.zeros(7, dtype=torch.uint8)),
        ("random.sample", torch.zeros(5056)),
        ("optimizer.0.exp_avg", torch.zeros(3)),
        ("optimizer.0.exp_avg_sq", torch.tensor([torch.nan])),
        ("optimizer.x.exp_avg", torch.zeros(3)),
    ],
    ids=str,
)
def test_training_state_of_another_shape(
    name: str, wrong: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_until(tmp_path, 1, monkeypatch)
    write_checkpoint(run.checkpoint, {**read_checkpoint(run.checkpoint), name: wrong})
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged: .*; restore it or train again"):
        resume(tmp_path)
