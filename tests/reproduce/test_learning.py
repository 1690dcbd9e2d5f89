"""Experiments of learning: every one runs, its configurations are the paper's, its claims say what holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.riffle_command import riffle, succeed

from riffle.files import write_json
from riffle.reproduce import LEARNING, get_figure, paper
from riffle.reproduce import runner as schedule
from riffle.reproduce.jobs import RunJob, run_job
from riffle.reproduce.results import by_group, read_figure_results, read_results

from .synthetic import accurate, result, write

ON_SYMBOLS = [name for name in LEARNING if not name.startswith("lambada")]
"""Experiments on tasks; those on passages have tests of their own."""


def one_by_one(orders: Sequence[RunJob], devices: Sequence[str], *, tell: Callable[..., None], **rest: Any) -> None:
    """The scheduler without its processes."""
    for order in orders:
        run_job(order, torch.device(devices[0]), lambda news: tell(order, news))  # noqa: B023


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of all experiments are kept, so that those they share are trained once here too."""
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_a_quick_run_leaves_results_and_a_figure_drawn_from_them(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "carry_out", one_by_one)
    command = ("reproduce", name, "--quick", "--out", root, "--work", root / "work", "--json")
    found = succeed(*command, "--device", "cpu", "--commit", "abc").json
    config = get_figure(name)
    for learner in config.configs(quick=True, runs=1):
        kept = json.loads((root / learner.folder / f"{learner.name}.json").read_text())
        assert learner.name in found["runs"]
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
    assert drawn == found
    assert [path.read_bytes() for path in figures] == before
    assert {claim["verdict"] for claim in found["claims"]} == {"open"}, (
        "tiny networks were measured at no claim's length"
    )


def test_the_configurations_are_the_papers() -> None:
    runs = {name: get_figure(name).configs(runs=get_figure(name).RUNS) for name in ON_SYMBOLS}
    for learners in runs.values():
        for each in learners:
            config = each.config
            compared = config.task == "multiply" and each.folder in ("products", "ablation", "blocks", "maps")
            assert max(config.data.bins) == (32 if compared else 128 if each.folder == "multiplication" else 64)
            if config.model.kind == "dngpu":
                assert (config.train.optimizer, config.train.evaluate_lengths) == ("adamax", (64,))
            elif config.task != "multiply":
                assert (config.model.features, config.model.blocks) == (192, 1)
    assert {each.config.train.seed for each in runs["convergence"]} == {0, 1, 2, 3, 4}
    steps = {each.config.train.steps for each in runs["generalization"] if not each.group.endswith("long")}
    assert steps == {40_000}
    assert {(each.folder, each.name) for each in runs["convergence"]} <= {
        (each.folder, each.name) for each in runs["generalization"]
    }
    (product, *_) = runs["multiplication"]
    assert (product.config.model.features, product.config.model.blocks) == (384, 2)
    units = {(each.config.task, each.config.model.unit) for each in runs["ablation"]}
    assert units == {(task, unit) for task, found in paper.ABLATION.items() for unit in found}
    assert {each.config.model.features for each in runs["maps"]} == {96, 192, 384}
    assert {each.config.model.blocks for each in runs["blocks"]} == {1, 2, 3}
    assert {each.config.model.sharing for each in runs["sharing"]} == {"block", "minimal"}


def test_the_first_seed_of_all_comes_first() -> None:
    seeds = [each.config.train.seed for each in get_figure("sharing").configs(runs=2)]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_claims_judge_the_papers_own_numbers_as_reached_and_worse_ones_as_not(name: str, tmp_path: Path) -> None:
    config = get_figure(name)
    learners = config.configs(runs=2)
    write(tmp_path, learners, accurate)
    claims = config.claims(read_figure_results(name, tmp_path))
    assert {claim.holds for claim in claims} == {True}, [claim for claim in claims if not claim.holds]
    write(tmp_path, learners, lambda learner, length: accurate(learner, length) / 2)
    claims = [claim for claim in config.claims(read_figure_results(name, tmp_path)) if claim.paper]
    assert {claim.holds for claim in claims} <= {False}
    assert all(claim.verdict.startswith("short by") for claim in claims)


def test_of_other_experiments_runs_only_those_that_are_listed_too(tmp_path: Path) -> None:
    for name in ("sharing", "ablation"):
        write(tmp_path, get_figure(name).configs(runs=2), accurate)
    found = list(by_group(read_figure_results("sharing", tmp_path)))
    assert found == ["add, gated", "sort, gated", "add, gated, minimal", "sort, gated, minimal"]


def test_runs_of_the_same_group_have_to_be_alike(tmp_path: Path) -> None:
    learners = get_figure("multiplication").configs(runs=2)
    write(tmp_path, learners, accurate)
    results = read_results(tmp_path, ["multiplication"])
    assert [len(runs) for runs in by_group(results).values()] == [2]
    path = tmp_path / "multiplication" / f"{learners[1].name}.json"
    content = result(learners[1], accurate)
    content["config"]["train"]["steps"] = 7
    write_json(path, content)
    with pytest.raises(ValueError, match=r"'multiply' are of different configurations.*multiply-seed0, multiply-seed1"):
        read_results(tmp_path, ["multiplication"])
    path.write_text("{")
    with pytest.raises(ValueError, match=r"multiply-seed1.json is damaged .*remove it"):
        read_results(tmp_path, ["multiplication"])
    path.write_text('{"something": "else"}')
    assert len(read_results(tmp_path, ["multiplication"])) == 1


def test_results_of_another_configuration_are_not_taken_for_these(tmp_path: Path) -> None:
    write(tmp_path, get_figure("multiplication").configs(runs=1), accurate)
    command = ("reproduce", "multiplication", "--runs", 1, "--out", tmp_path, "--work", tmp_path, "--device", "cpu")
    refused = riffle(*command, "--set", "train.steps=7")
    assert refused.code == 1
    assert "train.steps is 28000 there and 7 here; remove it" in refused.err.replace("\n", " ")
    assert "0 steps to go" in succeed(*command).err


def test_mistakes() -> None:
    assert "Give one of timing-addition" in riffle("reproduce").err.replace("\n", " ")
    refused = riffle("reproduce", "maps", "--only", "add,sort", "--device", "cpu").err
    assert "--only add,sort leaves no run of multiply-gated-2-blocks-192-maps-seed0," in refused.replace("\n", " ")
    assert "unknown option 'train.step'" in riffle("reproduce", "maps", "--set", "train.step=1", "--device", "cpu").err
