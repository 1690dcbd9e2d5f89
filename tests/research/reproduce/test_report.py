"""The report: from synthetic results, and the committed one from the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from research.reproduce import get_figure
from research.reproduce.report import report, reported

from .synthetic import paper_accuracy, write_results

ROOT = Path(__file__).parents[3]


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    page = (ROOT / "research" / "results" / "README.md").read_text()
    assert page == report(ROOT / "research" / "results"), "run: python -m research reproduce --report"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    page = report(tmp_path)
    assert page.count("Missing: nobody has run `python -m research reproduce ") == len(reported())


def test_a_page_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "research" / "results"
    specs = get_figure("multiplication").specs(runs=3)
    write_results(root, specs, lambda spec, length: 1 - 0.02 * spec.config.train.seed)
    specs = get_figure("ablation").specs(runs=1)
    write_results(root, specs, lambda spec, length: paper_accuracy(spec, length) - 0.034)
    monkeypatch.chdir(tmp_path)
    succeed("reproduce", "multiplication", "--draw")
    succeed("reproduce", "--report")
    page = (root / "README.md").read_text()
    assert page == report(root)
    (tmp_path / "README.md").write_text("a project")
    result = riffle("reproduce", "--report", "--out", ".")
    assert "README.md is no report and would be overwritten" in result.err
    assert (tmp_path / "README.md").read_text() == "a project"
    assert page.count("Missing") == len(reported()) - 5, "blocks, maps and sharing share runs with these"
    lines = page.splitlines()
    facts = "3 runs of 28,000 steps; Some GPU; torch 2.11; commit abc."
    assert f"Products of inputs of length 128. {facts}" in lines
    assert page.count("```\nriffle reproduce something\n```") == 5, "a command is said once"
    assert [line for line in lines if "![" in line] == ["![multiplication](multiplication/figure.png)"]
    numbers = "99.9% | 100% | 2.00 | 3 runs: reached"
    assert f"| multiply: symbols right at 128, best run | {numbers} | best of 3 runs of 'multiply' |" in lines
    one_run = "97.6% | 94.20% | \N{EN DASH} | one run | 94.20% over 1 run; the paper 97.6%"
    assert f"| sort, gated: symbols right at 512 | {one_run} |" in lines


@pytest.mark.usefixtures("no_measurement")
def test_timing_results_have_a_section_each(tmp_path: Path) -> None:
    command = ("reproduce", "timing-addition", "--quick", "--device", "cpu", "--out", tmp_path, "--commit", "abc")
    succeed(*command)
    succeed(*command, "--memory", 11)
    page = report(tmp_path)
    assert page.count("## timing-addition") == 2
    assert "figure-11GB.png" in page
    assert "| does not hold | slower at 64, 128, 256; at 256 100 ms and 100 ms |" in page
