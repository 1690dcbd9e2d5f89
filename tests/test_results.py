"""What the README says of results in words is in their files."""

from __future__ import annotations

import json
from pathlib import Path

SMALL_REVERSE = Path(__file__).parents[1] / "results" / "small-reverse"


def test_the_demo_reverses_what_is_two_thousand_times_longer() -> None:
    scores = json.loads((SMALL_REVERSE / "evaluation.json").read_text())["scores"]
    assert max(score["length"] for score in scores) == 65_536
    assert {(score["examples"], score["sequence_accuracy"]) for score in scores} == {(16, 1.0)}


def test_seven_of_eight_seeds_have_no_error() -> None:
    runs = [run["scores"] for run in json.loads((SMALL_REVERSE / "seeds.json").read_text())["runs"]]
    assert {(max(score["length"] for score in run), run[0]["examples"]) for run in runs} == {(4096, 128)}
    assert sorted(all(score["sequence_accuracy"] == 1.0 for score in run) for run in runs) == [False, *[True] * 7]
