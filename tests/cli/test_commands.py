"""Every command from beginning to end: train, evaluate, solve, export, and use what was exported."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from riffle import SequenceModel
from riffle.cli.info import TRIED
from riffle.cli.train import _start_line
from riffle.files import write_json
from riffle.kernels.graphs import SHARE, SIGHTS
from riffle.kernels.plan import SMALL_WORK
from riffle.quantities import format_percent
from riffle.tasks import TASKS
from riffle.train.evaluate import Score
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED, find_trained_run

from .riffle_command import TINY, riffle, succeed


def test_tasks() -> None:
    rows = succeed("tasks", "--json").json
    assert [row["task"] for row in rows] == list(TASKS)
    for row in rows:
        assert row.keys() == {"task", "summary", "example", "answer", "symbols", "classes", "splits", "right_up_to"}
        assert row["splits"][0] == "uniform"
    assert next(row for row in rows if row["task"] == "reverse")["answer"] == "1 9 3 7"
    limits = {row["task"]: row["right_up_to"] for row in rows}
    assert limits["reverse"] > limits["merge"] >= 8
    table = succeed("tasks").out
    assert f"{limits['reverse']:,}" in table
    assert all(name in table for name in TASKS)


def test_info() -> None:
    facts = succeed("info", "--json").json
    assert torch.__version__.startswith(facts["versions"]["torch"])
    cpu = {"device": "cpu", "name": facts["devices"][0]["name"], "backend": "reference", "graphs": False}
    assert facts["devices"][0] == cpu
    assert facts["tried"] == any(torch.__version__.startswith(f"{version}.") for version in TRIED)
    assert len(facts["devices"]) == 1 + torch.cuda.device_count()
    assert all(device["graphs"] == (device["backend"] == "fused") for device in facts["devices"])
    assert facts["graphs"] == {"numbers": SMALL_WORK, "calls": SIGHTS, "memory_share": 1 / SHARE}
    assert all(word in succeed("info").out for word in ("reference", "CUDA graphs", "net.graphs.counts"))


def test_train_leaves_a_run(trained: Path) -> None:
    assert json.loads((trained / "config.json").read_text())["data"]["bins"] == [4, 8]
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["command"][:3] == ["riffle", "train", "reverse"]
    assert torch.__version__.startswith(environment["versions"]["torch"])
    assert Run(trained).saved_step() == 6
    assert len(list((trained / "tensorboard").iterdir())) == 1


def test_train_says_where_the_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = succeed("train", "sort", *TINY, "--steps", 1, "--features", 4, "--seed", 3, "--precision", "fp32")
    assert result.out == ""
    assert result.err.startswith("sort: recipe paper, on cpu, ")
    assert " in float32: 1 steps\n" in result.err
    assert "The run is in runs/sort.\nNot learned: " in result.err
    assert "or see how far it generalises: riffle eval runs/sort\n" in result.err
    config = Run(Path("runs/sort")).config
    assert (config.train.steps, config.model.features, config.train.seed) == (1, 4, 3)


def test_train_says_which_weights_it_kept(tmp_path: Path) -> None:
    settings = ("--set", "train.keep=best", "--set", "train.average=0.9", "--set", "train.evaluate_every=1")
    err = succeed("train", "sort", *TINY, *settings, "--steps", 3, "--out", tmp_path / "run").err
    kept = Run(tmp_path / "run").weights_step()
    assert 1 <= kept <= 3
    assert f"Kept are the weights after step {kept}." in err


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]c[/]"
    assert str(folder) in succeed("train", "sort", *TINY, "--steps", 1, "--out", folder).err
    again = riffle("train", "sort", *TINY, "--steps", 1, "--out", folder)
    assert again.code == 1
    assert f"{folder} exists already" in again.err
    assert f"(by {folder}, step 1)" in succeed("solve", "sort", 2, 1, "--run", folder).err


def test_show_prints_the_configuration_and_trains_nothing(tmp_path: Path) -> None:
    arguments = ("train", "sort", "--show", "--set", "model.blocks=3", "--out", tmp_path / "run")
    assert succeed(*arguments, "--json").json["model"]["blocks"] == 3
    table = succeed(*arguments).out
    assert "train.learning_rate" in table
    assert "Optimiser steps." in table
    assert not (tmp_path / "run").exists()


def test_resume_takes_the_configuration_of_the_folder(run: Path) -> None:
    (run / "checkpoint.safetensors").unlink()
    succeed("train", "reverse", "--resume", "--out", run, "--device", "cpu")
    assert Run(run).saved_step() == 6
    finished = succeed("train", "reverse", "--resume", "--out", run, "--steps", 6, "--device", "cpu")
    assert "6/6" in finished.err


def test_eval(run: Path) -> None:
    arguments = ("eval", run, "--lengths", "4,8,20", "--examples", 16, "--device", "cpu")
    result = succeed(*arguments, "--json").json
    assert result == json.loads((run / "evaluation.json").read_text())
    assert result["precision"] == "fp32"
    splits = ["uniform", *TASKS["reverse"].splits]
    assert [(s["split"], s["length"]) for s in result["scores"]] == [(s, n) for s in splits for n in (4, 8, 20)]
    assert all(0 <= s["symbol_accuracy"] <= 1 and 1 <= s["examples"] <= 16 for s in result["scores"])
    assert (run / "accuracy.png").read_bytes()[:4] == b"\x89PNG"

    again = succeed(*arguments, "--no-worst-case", "--plot", run / "other.svg")
    uniform = [s for s in result["scores"] if s["split"] == "uniform"]
    for score in uniform:
        shown = [format_percent(score["symbol_accuracy"]), format_percent(score["sequence_accuracy"])]
        assert any(all(part in line for part in (f" {score['length']} ", *shown)) for line in again.out.splitlines())
    assert "worst" not in again.out
    assert (run / "other.svg").exists()


def test_solve(run: Path) -> None:
    solved = succeed("solve", "reverse", "1", "2", "3", "--run", run, "--json").json
    assert solved.keys() == {"task", "input", "output", "expected", "correct", "model", "cells", "right_up_to"}
    assert (solved["task"], solved["input"], solved["expected"]) == ("reverse", "1 2 3", "3 2 1")
    assert solved["correct"] == (solved["output"] == "3 2 1")
    assert solved["model"] == str(run)
    shown = succeed("solve", "reverse", "1", "2", "3", "--run", run)
    assert shown.out == solved["output"] + "\n"
    assert ("right" if solved["correct"] else "wrong, the answer is 3 2 1") in shown.err
    assert "step 6" in shown.err
    assert succeed("solve", "reverse", "1 2 3", "--runs", "runs", "--json").json == {**solved, "model": "runs/reverse"}


def test_the_shipped_network_solves_unless_a_run_is_named(run: Path) -> None:
    """A short training of one's own must not spoil the answers."""
    solved = succeed("solve", "reverse", "7 3 9 1", "--json").json
    assert (solved["model"], solved["output"]) == (str(SHIPPED / "reverse"), "1 9 3 7")
    succeed("train", "divide", *TINY, "--steps", 1, "--out", "runs/other")
    assert find_trained_run("divide").folder == Path("runs/other"), "no network for it comes with the package"


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        ({4: 1.0, 8: 0.99, 16: 0.98, 32: 1.0}, "right at up to 8 cells in our tests; this input has 9."),
        ({4: 0.5}, "wrong now and then at every length"),
        ({4: 1.0, 16: 1.0}, ""),
        ({}, ""),
    ],
)
def test_solve_says_where_the_network_was_not_right(run: Path, accuracy: dict[int, float], said: str) -> None:
    scores = [Score(length, "uniform", 99, share, share) for length, share in accuracy.items()]
    write_json(run / "evaluation.json", {"scores": [asdict(score) for score in scores]})
    err = succeed("solve", "reverse", *"123456789", "--run", run).err
    assert said in err
    assert ("This network" in err) == bool(said)


def test_a_cpu_says_how_long_a_run_will_take(tmp_path: Path) -> None:
    err = succeed("train", "sort", *TINY, "--steps", 6, "--out", tmp_path / "run").err
    assert re.search(r"in float32: 6 steps, about \d+ second", err)
    assert "--recipe small" not in err
    run = Run(tmp_path / "run")
    assert _start_line(run, torch.device("cpu"), "default", 7300).endswith("2 hours; --recipe small takes minutes")
    assert _start_line(run, torch.device("cpu"), "small", 7300).endswith("2 hours")


def some_symbols(batch: int, length: int) -> Tensor:
    return torch.randint(0, TASKS["reverse"].symbols, (batch, length))


def test_export_to_onnx(run: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    result = succeed("export", run, "--json").json
    assert (result["path"], result["shortest"], result["longest"]) == (str(run / "model.onnx"), 1, None)
    session = onnxruntime.InferenceSession(result["path"], providers=["CPUExecutionProvider"])
    model = Run(run).model()
    for length, lengths in ((1, [1]), (13, [13, 2, 9]), (65, [65, 0])):
        inputs_BN = some_symbols(len(lengths), length)
        (scores_BNC,) = session.run(["scores"], {"symbols": inputs_BN.numpy(), "lengths": np.array(lengths)})
        torch.testing.assert_close(torch.from_numpy(scores_BNC), model(inputs_BN, lengths), rtol=1e-4, atol=1e-5)


def test_export_to_torch(run: Path) -> None:
    result = succeed("export", run, "--format", "torch", "--length", 8, "--out", "new/program.pt2")
    written, loaded = result.err.strip().splitlines()
    assert written == "wrote new/program.pt2 for lengths 5 to 8"
    assert loaded == "Next: load it in Python: torch.export.load('new/program.pt2').module()"
    program, model = torch.export.load("new/program.pt2").module(), Run(run).model()
    for batch, length in itertools.product((1, 3), (5, 7, 8)):
        inputs_BN = some_symbols(batch, length)
        torch.testing.assert_close(program(inputs_BN), model(inputs_BN), rtol=1e-5, atol=1e-6)
    with pytest.raises((AssertionError, RuntimeError), match="8"):  # the latter with torch 2.8
        program(some_symbols(1, 9))


def test_export_to_the_hub_format(run: Path) -> None:
    assert (
        "riffle.SequenceModel.from_pretrained('first')"
        in succeed("export", run, "--format", "hub", "--out", "first").err
    )
    path = succeed("export", run, "--format", "hub", "--out", "hub", "--json").json["path"]
    loaded, model = SequenceModel.from_pretrained(path), Run(run).model()
    inputs_BN = some_symbols(3, 21)
    assert torch.equal(loaded(inputs_BN), model(inputs_BN))
    assert len({path.stat().st_mode for path in Path("hub").iterdir()}) == 1, "the umask is for all files"
    with Path("hub/README.md").open("a") as card:
        card.write("more")
    Path("hub/model.safetensors").write_bytes(b"")
    succeed("export", run, "--format", "hub", "--out", "hub")
    assert Path("hub/README.md").read_text().endswith("more")
    assert torch.equal(SequenceModel.from_pretrained("hub")(inputs_BN), model(inputs_BN))


@pytest.mark.parametrize("kind", ["run", "project", "other model"])
def test_export_overwrites_no_folder_of_somebody_else(kind: str, run: Path) -> None:
    folder = run if kind == "run" else Path("mine")
    folder.mkdir(exist_ok=True)
    names = {"run": (), "project": ("README.md", "main.py"), "other model": ("README.md", "config.json")}
    for name in names[kind]:
        (folder / name).write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = riffle("export", run, "--format", "hub", "--out", folder)
    assert result.code == 1
    assert "would be overwritten: choose a new folder" in result.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
