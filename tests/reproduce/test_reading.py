"""Comparisons of networks on passages: what is trained, what is kept, what is drawn, what is claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.riffle_command import riffle, succeed

from riffle.reproduce import LEARNING, get_figure
from riffle.reproduce.figures import lambada_units
from riffle.reproduce.figures.readers import accuracies, alike, rises
from riffle.reproduce.results import read_figure_results

READING = [name for name in LEARNING if name.startswith("lambada")]


@pytest.mark.parametrize("name", READING)
def test_a_quick_run_leaves_results_and_a_figure(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Two networks of each comparison: all of them take a process each, which is slow to start.
    config = get_figure(name)
    learners = config.configs(quick=True, runs=1)[:2]
    only = ",".join(learner.name for learner in learners)
    shown = succeed("reproduce", name, "--quick", "--device", "cpu", "--only", only, "--json").json
    assert set(shown["runs"]) == {learner.name for learner in learners}
    assert all(claim["statement"] and claim["evidence"] for claim in shown["claims"])
    results = read_figure_results(name, Path("runs/quick"))
    for result in results:
        assert {"command", "commit", "hardware", "versions", "config", "parameters"} <= result.keys()
        assert result["accuracy"]["all"]["passages"] == 100
        curve = {line["step"]: line["accuracy/development"] for line in result["metrics"] if "loss" not in line}
        assert sorted(curve) == [2, 4]
        assert curve[4] == pytest.approx(result["accuracy"]["all"]["position"])
    figure = Path("runs/quick") / name / "figure.png"
    before = figure.read_bytes()
    succeed("reproduce", name, "--quick", "--draw")
    assert figure.read_bytes() == before


def results_of(**accuracy: float) -> list[dict[str, Any]]:
    return [{"group": name, "accuracy": {"all": {"position": share}}} for name, share in accuracy.items()]


def test_claims_say_what_holds_what_does_not_and_what_is_open() -> None:
    results = results_of(a=0.4, b=0.5, c=0.51)
    assert accuracies(results, "b") == [0.5]
    assert [claim.holds for claim in rises(results, ["a", "b", "c"])] == [True, True]
    assert [claim.holds for claim in rises(results, ["b", "a"])] == [False]
    assert [claim.holds for claim in rises(results, ["a", "d"])] == [None]
    assert alike(results, ["b", "c"], 2).holds
    assert alike(results, ["a", "c"], 2).holds is False
    assert alike(results, ["a", "d"], 2).holds is None
    assert lambada_units.claims(results)[0].holds is None


def test_the_configurations_are_the_papers() -> None:
    models = {name: [each.config.model for each in get_figure(name).configs()] for name in READING}
    assert [(m.features, m.blocks) for m in models["lambada-maps"]] == [(96, 2), (192, 2), (384, 2)]
    assert [(m.features, m.blocks) for m in models["lambada-blocks"]] == [(192, 1), (192, 2), (192, 3)]
    assert len({m.unit for m in models["lambada-units"]}) == 7
    assert [m.sharing for m in models["lambada-sharing"]] == ["block", "minimal", "full", "block"]


def test_a_network_of_two_comparisons_is_trained_once() -> None:
    names = [{(each.folder, each.name) for each in get_figure(name).configs()} for name in READING]
    assert all(("lambada-maps", "192-maps-2-blocks-seed0") in learners for learners in names[:4])


def test_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = riffle("reproduce", "lambada-maps", "--device", "cpu", "--only", "96", "--set", "data.corpus=nothing")
    assert result.code == 1
    assert "nothing holds no prepared corpus" in result.err
