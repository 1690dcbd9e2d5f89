"""The numbers that README and docs state in prose are those of the result files."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from research.bench.over_length import points
from riffle.train.shipped import SHIPPED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results"
SMALL_REVERSE, ONE_BLOCK = RESULTS / "small-reverse", RESULTS / "reverse-one-block"


def test_the_demo_is_right_at_powers_of_two_and_nearly_so_between() -> None:
    scores = json.loads((SMALL_REVERSE / "evaluation.json").read_text())["scores"]
    uniform = [score for score in scores if score["split"] == "uniform"]
    assert {score["examples"] for score in uniform} == {32}
    powers = [score for score in uniform if score["length"].bit_count() == 1]
    assert max(score["length"] for score in powers) == 4096
    assert {score["symbol_accuracy"] for score in powers} == {1.0}
    assert 0.9695 <= min(score["symbol_accuracy"] for score in uniform) < 0.9696


def test_eight_seeds_of_the_demo_by_both_recipes() -> None:
    expected = {"small-reverse/seeds.json": (98.7, 91.6, 89.5), "reverse-one-block/between.json": (87.6, 36.4, 88.0)}
    for name, figures in expected.items():
        runs = [run["scores"] for run in json.loads((RESULTS / name).read_text())["runs"]]
        assert (len(runs), {score["examples"] for run in runs for score in run}) == (8, {64})
        at = {
            length: [s["symbol_accuracy"] for run in runs for s in run if s["length"] == length]
            for length in (1000, 4096)
        }
        found = (statistics.mean(at[4096]), min(at[4096]), statistics.mean(at[1000]))
        assert tuple(round(100 * figure, 1) for figure in found) == figures


def test_a_network_of_one_block_reverses_what_is_two_thousand_times_longer() -> None:
    scores = json.loads((ONE_BLOCK / "evaluation.json").read_text())["scores"]
    assert max(score["length"] for score in scores) == 65_536
    assert {(score["examples"], score["sequence_accuracy"]) for score in scores} == {(16, 1.0)}


def test_three_of_eight_seeds_of_one_block_have_no_error() -> None:
    runs = [run["scores"] for run in json.loads((ONE_BLOCK / "seeds.json").read_text())["runs"]]
    assert {(max(score["length"] for score in run), run[0]["examples"]) for run in runs} == {(4096, 128)}
    assert sum(all(score["sequence_accuracy"] == 1.0 for score in run) for run in runs) == 3


def test_the_best_of_three_multiplies() -> None:
    runs = [json.loads(path.read_text()) for path in sorted((RESULTS / "multiplication").glob("*.json"))]
    assert [run["steps"] for run in runs] == [28_000] * 3
    accuracies = [{score["length"]: score["symbol_accuracy"] for score in run["scores"]} for run in runs]
    best = max(accuracies, key=lambda run: run[128])
    assert best[64] == 1.0
    assert 0.9994 <= best[128] < 0.9995


def test_products_by_the_papers_recipe_go_as_in_its_figure() -> None:
    paths = (RESULTS / "generalization").glob("multiply-shuffle-exchange-paper-seed*.json")
    runs = [json.loads(path.read_text()) for path in paths]
    assert {(run["steps"], max(run["config"]["data"]["bins"])) for run in runs} == {(40_000, 64)}
    scores = {
        length: [s for run in runs for s in run["scores"] if s["length"] == length] for length in (64, 128, 512, 4096)
    }
    assert {len(each) for each in scores.values()} == {5}
    symbols = {length: [100 * score["symbol_accuracy"] for score in each] for length, each in scores.items()}
    assert [round(statistics.mean(symbols[length]), 1) for length in (64, 128, 512)] == [99.1, 64.6, 51.0]
    assert sorted(map(round, symbols[4096])) == [21, 29, 50, 50, 50]
    whole = {length: [100 * score["sequence_accuracy"] for score in each] for length, each in scores.items()}
    assert (round(min(whole[64])), round(max(whole[64]))) == (42, 87)
    assert {share for length, each in whole.items() if length > 64 for share in each} == {0.0}


def test_the_papers_recipe_depends_on_the_seed() -> None:
    ranges = {}
    for task in ("duplicate", "reverse", "add"):
        paths = sorted((RESULTS / "generalization").glob(f"{task}-shuffle-exchange-paper-seed*.json"))
        runs = [json.loads(path.read_text())["scores"] for path in paths]
        accuracies = [score["symbol_accuracy"] for scores in runs for score in scores if score["length"] == 4096]
        assert len(accuracies) == 5
        ranges[task] = round(100 * min(accuracies)), round(100 * max(accuracies))
    assert ranges == {"duplicate": (65, 100), "reverse": (60, 98), "add": (48, 87)}


def test_addition_in_full_precision() -> None:
    run = json.loads((RESULTS / "trials" / "paper-fp32" / "add-shuffle-exchange-paper-seed0.json").read_text())
    assert run["config"]["train"]["precision"] == "fp32"
    accuracy = {score["length"]: round(100 * score["symbol_accuracy"], 1) for score in run["scores"]}
    assert [accuracy[length] for length in (512, 4096)] == [99.1, 56.3]


def test_how_long_experiments_take() -> None:
    (_, convergence, *_), (generalization, *_) = (
        json.loads((RESULTS / name / "time.json").read_text()) for name in ("convergence", "generalization")
    )
    assert (convergence["finished"], convergence["steps"]) == (20, 240_000)
    assert 8.5 <= convergence["seconds"] / 60 < 8.6
    assert generalization["finished"] == 5
    assert 10 <= generalization["seconds"] / 60 < 10.5


def test_no_file_names_a_folder_of_the_machine_it_was_made_on() -> None:
    for path in (*RESULTS.rglob("*.json"), *SHIPPED.rglob("*.json"), *SHIPPED.rglob("*.md")):
        assert not re.search(r"/(tmp|home|root|work)/", path.read_text()), path


@pytest.mark.parametrize(
    ("name", "baseline", "length", "times"),
    [
        ("timing-addition", "Neural GPU (DNGPU)", 2**15, 8200),
        ("timing-lambada", "Universal Transformer, FlashAttention", 2**17, 29),
    ],
)
def test_baselines_are_slower_at_every_length(name: str, baseline: str, length: int, times: int) -> None:
    results = json.loads((RESULTS / name / "results.json").read_text())
    for work in ("evaluation", "training"):
        ours, other = points(results, "shuffle-exchange", work), points(results, baseline, work)
        assert all(other[each] > ours[each] for each in other)
    ours, other = (points(results, model, "evaluation") for model in ("shuffle-exchange", baseline))
    assert times <= other[length] / ours[length] < times * 1.02
