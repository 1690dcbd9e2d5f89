"""Figures of trained networks: every one runs, its configurations are the paper's, its claims say what holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.riffle_command import riffle, succeed

from research.reproduce import FIGURES, get_figure, runner
from research.reproduce.jobs import RunJob, run_job
from research.reproduce.results import by_group, read_results
from research.reproduce.specs import RunSpec
from research.reproduce.verdicts import Claim, Verdict, judge
from riffle.files import write_json

from .synthetic import paper_accuracy, synthetic_result, write_results

ON_SYMBOLS = [name for name, entry in FIGURES.items() if entry.kind == "learning" and not name.startswith("lambada")]


def run_in_this_process(
    jobs: Sequence[RunJob], devices: Sequence[str], *, on_update: Callable[..., None], **options: Any
) -> None:
    """The scheduler without its processes."""
    for job in jobs:
        run_job(job, torch.device(devices[0]), lambda update: on_update(job, update))  # noqa: B023


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of all figures, so that runs that figures share are trained once here too."""
    return tmp_path_factory.mktemp("results")


def test_runs_need_no_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr(runner, "run_jobs", run_in_this_process)
    folders = ("--out", tmp_path, "--work", tmp_path / "work")
    ended = succeed("reproduce", "multiplication", "--quick", "--device", "cpu", *folders)
    assert "no TensorBoard curves, since tensorboard is not installed" in " ".join(ended.err.split())
    assert (tmp_path / "multiplication" / "multiply-seed0.json").exists()
    assert not list(tmp_path.glob("work/*/*/tensorboard"))


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_a_quick_run_leaves_results_and_a_figure_drawn_from_them(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_jobs", run_in_this_process)
    command = ("reproduce", name, "--quick", "--out", root, "--work", root / "work", "--json")
    shown = succeed(*command, "--device", "cpu", "--commit", "abc").json
    for spec in get_figure(name).specs(quick=True):
        kept = json.loads((root / spec.folder / f"{spec.name}.json").read_text())
        assert spec.name in shown["runs"]
        assert kept["commit"] == "abc"
        assert kept["command"].startswith("python -m research reproduce ")
        assert {"hardware", "versions", "finished", "seconds", "at_once"} <= kept.keys()
        assert kept["seed"] == kept["config"]["train"]["seed"] == 0
        longest = max(kept["config"]["train"]["evaluate_lengths"])
        assert [line["step"] for line in kept["metrics"] if f"accuracy/{longest}" in line] == [5, 10]
        assert [score["length"] for score in kept["scores"]] in ([8, 16], [8])
    figures = [root / name / "figure.svg", root / name / "figure.png"]
    assert "a quick run of tiny networks" in figures[0].read_text()
    before = [path.read_bytes() for path in figures]
    drawn = succeed("reproduce", name, "--draw", "--out", root, "--json").json
    assert drawn == shown
    assert [path.read_bytes() for path in figures] == before
    assert {claim["verdict"] for claim in shown["claims"]} == {"not measured"}, "no claim is about so short lengths"


def test_the_first_seed_of_all_networks_comes_first() -> None:
    seeds = [spec.config.train.seed for spec in get_figure("sharing").specs(runs=2)]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_the_papers_own_numbers_contradict_nothing_and_worse_ones_do(name: str, tmp_path: Path) -> None:
    figure = get_figure(name)
    specs = figure.specs(runs=3)

    def verdicts(accuracy: Callable[[RunSpec, int], float]) -> list[tuple[Claim, Verdict]]:
        write_results(tmp_path, specs, accuracy)
        claims = figure.claims(figure.read(tmp_path))
        measured = [each for each in zip(claims, judge(claims), strict=True) if each[0].ours]
        assert measured
        return measured

    kept = verdicts(lambda spec, length: paper_accuracy(spec, length) - 1e-3 - 1e-5 * spec.config.train.seed)
    against_the_paper = [verdict for claim, verdict in kept if isinstance(claim.other, float)]
    assert all(verdict.agrees for verdict in against_the_paper)
    worse = verdicts(lambda spec, length: paper_accuracy(spec, length) / 2 - 1e-5 * spec.config.train.seed)
    worse_than_the_paper = [verdict for claim, verdict in worse if isinstance(claim.other, float)]
    assert {verdict.word for verdict in worse_than_the_paper} <= {"differs"}
    assert not any(verdict.agrees for verdict in worse_than_the_paper)


def test_of_another_figures_runs_only_the_listed_ones_are_shown(tmp_path: Path) -> None:
    for name in ("sharing", "ablation"):
        write_results(tmp_path, get_figure(name).specs(runs=2), paper_accuracy)
    groups = list(by_group(get_figure("sharing").read(tmp_path)))
    assert groups == ["add, gated", "sort, gated", "add, gated, minimal", "sort, gated, minimal"]


def test_runs_of_the_same_group_have_to_be_alike(tmp_path: Path) -> None:
    specs = get_figure("multiplication").specs(runs=2)
    write_results(tmp_path, specs, paper_accuracy)
    results = read_results(tmp_path, ["multiplication"])
    assert [len(runs) for runs in by_group(results).values()] == [2]
    path = tmp_path / "multiplication" / f"{specs[1].name}.json"
    content = synthetic_result(specs[1], paper_accuracy)
    content["config"]["train"]["steps"] = 7
    write_json(path, content)
    with pytest.raises(ValueError, match=r"'multiply' are of different configurations.*multiply-seed0, multiply-seed1"):
        read_results(tmp_path, ["multiplication"])
    for field, wrong in (("scores", {}), ("steps", "7"), ("metrics", [{"step": "x"}]), ("config", []), ("group", None)):
        write_json(path, {**content, field: wrong})
        with pytest.raises(ValueError, match=r"multiply-seed1.json is no result of a run: .*; remove it"):
            read_results(tmp_path, ["multiplication"])
    path.write_text("{")
    with pytest.raises(ValueError, match=r"multiply-seed1.json is no result of a run: .*remove it"):
        read_results(tmp_path, ["multiplication"])
    path.write_text('{"something": "else"}')
    assert len(read_results(tmp_path, ["multiplication"])) == 1


def test_results_of_another_configuration_are_not_taken_for_these(tmp_path: Path) -> None:
    write_results(tmp_path, get_figure("multiplication").specs(runs=1), paper_accuracy)
    command = ("reproduce", "multiplication", "--runs", 1, "--out", tmp_path, "--work", tmp_path, "--device", "cpu")
    refused = riffle(*command, "--set", "train.steps=7")
    assert refused.code == 1
    assert "train.steps is 28000 there and 7 here; remove it" in refused.err.replace("\n", " ")
    assert "0 steps to go" in succeed(*command).err


def test_mistakes() -> None:
    assert all(name in succeed("reproduce").out for name in FIGURES)
    refused = riffle("reproduce", "maps", "--only", "add,sort", "--device", "cpu").err
    assert "--only add,sort leaves no run of multiply-to-64-gated-2-blocks-192-maps-seed0," in " ".join(refused.split())
    assert "unknown option 'train.step'" in riffle("reproduce", "maps", "--set", "train.step=1", "--device", "cpu").err
