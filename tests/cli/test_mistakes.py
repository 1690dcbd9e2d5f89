"""Whatever the user or the machine does wrong ends in one sentence that says what to do, never in a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from riffle.cli import main
from riffle.tasks import TASKS
from riffle.train.checkpoint import read_checkpoint, write_checkpoint
from riffle.train.shipped import SHIPPED

from .riffle_command import TINY, riffle

RUN = "runs/reverse"
LAMBADA = SHIPPED / "lambada"
TRAIN = ("train", "reverse", *TINY, "--steps", "1", "--out", "new")
MISTAKES = {
    "unknown task": (("train", "revers"), ["no task 'revers'", "did you mean 'reverse'", *TASKS]),
    "unknown task to solve": (("solve", "srot", "1"), ["no task 'srot'", "did you mean 'sort'", *TASKS]),
    "symbol outside the alphabet": (("solve", "reverse", "3", "99"), ["99", "1..11", "for example"]),
    "no number": (("solve", "reverse", "x"), ["'x'", "for example"]),
    "no run to solve with": (("solve", "divide", "11", "1"), ["no run of 'divide'", "riffle train divide", "--run"]),
    "run of another task": (("solve", "sort", "1", "--run", RUN), [RUN, "'reverse'", "'sort'"]),
    "unknown option": ((*TRAIN, "--set", "train.step=1"), ["did you mean train.steps", "model.features"]),
    "no assignment": ((*TRAIN, "--set", "train.steps"), ["'train.steps'", "train.steps=1000"]),
    "bad value": ((*TRAIN, "--set", "train.steps=x"), ["train.steps must be a whole number", "'x'"]),
    "impossible value": ((*TRAIN, "--set", "train.log_every=0"), ["train.log_every must be at least 1"]),
    "odd features": ((*TRAIN, "--features", "7"), ["features must be even", "7"]),
    "unknown model": ((*TRAIN, "--set", "model.kind=rnn"), ["unknown model 'rnn'", "shuffle-exchange"]),
    "unknown precision": ((*TRAIN, "--precision", "fp8"), ["train.precision", "fp32, tf32, bf16"]),
    "unknown recipe": ((*TRAIN, "--recipe", "big"), ["unknown recipe 'big'", "paper, released, long, robust, small"]),
    "unknown recipe of a run": (("train", "reverse", "--resume", "--out", RUN, "--recipe", "big"), ["unknown recipe"]),
    "no folder of runs": (("solve", "reverse", "1", "--runs", "nothing"), ["no folder nothing"]),
    "drawing over a folder": (("route", "1", "0", "--draw", "runs"), ["Is a directory (runs)"]),
    "eval of a reader": (("eval", LAMBADA), ["riffle lambada eval --run"]),
    "inspect of a reader": (("inspect", LAMBADA), ["riffle lambada eval --run"]),
    "unknown device": ((*TRAIN, "--device", "gpu"), ["unknown device 'gpu'", "cpu, cuda"]),
    "device without a generator": ((*TRAIN, "--device", "meta"), ["unknown device 'meta'"]),
    "folder exists": (("train", "reverse", *TINY, "--out", RUN), [RUN, "exists already", "--resume", "--out"]),
    "folder below a file": (("train", "reverse", *TINY, "--out", f"{RUN}/config.json/x"), ["Not a directory"]),
    "nothing to resume": (("train", "reverse", "--resume", "--out", "nothing"), ["no run folder nothing"]),
    "resume another task": (
        ("train", "sort", "--resume", "--out", RUN),
        ["another configuration", "task is 'reverse' there and 'sort' here"],
    ),
    "resume with other settings": (
        ("train", "reverse", "--resume", "--out", RUN, "--steps", "7", "--set", "model.blocks=2"),
        ["train.steps is 6 there and 7 here", "model.blocks is 1 there and 2 here"],
    ),
    "lengths of letters": (("eval", RUN, "--lengths", "8,x"), ["--lengths", "'8,x'"]),
    "no lengths": (("eval", RUN, "--lengths", ""), ["--lengths"]),
    "length zero": (("eval", RUN, "--lengths", "8,0"), ["--lengths must be at least 1, got 0"]),
    "length beyond all memory": (("eval", RUN, "--lengths", "1000000000000000"), ["out of memory"]),
    "missing run folder": (("eval", "nothing"), ["no run folder nothing", "riffle train"]),
    "no run folder": (("eval", "runs"), ["runs is no run folder"]),
    "picture in a missing folder": (("eval", RUN, "--lengths", "4", "--plot", "no/x.png"), ["no/x.png"]),
    "picture of an unknown kind": (("eval", RUN, "--lengths", "4", "--plot", "x.abc"), ["abc"]),
    "unknown format": (("export", RUN, "--format", "jpg"), ["unknown format 'jpg'", "onnx, torch, hub"]),
    "export of nothing": (("export", "nothing"), ["no run folder nothing"]),
    "export over a folder": (("export", RUN, "--format", "torch", "--length", "4", "--out", "runs"), ["runs"]),
    "export below a file": (("export", RUN, "--format", "torch", "--out", f"{RUN}/config.json/x"), ["config.json"]),
    "no such command": (("trane",), ["trane"]),
    "no such option": (("train", "reverse", "--fast"), ["--fast"]),
    "no symbols": (("solve", "reverse"), ["SYMBOLS", "--input"]),
    "symbols twice": (("solve", "reverse", "1", "--input", "x.txt"), ["x.txt", "SYMBOLS or --input, not both"]),
    "no such input": (("solve", "reverse", "--input", "x.txt"), ["No such file", "x.txt"]),
    "input that is a folder": (("solve", "reverse", "--input", "runs"), ["Is a directory", "runs"]),
    "empty input": (("solve", "reverse", "--input", os.devnull), [f"{os.devnull} is empty"]),
    "part of three": (("solve", "reverse", "1", "--stream", "--part", "3"), ["power of two of cells", "got 3"]),
    "part of letters": (("solve", "reverse", "1", "--stream", "--part", "x"), ["'x' is no whole number", "2^20"]),
    "no such scratch": (("solve", "reverse", "1", "--stream", "--scratch", "no"), ["No such file", "no"]),
    "output in a missing folder": (("solve", "reverse", "1", "--out", "no/x.txt"), ["no/x.txt"]),
    "no examples": (("eval", RUN, "--examples", "0"), ["--examples"]),
}


def assert_one_sentence(code: int, out: str, err: str) -> None:
    assert "Traceback" not in out + err
    assert out == ""
    if code != 2:  # mistakes of usage are typer's: a box with a pointer to --help
        assert code == 1
        assert err.count("error: ") == 1
        assert err.splitlines()[-1].startswith("error: "), "more than one line"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str) -> None:
    arguments, parts = MISTAKES[name]
    result = riffle(*arguments)
    assert_one_sentence(*result)
    for part in parts:
        assert part in result.err, part
    assert not Path("new").exists(), "a run that never began left its folder"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("command", ["train", "eval"])
def test_no_gpu(command: str, device: str, run: Path) -> None:
    arguments = (*TRAIN, "--device", device) if command == "train" else ("eval", run, "--device", device)
    result = riffle(*arguments)
    assert_one_sentence(*result)
    assert f"device '{device}' was asked for, but torch sees no GPU here: use --device cpu" in result.err
    assert not Path("new").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("eval", RUN, "--lengths", "4"),
        ("solve", "reverse", "1", "--run", RUN),
        ("export", RUN, "--format", "hub"),
        ("train", "reverse", "--resume", "--out", RUN),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("damage", ["truncated", "text", "missing tensors"])
def test_damaged_checkpoint(damage: str, command: tuple[str, ...], run: Path) -> None:
    path = run / "checkpoint.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "text":
        path.write_text("not a checkpoint")
    else:
        write_checkpoint(path, read_checkpoint(path, "optimizer."))
    result = riffle(*command)
    assert_one_sentence(*result)
    assert str(path) in result.err


@pytest.mark.parametrize("command", ["eval", "export"])
def test_no_checkpoint_yet(command: str, run: Path) -> None:
    (run / "checkpoint.safetensors").unlink()
    result = riffle(command, run)
    assert_one_sentence(*result)
    assert "the run has not written a checkpoint yet" in result.err


def test_damaged_configuration(run: Path) -> None:
    (run / "config.json").write_text('{"task": "reverse", "colour": 1}')
    result = riffle("eval", run)
    assert_one_sentence(*result)
    assert "config.json is no configuration of a run: unknown field 'colour'" in result.err


def test_loss_that_is_not_finite(tmp_path: Path) -> None:
    result = riffle("train", "reverse", *TINY, "--steps", 9, "--set", "train.learning_rate=1e38", "--out", tmp_path)
    assert_one_sentence(*result)
    assert "not finite at step" in result.err
    assert "train.learning_rate" in result.err


def test_onnx_without_its_packages(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    result = riffle("export", run)
    assert_one_sentence(*result)
    assert "pip install 'riffle-nn[export]'" in result.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["riffle", "--debug", "eval", "nothing"])
    with pytest.raises(FileNotFoundError, match="no run folder nothing"):
        main()
    assert riffle("eval", "nothing").code == 1, "--debug outlived its command"


def test_a_full_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shutil.rmtree(run)
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        result = riffle("train", "reverse", *TINY, "--steps", 1, "--out", run)
    assert_one_sentence(*result)
    assert f"error: No space left on device ({run / 'config.json'})" in result.err
    assert list(run.iterdir()) == []
