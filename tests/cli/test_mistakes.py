"""Whatever the user or the machine does wrong ends in one sentence that says what to do, never in a traceback."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

from riffle.cli import main
from riffle.recipes import RECIPES
from riffle.tasks import TASKS
from riffle.train.checkpoint import read_checkpoint, write_checkpoint
from riffle.train.run import find_run, read_metrics
from riffle.train.shipped import SHIPPED

from .riffle_command import TINY, riffle, small_files, succeed

RUN = "runs/reverse"
LAMBADA = SHIPPED / "lambada"
TRAIN = ("train", "reverse", *TINY, "--steps", "1", "--out", "new")
MISTAKES = {
    "unknown task": (("train", "revers"), ["unknown task 'revers'", "did you mean 'reverse'", *TASKS]),
    "no number": (("solve", "reverse", "x"), ["'x'", "for example"]),
    "no run to solve with": (("solve", "divide", "11", "1"), ["no run of 'divide'", "riffle train divide", "--run"]),
    "run of another task": (("solve", "sort", "1", "--run", RUN), [RUN, "'reverse'", "'sort'"]),
    "unknown option": ((*TRAIN, "--set", "train.step=1"), ["did you mean train.steps", "train.learning_rate"]),
    "unknown model": ((*TRAIN, "--set", "model.kind=rnn"), ["unknown model 'rnn'", "shuffle-exchange"]),
    "unknown recipe": ((*TRAIN, "--recipe", "big"), ["unknown recipe 'big'", ", ".join(RECIPES)]),
    "drawing over a folder": (("route", "1", "0", "--draw", "runs"), ["Is a directory (runs)"]),
    "eval of a reader": (("eval", LAMBADA), ["riffle lambada eval --run"]),
    "unknown device": ((*TRAIN, "--device", "gpu"), ["unknown device 'gpu'", "cpu, cuda"]),
    "folder exists": (("train", "reverse", *TINY, "--out", RUN), [RUN, "exists already", "--resume", "--out"]),
    "nothing to resume": (("train", "reverse", "--resume", "--out", "nothing"), ["no run folder nothing"]),
    "resume with other settings": (
        ("train", "reverse", "--resume", "--out", RUN, "--steps", "7", "--set", "model.blocks=2"),
        ["train.steps is 6 there and 7 here", "model.blocks is 1 there and 2 here"],
    ),
    "lengths of letters": (("eval", RUN, "--lengths", "8,x"), ["--lengths", "'8,x'"]),
    "lengths of other digits": (("eval", RUN, "--lengths", "8,\u0663"), ["--lengths", "'8,\u0663'"]),
    "steps of other digits": ((*TRAIN, "--set", "train.steps=\u0663"), ["train.steps must be a whole number"]),
    "a rate beyond float32": ((*TRAIN, "--set", "train.learning_rate=1e300"), ["learning_rate must be at most 1e+37"]),
    "device of many digits": ((*TRAIN, "--device", "cpu:" + "1" * 5000), ["unknown device 'cpu:11", "use cpu"]),
    "length zero": (("eval", RUN, "--lengths", "8,0"), ["--lengths must be at least 1, got 0"]),
    "length beyond all memory": (("eval", RUN, "--lengths", "1000000000000000"), ["this would take about"]),
    "missing run folder": (("eval", "nothing"), ["no run folder nothing", "riffle train"]),
    "unknown format": (("export", RUN, "--format", "jpg"), ["unknown format 'jpg'", "onnx, torch, hub"]),
    "export over a folder": (("export", RUN, "--format", "torch", "--length", "4", "--out", "runs"), ["runs"]),
    "export over the run": (("export", RUN, "--out", f"{RUN}/config.json"), ["is a file of the run itself"]),
    "export below a file": (("export", RUN, "--format", "torch", "--out", f"{RUN}/config.json/x"), ["config.json"]),
    "no such command": (("trane",), ["trane"]),
    "no such option": (("train", "reverse", "--fast"), ["--fast"]),
    "no symbols": (("solve", "reverse"), ["SYMBOLS", "--input"]),
    "symbols twice": (("solve", "reverse", "1", "--input", "x.txt"), ["x.txt", "SYMBOLS or --input, not both"]),
    "empty input": (("solve", "reverse", "--input", os.devnull), [f"{os.devnull} is empty"]),
    "part of three": (("solve", "reverse", "1", "--stream", "--part", "3"), ["power of two of cells", "got 3"]),
    "part without a stream": (("solve", "reverse", "1", "--part", "8"), ["--part and --scratch are for --stream"]),
    "run and runs": (("solve", "reverse", "1", "--run", RUN, "--runs", "runs"), ["give one of them"]),
    "seed of nothing random": (("route", "1", "0", "--seed", "1"), ["--seed is for --random"]),
    "length for the hub": (
        ("export", RUN, "--format", "hub", "--length", "8"),
        ["--length is for torch programs: hub"],
    ),
    "option of timing": (("reproduce", "sharing", "--budget", "3"), ["about learning, and --budget is for timing"]),
    "options of learning": (
        ("reproduce", "timing-addition", "--runs", "3", "--set", "train.steps=1", "--draw"),
        ["timing-addition is about timing, and --runs, --set is for learning: leave it out"],
    ),
    "bench into a plot": (("bench", "--out", "x.png"), ["--out x.png is the JSON file", ".json"]),
    "no such scratch": (("solve", "reverse", "1", "--stream", "--scratch", "no"), ["No such file", "no"]),
    "output in a missing folder": (("solve", "reverse", "1", "--out", "no/x.txt"), ["no/x.txt"]),
    "no examples": (("eval", RUN, "--examples", "0"), ["--examples"]),
    "many features": ((*TRAIN, "--set", f"model.features={10**26}"), ["model.features must be at most 65,536"]),
    "batch beyond all memory": ((*TRAIN, "--set", f"data.batch={10**12}"), ["this machine has", "data.batch"]),
    "large seed": (("eval", RUN, "--seed", "9" * 30), ["--seed must be a number below 2^62"]),
    "length of a plan": (("plan", "--length", "2^999"), ["'2^999' is too large", "2^48"]),
    "large part": (("solve", "reverse", "1", "--stream", "--part", "9" * 23), ["is too large"]),
    "many messages": (("route", "--random", str(2**40)), ["--random", "1048576"]),
    "many placements": (("lambada", "eval", "--placements", "999999999"), ["--placements", "1024"]),
    "large stride": (
        ("lambada", "prepare", "--out", "x", "--stride", "9" * 23),
        ["--stride must be a number below 2^62"],
    ),
    "endless timeout": ((*TRAIN, "--timeout", "inf"), ["--timeout"]),
    "escape sequences": (("train", "\x1b]0;owned\x07"), ["unknown task '\\x1b]0;owned\\x07'"]),
    "endless name": (("train", "a" * 100_000), ["unknown task 'aaa", "aaa...aaa"]),
    "endless option": (("train", "reverse", "--" + "x" * 100_000), ["--xxx"]),
}


def assert_one_sentence(code: int, out: str, err: str) -> None:
    assert "Traceback" not in out + err
    assert len(err) < 4000
    assert "\x1b" not in err
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


UNWRITABLE = {
    "plot": (("eval", RUN, "--plot", "no/x.png"), "No such file or directory (no/x.png)"),
    "plot in a folder's place": (("eval", RUN, "--plot", "runs"), "Is a directory (runs)"),
    "kind of plot": (("eval", RUN, "--plot", "x.xyz"), "x.xyz cannot be drawn: its name has to end with one of"),
    "numbers": (("eval", RUN), f"Is a directory ({RUN}/evaluation.json)"),
    "torch": (("export", RUN, "--format", "torch", "--out", "runs"), "Is a directory (runs)"),
    "onnx": (("export", RUN, "--out", "runs"), "Is a directory (runs)"),
    "answer": (("solve", "reverse", "1", "--run", RUN, "--out", "no/x"), "No such file or directory (no/x)"),
    "drawing": (("route", "1", "0", "--draw", "x.pgf"), "x.pgf cannot be drawn"),
    "pictures": (("inspect", RUN), f"Is a directory ({RUN}/inspect/states.png)"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_cannot_be_written_is_told_before_the_work(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "inspect" / "states.png").mkdir(parents=True)
    if name == "numbers":
        (run / "evaluation.json").mkdir()
    for work in (
        "train.evaluate.evaluate",
        "models.export.write_program",
        "train.shipped.solve",
        "inspect.dependence",
    ):
        monkeypatch.setattr(f"riffle.{work}", lambda *arguments, **options: pytest.fail("the work has begun"))
    arguments, said = UNWRITABLE[name]
    result = riffle(*arguments)
    assert_one_sentence(*result)
    assert said in result.err


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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"task": "reverse", "colour": 1}', "unknown field 'colour'"),
        ('{"task": "reverse", "model": {"features": "8"}}', "model.features must be a whole number, got '8'"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
    ids=["field", "type", "nesting"],
)
def test_damaged_configuration(content: str, reason: str, run: Path) -> None:
    (run / "config.json").write_text(content)
    result = riffle("eval", run)
    assert_one_sentence(*result)
    assert f"config.json is no configuration of a run: {reason}" in result.err


DAMAGED_BESIDE = {
    "environment.json": ("[]", "no record of an environment: it must be an object"),
    "metrics.jsonl": ('{"step": 1, "loss": 2}\n{"step": []}\n', "no record of metrics: line 2.step must be"),
}


@pytest.mark.parametrize("name", DAMAGED_BESIDE)
def test_damaged_files_beside_the_checkpoint(name: str, run: Path) -> None:
    content, reason = DAMAGED_BESIDE[name]
    (run / name).write_text(content)
    before = (run / "checkpoint.safetensors").read_bytes()
    result = riffle("train", "reverse", "--resume", "--out", run)
    assert_one_sentence(*result)
    assert reason in result.err
    assert (run / name).read_text() == content
    assert (run / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.parametrize("damage", ["config.json", "checkpoint.safetensors", "weights"])
def test_a_damaged_run_is_skipped(damage: str, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(run, run.with_name("older"))
    os.utime(run.with_name("older") / "checkpoint.safetensors", (0, 0))
    if damage == "weights":
        write_checkpoint(run / "checkpoint.safetensors", {"model.output.bias": torch.zeros(99)})
    else:
        (run / damage).write_bytes(b"\x00" * 50)
    assert find_run("reverse", run.parent).folder == run.with_name("older")
    (warning,) = caplog.messages
    assert warning.startswith(f"skipped: {run}/")


def test_resuming_without_a_checkpoint_starts_over_and_says_so(run: Path) -> None:
    lines = len(read_metrics(run))
    (run / "checkpoint.safetensors").unlink()
    result = succeed("train", "reverse", "--resume", "--out", run)
    assert f"has no checkpoint: it starts at step 0, and the {lines} lines of metrics.jsonl are dropped" in result.err


def test_resuming_with_shorter_evaluations(run: Path) -> None:
    shutil.rmtree(run)
    lengths = "train.evaluate_lengths=1099511627776"
    result = riffle("train", "reverse", *TINY, "--steps", 4, "--set", lengths, "--out", run)
    assert_one_sentence(*result)
    assert "the evaluation at step 4 failed: out of memory; the training is saved" in result.err
    succeed("train", "reverse", "--resume", "--out", run, "--set", "train.evaluate_lengths=8")
    assert [line for line in read_metrics(run) if "accuracy/8" in line]


def test_input_that_is_no_text_or_a_pipe(run: Path) -> None:
    Path("bytes").write_bytes(b"1 \xff 2")
    os.mkfifo("pipe")
    for name, reason in (("bytes", "bytes is no text in UTF-8"), ("pipe", "pipe is a pipe")):
        result = riffle("solve", "reverse", "--input", name)
        assert_one_sentence(*result)
        assert reason in result.err


def test_loss_that_is_not_finite(tmp_path: Path) -> None:
    result = riffle("train", "reverse", *TINY, "--steps", 9, "--set", "train.learning_rate=1e37", "--out", tmp_path)
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


WRITING = {
    "train": (*TRAIN, "--out", "new"),
    "eval": ("eval", RUN, "--lengths", "4", "--examples", "2", "--device", "cpu"),
    "torch": ("export", RUN, "--format", "torch", "--length", "4"),
    "hub": ("export", RUN, "--format", "hub"),
    "solve": ("solve", "reverse", *"12345678" * 30, "--out", "x.txt"),
    "svg": ("route", "1", "0", "--draw", "x.svg"),
    "png": ("route", "1", "0", "--draw", "x.png"),
    "inspect": ("inspect", RUN, "--lengths", "4", "--examples", "2", "--probes", "1", "--device", "cpu"),
}
BENCH = ("bench", "--quick", "--rows", "latency", "--out", "bench.json", "--device", "cpu")


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(("command", "limit"), [*product(WRITING, (10, 2500)), ("bench", 10)])
def test_a_full_disk(command: str, limit: int) -> None:
    """A limit on the size of files acts like a full disk: at their beginning, and in the middle."""
    for path in (Path("x.txt"), Path("x.svg"), Path("x.png")):
        path.write_text("old")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    with small_files(0 if command == "solve" else limit):
        result = riffle(*WRITING.get(command, BENCH))
    assert_one_sentence(result.code, "", result.err)
    assert "File too large" in result.err
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before, "a file was lost"
    # The files of the run and of the evaluation are complete, only what comes after them has no room.
    left = [path for path in after.keys() - before.keys() if path.parts[0] != "new" and path.suffix != ".json"]
    assert left == [], "half a file was left behind"
