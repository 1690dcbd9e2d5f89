"""Networks compared on LAMBADA: what is trained, kept, drawn and claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.riffle_command import riffle, succeed

from research.reproduce import FIGURES, get_figure, runner
from research.reproduce.figures.lambada import LAMBADA_UNITS, increasing, passage_accuracies, similar

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
    assert all(claim["statement"] and claim["evidence"] for claim in shown["claims"])
    results = figure.read(Path("runs/quick"))
    for result in results:
        assert {"command", "commit", "hardware", "versions", "config", "parameters"} <= result.keys()
        assert result["accuracy"]["all"]["passages"] == 100
        curve = {line["step"]: line["accuracy/development"] for line in result["metrics"] if "loss" not in line}
        assert sorted(curve) == [2, 4]
        assert curve[4] == pytest.approx(result["accuracy"]["all"]["position"])
    drawing = Path("runs/quick") / name / "figure.png"
    before = drawing.read_bytes()
    succeed("reproduce", name, "--quick", "--draw")
    assert drawing.read_bytes() == before


def results_of(**accuracy: float) -> list[dict[str, Any]]:
    return [{"group": name, "accuracy": {"all": {"position": share}}} for name, share in accuracy.items()]


def test_claims_say_what_holds_what_does_not_and_what_is_open() -> None:
    results = results_of(a=0.4, b=0.5, c=0.51)
    assert passage_accuracies(results, "b") == [0.5]
    assert [claim.holds for claim in increasing(results, ["a", "b", "c"])] == [True, True]
    assert [claim.holds for claim in increasing(results, ["b", "a"])] == [False]
    assert [claim.holds for claim in increasing(results, ["a", "d"])] == [None]
    assert similar(results, ["b", "c"], 2).holds
    assert similar(results, ["a", "c"], 2).holds is False
    assert similar(results, ["a", "d"], 2).holds is None
    assert LAMBADA_UNITS.claims(results)[0].holds is None
    results = [*results_of(a=0.40, b=0.415), *results_of(a=0.42, b=0.435), *results_of(a=0.41, c=0.5)]
    claim = similar(results, ["a", "b"], 4)
    assert (claim.verdict, claim.evidence) == ("2 runs: holds", "1.50 points from 41.00% to 42.50%")
    assert similar(results, ["a", "b"], 1).verdict == "2 runs: within noise", "seeds are further apart than the limit"
    assert similar(results, ["a", "c"], 4).verdict == "one run"


def test_a_network_of_two_comparisons_is_trained_once() -> None:
    names = [{(spec.folder, spec.name) for spec in get_figure(name).specs()} for name in ON_PASSAGES]
    assert all(("lambada-maps", "192-maps-2-blocks-seed0") in specs for specs in names[:4])


def test_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = riffle("reproduce", "lambada-maps", "--device", "cpu", "--only", "96", "--set", "data.corpus=nothing")
    assert result.code == 1
    assert "nothing holds no prepared corpus" in result.err
