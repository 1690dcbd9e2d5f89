"""Comparisons of networks on passages: what is trained, what is kept, what is drawn, what is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.riffle_command import riffle, succeed
from train.tiny import stop_after

from riffle.experiments import EXPERIMENTS, get_experiment, lambada_units
from riffle.experiments.learning import accuracies, alike, rises
from riffle.experiments.run import draw
from riffle.train.run import Run

LEARNED = [name for name in EXPERIMENTS if name.startswith("lambada")]


@pytest.mark.parametrize("name", LEARNED)
def test_a_quick_run_leaves_results_and_a_figure_drawn_from_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = succeed("reproduce", name, "--quick", "--device", "cpu", "--steps", 2, "--json").json
    folder = Path("runs") / name
    assert results == json.loads((folder / "results.json").read_text())
    assert {"command", "commit", "device", "versions", "started"} <= results.keys()
    assert [line["name"] for line in results["series"]] == [each.name for each in get_experiment(name).configs()]
    for line in results["series"]:
        assert line["accuracy"]["all"]["passages"] == results["corpus"]["splits"]["development"] == 100
        assert [point["step"] for point in line["curve"]] == [2]
        assert line["curve"][-1]["accuracy"] == pytest.approx(line["accuracy"]["all"]["position"])
    figures = [folder / "figure.svg", folder / "figure.png"]
    before = [path.read_bytes() for path in figures]
    draw(get_experiment(name), folder / "results.json")
    assert [path.read_bytes() for path in figures] == before
    assert all(claim["statement"] and claim["evidence"] for claim in results["claims"])


def test_a_comparison_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("reproduce", "lambada-maps", "--quick", "--device", "cpu")
    with monkeypatch.context() as context:
        stop_after(3, context)
        stopped = riffle(*command)
    assert stopped.code == 128 + 15
    assert "The same command goes on from there" in stopped.err
    assert Run(Path("runs/lambada-maps/96-maps")).saved_step() == 3
    shown = succeed(*command).out
    assert Run(Path("runs/lambada-maps/384-maps")).saved_step() == 4
    assert "by position" in shown
    assert "accuracy of 96 maps < 192 maps < 384 maps" in " ".join(shown.split())


def results_of(**accuracy: float) -> dict[str, Any]:
    return {"series": [{"name": name, "accuracy": {"all": {"position": share}}} for name, share in accuracy.items()]}


def test_claims_say_what_holds_what_does_not_and_what_is_open() -> None:
    results = results_of(a=0.4, b=0.5, c=0.51)
    assert accuracies(results) == {"a": 0.4, "b": 0.5, "c": 0.51}
    assert rises(results, ["a", "b", "c"]).holds
    assert rises(results, ["b", "a"]).holds is False
    assert rises(results, ["a", "d"]).holds is None
    assert alike(results, ["b", "c"], 2).holds
    assert alike(results, ["a", "c"], 2).holds is False
    assert alike(results, ["a", "d"], 2).holds is None
    assert lambada_units.claims(results)[0].holds is None


def test_the_configurations_are_the_papers() -> None:
    models = {name: [each.experiment.model for each in get_experiment(name).configs()] for name in LEARNED}
    assert [(m.features, m.blocks) for m in models["lambada-maps"]] == [(96, 2), (192, 2), (384, 2)]
    assert [(m.features, m.blocks) for m in models["lambada-blocks"]] == [(384, 1), (384, 2), (384, 3)]
    assert len({m.unit for m in models["lambada-units"]}) == 7
    assert [m.sharing for m in models["lambada-sharing"]] == ["block", "minimal", "full", "block"]


def test_a_corpus_without_a_development_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = riffle("reproduce", "lambada-maps", "--quick", "--corpus", "nothing")
    assert result.code == 1
    assert "nothing holds no prepared corpus" in result.err
