"""The report: from synthetic results, and the committed one from the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from research.reproduce import facts, get_figure
from research.reproduce.figure import LearningFigure, read_timing
from research.reproduce.report import SENTENCES, report, reported
from riffle.quantities import DASH

from .synthetic import paper_accuracy, write_results

ROOT = Path(__file__).parents[3]


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    page = (ROOT / "research" / "results" / "README.md").read_text()
    assert page == report(ROOT / "research" / "results"), "run: python -m research reproduce --report"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    page = report(tmp_path)
    assert page.count("Missing: nobody has run `python -m research reproduce ") == len(reported())


def test_every_sentence_has_a_source_and_a_claim_that_there_is() -> None:
    root = ROOT / "research" / "results"
    claims = {f"facts: {claim.statement}" for claim in facts.claims(root)}
    for name in reported():
        figure = get_figure(name)
        given = (
            [figure.read(root)]
            if isinstance(figure, LearningFigure)
            else map(read_timing, (root / name).glob("r*.json"))
        )
        claims |= {f"{name}: {claim.statement}" for results in given for claim in figure.claims(results)}
    for sentence in SENTENCES["sentence"]:
        assert set(sentence.get("claims", [])) | set(sentence.get("also", [])) <= claims | NOT_MEASURED, sentence[
            "quote"
        ]
        assert sentence.get("claims") or sentence["source"].startswith("tests/"), sentence["quote"]
        assert (ROOT / sentence.get("source", "")).exists(), sentence["quote"]


NOT_MEASURED = {"facts: placed in the middle only"}


def test_a_page_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "research" / "results"
    write_results(
        root, get_figure("multiplication").specs(runs=3), lambda spec, length: 1 - 0.02 * spec.config.train.seed
    )
    write_results(root, get_figure("ablation").specs(runs=1), lambda spec, length: paper_accuracy(spec, length) - 0.034)
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
    shown = "3 runs of 28,000 steps; Some GPU; torch 2.11; commit abc."
    assert f"Products of inputs of length 128. {shown}" in lines
    assert page.count("```\nriffle reproduce something\n```") == 5, "a command is said once"
    assert [line for line in lines if "![" in line] == ["![multiplication](multiplication/figure.png)"]
    found = "98.00% (96.00% to 100%) of 3; the paper 100% | -2.0 [-8.3, +4.3] | undecided |"
    assert f"| products at 128, by Muon | {found}" in lines
    assert f"| sort at 512: gated | 94.20% of 1; the paper 97.6% | {DASH} | too few seeds |" in lines
    counted = [line for line in lines if line.startswith(f"{len(SENTENCES['sentence'])} sentences: ")]
    assert len(counted) == 1


@pytest.mark.usefixtures("no_measurement")
def test_timing_results_have_a_section_each(tmp_path: Path) -> None:
    command = ("reproduce", "timing-addition", "--quick", "--device", "cpu", "--out", tmp_path, "--commit", "abc")
    succeed(*command)
    succeed(*command, "--memory", 11)
    page = report(tmp_path)
    assert page.count("## timing-addition") == 2
    assert "figure-11GB.png" in page
    assert f"| not at 64, 128, 256; at 256 100 ms and 100 ms | {DASH} | does not hold |" in page
