"""What README and docs say of results in words is in their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
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
