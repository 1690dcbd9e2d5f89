"""Networks compared on LAMBADA: what is trained, kept, drawn and claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from research.reproduce import FIGURES, get_figure, runner
from research.reproduce.figures.lambada import BASELINE, LAMBADA_UNITS, accuracy
from research.reproduce.verdicts import judge

from .test_figures import run_in_this_process

ON_PASSAGES = [name for name in FIGURES if name.startswith("lambada")]


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("name", ON_PASSAGES)
def test_a_quick_run_leaves_results_and_a_figure(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name != ON_PASSAGES[0]:  # of one figure every run has a process of its own, which takes longer
        monkeypatch.setattr(runner, "run_jobs", run_in_this_process)
    figure = get_figure(name)
    specs = figure.specs(quick=True)[:2]
    only = ",".join(spec.name for spec in specs)
    shown = succeed("reproduce", name, "--quick", "--device", "cpu", "--only", only, "--json").json
    assert set(shown["runs"]) == {spec.name for spec in specs}
    assert all(claim["statement"] and claim["found"] for claim in shown["claims"])
    results = figure.read(Path("runs/quick"))
    for result in results:
        assert {"command", "commit", "hardware", "versions", "config", "parameters"} <= result.keys()
        assert result["accuracy"]["all"]["passages"] == len(result["right"]) == 100
        assert result["accuracy"]["all"]["position"] == pytest.approx(result["right"].count("1") / 100)
        curve = {line["step"]: line["accuracy/development"] for line in result["metrics"] if "loss" not in line}
        assert sorted(curve) == [2, 4]
        assert curve[4] == pytest.approx(result["accuracy"]["all"]["position"])
    drawing = Path("runs/quick") / name / "figure.png"
    before = drawing.read_bytes()
    succeed("reproduce", name, "--quick", "--draw")
    assert drawing.read_bytes() == before


def test_claims_are_about_networks_and_their_baseline() -> None:
    assert {claim.statement for claim in LAMBADA_UNITS.claims([])} >= {
        "LAMBADA: no-swap beside 192 maps, 2 blocks",
        "LAMBADA: 192 maps, 2 blocks beside two-fc",
    }
    results = [{"group": group, "accuracy": {"all": {"position": 0.5}}} for group in (BASELINE, "no-swap") * 3]
    assert accuracy(results, "no-swap") == (0.5,) * 3
    measured = [claim for claim in LAMBADA_UNITS.claims(results) if claim.runs]
    assert [(claim.statement, judge([claim])[0].word) for claim in measured] == [
        ("LAMBADA: no-swap beside 192 maps, 2 blocks", "equal")
    ]


def test_a_network_of_two_comparisons_is_trained_once() -> None:
    names = [{(spec.folder, spec.name) for spec in get_figure(name).specs()} for name in ON_PASSAGES]
    assert all(("lambada-maps", "192-maps-2-blocks-seed0") in specs for specs in names[:4])


def test_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = riffle("reproduce", "lambada-maps", "--device", "cpu", "--only", "96", "--set", "data.corpus=nothing")
    assert result.code == 1
    assert "nothing holds no prepared corpus" in result.err
