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

from research.reproduce import FIGURES, get_figure, paper, runner
from research.reproduce.jobs import RunJob, run_job
from research.reproduce.results import by_group, read_results
from research.reproduce.specs import RunSpec
from riffle.config import TrainConfig
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
    command = (
        "reproduce",
        "multiplication",
        "--quick",
        "--device",
        "cpu",
        "--out",
        tmp_path,
        "--work",
        tmp_path / "work",
    )
    ended = succeed(*command)
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
        assert kept["command"].startswith("riffle reproduce ")
        assert {"hardware", "versions", "finished", "seconds", "at_once"} <= kept.keys()
        assert kept["seed"] == kept["config"]["train"]["seed"] == 0
        assert [line["step"] for line in kept["metrics"] if "accuracy/16" in line] == [5, 10]
        assert [score["length"] for score in kept["scores"]] == [8, 16]
    figures = [root / name / "figure.svg", root / name / "figure.png"]
    assert "a quick run of tiny networks" in figures[0].read_text()
    before = [path.read_bytes() for path in figures]
    drawn = succeed("reproduce", name, "--draw", "--out", root, "--json").json
    assert drawn == shown
    assert [path.read_bytes() for path in figures] == before
    assert {claim["verdict"] for claim in shown["claims"]} == {"open"}, (
        "tiny networks were measured at no claim's length"
    )


def by_seeds(specs: Sequence[RunSpec]) -> dict[str, list[TrainConfig]]:
    """The training of every seed, by group."""
    groups: dict[str, list[TrainConfig]] = {}
    for spec in specs:
        groups.setdefault(spec.group, []).append(spec.config.train)
    return groups


def test_the_configurations_are_the_papers() -> None:
    runs = {name: get_figure(name).specs() for name in ON_SYMBOLS}
    for specs in runs.values():
        for spec in specs:
            config = spec.config
            compared = config.task == "multiply" and spec.folder in ("products", "ablation", "blocks", "maps")
            assert max(config.data.bins) == (128 if spec.folder == "multiplication" else 64)
            if config.model.kind == "dngpu":
                assert (config.train.optimizer, config.train.evaluate_lengths) == ("adamax", (64,))
                assert (config.train.steps, config.model.features in (48, 96)) == (20_000, True)
            elif compared:
                train = config.train
                assert (train.optimizer, train.learning_rate, train.schedule) == ("adamw", 0.00125, "linear")
                assert (train.average, train.evaluate_lengths) == (0.0, (64,))
            elif config.task != "multiply":
                maps = 96 if config.model.kind == "preprint" else 192
                assert (config.model.features, config.model.blocks) == (maps, 1)
    assert {spec.config.train.seed for spec in runs["convergence"]} == {0, 1, 2, 3, 4}
    groups = by_seeds(runs["generalization"])
    recipes = ("paper", "released", "preprint")
    simple = ("duplicate", "reverse", "add", "sort")
    historic = [f"{task}, shuffle-exchange, {recipe}" for recipe in recipes for task in (*simple, "multiply")]
    for group in (*historic, *(f"{task}, preprint network" for task in simple)):
        first, *others = groups[group]
        assert (first.steps, first.evaluate_lengths, len(others)) == (40_000, (512, 1024, 4096), 4)
    assert {len(seeds) for group, seeds in groups.items() if "dngpu" in group} == {3}
    assert {
        len(seeds) for name in ("ablation", "blocks", "maps", "sharing") for seeds in by_seeds(runs[name]).values()
    } == {3}
    shown = {(spec.folder, spec.name): spec for spec in runs["convergence"]}
    first_steps = {key for key, spec in shown.items() if spec.config.train.steps == 800}
    assert shown.keys() - first_steps <= {(spec.folder, spec.name) for spec in runs["generalization"]}
    assert {folder for folder, _ in first_steps} == {"convergence"}
    assert all(shown[key].config.train.schedule in ("constant", "plateau", "short-plateau") for key in first_steps)
    (product, *_) = runs["multiplication"]
    assert (product.config.model.features, product.config.model.blocks) == (384, 2)
    units = {(spec.config.task, spec.config.model.unit) for spec in runs["ablation"]}
    assert units == {(task, unit) for task, units_of_task in paper.ABLATION.items() for unit in units_of_task}
    assert {spec.config.model.features for spec in runs["maps"]} == {96, 192, 384}
    assert {spec.config.model.blocks for spec in runs["blocks"]} == {1, 2, 3}
    assert {spec.config.model.sharing for spec in runs["sharing"]} == {"block", "minimal"}


def test_the_first_seed_of_all_comes_first() -> None:
    seeds = [spec.config.train.seed for spec in get_figure("sharing").specs(runs=2)]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_claims_judge_the_papers_own_numbers_as_reached_and_worse_ones_as_not(name: str, tmp_path: Path) -> None:
    figure = get_figure(name)
    specs = figure.specs(runs=2)
    write_results(tmp_path, specs, paper_accuracy)
    claims = figure.claims(figure.read(tmp_path))
    assert {claim.holds for claim in claims} == {True}, [claim for claim in claims if not claim.holds]
    write_results(tmp_path, specs, lambda spec, length: paper_accuracy(spec, length) / 2)
    claims = [claim for claim in figure.claims(figure.read(tmp_path)) if claim.paper]
    assert {claim.holds for claim in claims} <= {False}
    assert all(": short by" in claim.verdict for claim in claims)


def test_convergence_shows_the_first_steps_in_the_colour_of_their_recipe(tmp_path: Path) -> None:
    figure = get_figure("convergence")
    write_results(tmp_path, figure.specs(runs=2), paper_accuracy)
    axes, *_ = figure.draw(figure.read(tmp_path)).axes
    ends = {(line.get_color(), line.get_xdata()[-1]) for line in axes.get_lines()}  # type: ignore[index]
    historic = {line.get_color() for line in axes.get_lines() if line.get_xdata()[-1] == 40_000}  # type: ignore[index]
    assert {colour for colour, last in ends if last == 800} == historic
    legend = axes.get_legend()
    assert legend is not None
    names = [text.get_text().removeprefix("shuffle-exchange, ") for text in legend.get_texts()]
    assert names == ["paper", "released", "preprint", "long", "preprint network"]
    assert len(historic) == 4


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
    assert "Give one of timing-addition" in riffle("reproduce").err.replace("\n", " ")
    refused = riffle("reproduce", "maps", "--only", "add,sort", "--device", "cpu").err
    assert "--only add,sort leaves no run of multiply-to-64-gated-2-blocks-192-maps-seed0," in refused.replace(
        "\n", " "
    )
    assert "unknown option 'train.step'" in riffle("reproduce", "maps", "--set", "train.step=1", "--device", "cpu").err
