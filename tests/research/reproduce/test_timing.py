"""Timing figures: what is measured, when it stops, what is drawn, what is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.riffle_command import riffle, succeed

from research.bench.over_length import longest_within, measure_series
from research.reproduce import FIGURES, get_figure
from research.reproduce.figures.timing import faster_everywhere, grows_with_exponent

TIMING = [name for name, entry in FIGURES.items() if entry.kind == "timing"]


@pytest.mark.usefixtures("fake_clock")
@pytest.mark.parametrize("name", TIMING)
def test_a_quick_run_leaves_results_and_a_figure_drawn_from_them(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    results = succeed("reproduce", name, "--quick", "--device", "cpu", "--out", tmp_path, "--json").json
    kept = json.loads((folder / "results.json").read_text())
    assert results == {**kept, "claims": results["claims"]}
    assert {"commands", "commit", "device", "versions"} <= results.keys()
    assert results["quick"]
    for series in results["series"]:
        assert [point["length"] for point in series["points"]] == [64, 128, 256]
        assert all(point["milliseconds"] > 0 for point in series["points"])
        assert series["stopped"] is None
        assert series["seconds"] >= 0
    figures = [folder / "figure.svg", folder / "figure.png"]
    before = [path.read_bytes() for path in figures]
    assert succeed("reproduce", name, "--draw", "--out", tmp_path, "--json").json == results
    assert [path.read_bytes() for path in figures] == before
    assert all(claim["statement"] and claim["evidence"] for claim in results["claims"])


@pytest.mark.usefixtures("no_measurement")
def test_parts_are_added_to_results_of_the_same_commit(tmp_path: Path) -> None:
    command = ("reproduce", "timing-addition", "--quick", "--device", "cpu", "--out", tmp_path, "--json")
    first = succeed(*command, "--commit", "abc", "--only", "evaluation").json
    assert [(s["model"], s["work"]) for s in first["series"]] == [
        ("shuffle-exchange", "evaluation"),
        ("Neural GPU (DNGPU)", "evaluation"),
    ]
    both = succeed(*command, "--commit", "abc", "--only", "shuffle-exchange").json
    assert len(both["series"]) == 3
    assert len(both["commands"]) == 2
    assert both["series"][0] == first["series"][1]
    refused = riffle(*command, "--commit", "def", "--only", "training")
    assert refused.code == 1
    assert "holds measurements of commit abc, this is def" in refused.err.replace("\n", " ")
    assert "leaves no series of shuffle-exchange, evaluation;" in " ".join(
        riffle(*command, "--only", "lstm").err.split()
    )
    assert len(succeed(*command, "--commit", "def").json["series"]) == 4, "a whole run begins anew"
    missing = riffle("reproduce", "timing-lambada", "--draw", "--out", tmp_path)
    assert "nothing has been measured yet" in " ".join(missing.err.split())
    with pytest.raises(ValueError, match="unknown experiment 'timing'; choose one of timing-addition, "):
        get_figure("timing")


def synthetic() -> dict[str, Any]:
    """A line that grows with n, one with n², and their memory; the second is faster at 64."""

    def line(model: str, time: Any, size: Any, last: int) -> dict[str, Any]:
        lengths = [2**k for k in range(6, last + 1)]
        points = [{"length": n, "milliseconds": time(n), "peak_bytes": size(n)} for n in lengths]
        return {"model": model, "work": "evaluation", "points": points}

    ours = line("ours", lambda n: n / 100, lambda n: n * 1e4, 20)
    baseline = line("baseline", lambda n: n**2 / 7000, lambda n: n**2 * 100, 14)
    return {"series": [ours, baseline]}


def test_claims_say_what_holds_what_does_not_and_what_is_open() -> None:
    results = synthetic()
    everywhere = faster_everywhere(results, "ours", "baseline", "evaluation")
    assert everywhere.holds is False
    assert "not at 64" in everywhere.evidence
    assert faster_everywhere(results, "ours", "baseline", "evaluation", 128).holds
    assert faster_everywhere(results, "ours", "baseline", "training").holds is None
    assert grows_with_exponent(results, "baseline", "evaluation", 1.9, 2.1).holds
    assert grows_with_exponent(results, "ours", "evaluation", 1.9, 2.1).holds is False
    assert grows_with_exponent(results, "ours", "training", 1.9, 2.1).holds is None
    assert longest_within(results, "ours", "evaluation", 11) == 2**20
    assert longest_within(results, "baseline", "evaluation", 11) == 2**13
    assert longest_within(results, "ours", "evaluation", 1e-6) is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", TIMING)
def test_every_form_runs_on_a_gpu(name: str) -> None:
    for each in get_figure(name).series(True):
        measured = measure_series(each, torch.device("cuda"), budget=10, quick=True)
        assert [point["length"] for point in measured["points"]] == [64, 128, 256], (each, measured["stopped"])
        assert all(point["peak_bytes"] > 0 and point["graph"] for point in measured["points"])
