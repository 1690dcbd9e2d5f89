"""The report of all results, research/results/README.md: the paper's numbers, ours, and a verdict on every claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from research.reproduce import FIGURES, get_figure
from research.reproduce.claims import Claim, format_paper, judge_goals
from research.reproduce.figure import LearningFigure, read_timing
from research.reproduce.figures.generalization import GENERALIZATION, MULTIPLICATION
from riffle.quantities import DASH, format_percent

HEAD = """# What of the paper is reproduced

Written by `python -m research reproduce --report` from the files of this folder; do not edit. The paper's numbers are
read off its figures to about one point, so a result within one point of the paper's counts as reaching it. Our numbers
are means over runs with different seeds, with the standard deviation in points, or those of the best run where that is
said. A verdict begins with the number of runs, of both sides where networks are compared. A difference smaller than the
standard deviation is "within noise" and no finding. The spread of a single run is unknown: it is "one run", without a
verdict.
[How to run and add figures](../experiments.md), [how riffle differs from the paper](../deviations.md).
"""
GOALS = """## Goals

What our own recipes are to reach, some of it beyond the paper. Simple tasks are trained on lengths up to 64, products
up to 128. Each row is that of the best recipe among those with five runs or more; where none has five, among those with
the most.
"""
MAX_COMMANDS = 3
"""A longer list of commands is folded away."""


def reported() -> list[str]:
    """The figures on the page: all but the benchmarks of others, which are in research/accuracy.md."""
    return [name for name, entry in FIGURES.items() if entry.kind != "benchmark"]


def report(root: Path) -> str:
    """The page, in Markdown, from the results below ``root``."""
    goals = judge_goals([*GENERALIZATION.read(root), *MULTIPLICATION.read(root)])
    sections = [section for name in reported() for section in _sections(name, root)]
    return "\n".join([HEAD, GOALS, *_table(goals, "wanted"), "", *sections])


def _sections(name: str, root: Path) -> list[str]:
    """The sections of a figure: a timing figure has one for each result file."""
    figure = get_figure(name)
    sections = []
    if isinstance(figure, LearningFigure):
        if results := figure.read(root):
            steps = sorted({result["steps"] for result in results})
            step_range = " to ".join(f"{count:,}" for count in dict.fromkeys([steps[0], steps[-1]]))
            facts = [f"{len(results)} runs of {step_range} steps", *_provenance(results, "hardware")]
            commands = [result["command"] for result in results]
            sections.append(_section(name, root, "figure", facts, commands, figure.claims(results)))
    else:
        for path in sorted((root / name).glob("results*.json")):
            timing = read_timing(path)
            facts, commands = _provenance([timing], "device"), [entry["command"] for entry in timing["commands"]]
            picture = path.stem.replace("results", "figure")
            sections.append(_section(name, root, picture, facts, commands, figure.claims(timing)))
    return sections or [
        f"## {name}\n\n{_summary(name)} Missing: nobody has run `python -m research reproduce {name}` yet.\n"
    ]


def _provenance(results: Sequence[dict[str, Any]], hardware: str) -> list[str]:
    """Hardware, torch version and commits of results, each value once."""
    devices = sorted({result[hardware] for result in results})
    torch = sorted({result["versions"]["torch"] for result in results})
    commits = sorted({str(result["commit"])[:7] for result in results})
    return [", ".join(devices), f"torch {', '.join(torch)}", f"commit {', '.join(commits)}"]


def _section(
    name: str, root: Path, picture: str, facts: Iterable[str], commands: Iterable[str], claims: Iterable[Claim]
) -> str:
    lines = [f"## {name}\n", f"{_summary(name)} {'; '.join(facts)}.\n"]
    if (root / name / f"{picture}.png").exists():
        lines.append(f"![{name}]({name}/{picture}.png)\n")
    unique = list(dict.fromkeys(commands))
    block = ["```", *unique, "```"]
    if len(unique) > MAX_COMMANDS:
        block = [f"<details><summary>{len(unique)} commands</summary>\n", *block, "\n</details>"]
    return "\n".join([*lines, *_table(claims, "the paper"), "", *block, ""])


def _table(claims: Iterable[Claim], reference: str) -> list[str]:
    lines = [f"| claim | {reference} | ours | spread | verdict | evidence |", "|---|---:|---:|---:|---|---|"]
    for claim in claims:
        paper = DASH if claim.paper is None else format_paper(claim.paper)
        ours = DASH if claim.ours is None else format_percent(claim.ours)
        spread = DASH if claim.spread is None else f"{100 * claim.spread:.2f}"
        lines.append(f"| {' | '.join([claim.statement, paper, ours, spread, claim.verdict, claim.evidence])} |")
    return lines


def _summary(name: str) -> str:
    text = FIGURES[name].summary
    return f"{text[0].upper()}{text[1:]}."
