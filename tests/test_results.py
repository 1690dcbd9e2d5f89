"""What README and docs say of results in words is in their files."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from riffle.tasks import TASKS
from riffle.train.shipped import SHIPPED

README = Path(__file__).parents[1] / "README.md"
RESULTS = README.parent / "results"
SMALL_REVERSE = RESULTS / "small-reverse"


def test_the_demo_reverses_what_is_two_thousand_times_longer() -> None:
    scores = json.loads((SMALL_REVERSE / "evaluation.json").read_text())["scores"]
    assert max(score["length"] for score in scores) == 65_536
    assert {(score["examples"], score["sequence_accuracy"]) for score in scores} == {(16, 1.0)}


def test_seven_of_eight_seeds_have_no_error() -> None:
    runs = [run["scores"] for run in json.loads((SMALL_REVERSE / "seeds.json").read_text())["runs"]]
    assert {(max(score["length"] for score in run), run[0]["examples"]) for run in runs} == {(4096, 128)}
    assert sorted(all(score["sequence_accuracy"] == 1.0 for score in run) for run in runs) == [False, *[True] * 7]


def test_the_best_of_three_multiplies() -> None:
    runs = [json.loads(path.read_text()) for path in sorted((RESULTS / "multiplication").glob("*.json"))]
    assert [run["steps"] for run in runs] == [28_000] * 3
    right = [{score["length"]: score["symbol_accuracy"] for score in run["scores"]} for run in runs]
    best = max(right, key=lambda run: run[128])
    assert best[64] == 1.0
    assert 0.9994 <= best[128] < 0.9995


def test_products_by_the_papers_recipe_go_as_in_its_figure() -> None:
    run = json.loads((RESULTS / "generalization" / "multiply-shuffle-exchange-paper-seed0.json").read_text())
    assert (run["steps"], max(run["config"]["data"]["bins"])) == (40_000, 64)
    right = {score["length"]: round(100 * score["symbol_accuracy"], 1) for score in run["scores"]}
    assert [right[length] for length in (64, 128, 512)] == [99.4, 64.7, 50.9]


def test_addition_in_full_precision() -> None:
    run = json.loads((RESULTS / "trials" / "paper-fp32" / "add-shuffle-exchange-paper-seed0.json").read_text())
    assert run["config"]["train"]["precision"] == "fp32"
    right = {score["length"]: round(100 * score["symbol_accuracy"], 1) for score in run["scores"]}
    assert [right[length] for length in (512, 4096)] == [99.1, 56.3]


def test_how_long_experiments_take() -> None:
    (*_, convergence), (generalization,) = (
        json.loads((RESULTS / name / "time.json").read_text()) for name in ("convergence", "generalization")
    )
    assert (convergence["finished"], convergence["steps"]) == (20, 240_000)
    assert 8.5 <= convergence["seconds"] / 60 < 8.6
    assert generalization["finished"] == 5
    assert 10 <= generalization["seconds"] / 60 < 10.5


def test_no_file_names_a_folder_of_the_machine_it_was_made_on() -> None:
    for path in (*RESULTS.rglob("*.json"), *SHIPPED.rglob("*.json"), *SHIPPED.rglob("*.md")):
        assert not re.search(r"/(tmp|home|root|work)/", path.read_text()), path


def test_how_many_tasks_have_weights() -> None:
    tasks = [name for name in TASKS if (SHIPPED / name / "checkpoint.safetensors").exists()]
    assert f"\n{len(tasks)} tasks and a reader have trained weights" in README.read_text()
    assert f"Trained weights of {len(tasks) - 1} tasks in the package" in (README.parent / "CHANGELOG.md").read_text()


def test_what_each_part_of_the_switch_is_worth() -> None:
    right: dict[str, list[float]] = {}
    for path in (*(RESULTS / "ablation").glob("multiply-*.json"), *(RESULTS / "products").glob("*.json")):
        run = json.loads(path.read_text())
        (found,) = (score["symbol_accuracy"] for score in run["scores"] if score["length"] == 32)
        right.setdefault(run["config"]["model"]["unit"], []).append(found)
    said = {
        "gated": 98.9,
        "no-benes": 98.2,
        "no-residual": 96.3,
        "no-swap": 91.9,
        "swap-gate": 78.6,
        "two-fc-gate": 78.3,
        "two-fc": 65.5,
    }
    assert {unit: round(100 * statistics.mean(found), 1) for unit, found in right.items()} == said
    sentence = README.read_text().split("products of length 32", 1)[1].split("\n\n", 1)[0]
    assert [float(number) for number in re.findall(r"([\d.]+)%", sentence)] == list(said.values())


def milliseconds(name: str) -> dict[tuple[str, str], dict[int, float]]:
    """Time over length of every series, by its model and its work."""
    series = json.loads((RESULTS / name / "results.json").read_text())["series"]
    return {
        (each["model"], each["work"]): {point["length"]: point["milliseconds"] for point in each["points"]}
        for each in series
    }


@pytest.mark.parametrize(
    ("name", "rival", "length", "times"),
    [
        ("timing-addition", "Neural GPU (DNGPU)", 2**15, 8200),
        ("timing-lambada", "Universal Transformer, FlashAttention", 2**17, 29),
    ],
)
def test_rivals_are_slower_at_every_length(name: str, rival: str, length: int, times: int) -> None:
    found = milliseconds(name)
    for work in ("evaluation", "training"):
        ours, theirs = found["shuffle-exchange", work], found[rival, work]
        assert all(theirs[each] > ours[each] for each in theirs)
    ratio = found[rival, "evaluation"][length] / found["shuffle-exchange", "evaluation"][length]
    assert times <= ratio < times * 1.02
