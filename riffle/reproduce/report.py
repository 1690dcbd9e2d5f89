"""The page of everything that was reproduced: the paper's numbers, ours, and what came of each claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from riffle.quantities import DASH, format_percent
from riffle.reproduce import FIGURES, LEARNING, get_figure
from riffle.reproduce.claims import Claim, as_read
from riffle.reproduce.goals import goals
from riffle.reproduce.results import read_figure_results as read_runs
from riffle.reproduce.timing_runs import read_timing as read_series

HEAD = """# What of the paper is reproduced

Written by `riffle reproduce --report` from the files under `results/`; do not edit. The paper's numbers are read off
its figures to about a point: a result within one point is said to reach it. Ours are means over runs with other seeds,
with their standard deviation in points, or the best run where that is said.
[How to run and add experiments](experiments.md).
"""
GOALS = """## Goals

What we want of our own recipes, stricter than the paper: simple tasks are never trained on a length above 64,
products to 128; each row takes the recipe with the most runs, and of several the one that does best at it.
"""
SHOWN = 3
"""More commands than these are folded away."""


def report(root: Path) -> str:
    """The page, in Markdown."""
    sections = [section for name in FIGURES for section in (_learned if name in LEARNING else _timed)(name, root)]
    reached = goals([result for name in ("generalization", "multiplication") for result in read_runs(name, root)])
    return "\n".join([HEAD, GOALS, *_table(reached, "wanted"), "", *sections])


def _learned(name: str, root: Path) -> list[str]:
    results = read_runs(name, root)
    if not results:
        return [_missing(name)]
    steps = sorted({result["steps"] for result in results})
    span = " to ".join(f"{count:,}" for count in dict.fromkeys([steps[0], steps[-1]]))
    facts = [f"{len(results)} runs of {span} steps", *_facts(results, "hardware")]
    commands = [result["command"] for result in results]
    return [_section(name, root, "figure", facts, commands, get_figure(name).claims(results))]


def _timed(name: str, root: Path) -> list[str]:
    paths = sorted((root / name).glob("results*.json"))
    sections = []
    for path in paths:
        results = read_series(path)
        commands = [entry["command"] for entry in results["commands"]]
        picture = path.stem.replace("results", "figure")
        claims = get_figure(name).claims(results)
        sections.append(_section(name, root, picture, _facts([results], "device"), commands, claims))
    return sections or [_missing(name)]


def _facts(results: Sequence[dict[str, Any]], hardware: str) -> list[str]:
    """Where results come from, each thing said once."""
    places = sorted({result[hardware] for result in results})
    torch = sorted({result["versions"]["torch"] for result in results})
    commits = sorted({str(result["commit"]) for result in results})
    return [", ".join(places), f"torch {', '.join(torch)}", f"commit {', '.join(commits)}"]


def _section(
    name: str, root: Path, picture: str, facts: Iterable[str], commands: Iterable[str], claims: Iterable[Claim]
) -> str:
    lines = [
        f"## {name}\n",
        f"{_about(name)} {'; '.join(facts)}.\n",
        *([f"![{name}](../{root.name}/{name}/{picture}.png)\n"] if (root / name / f"{picture}.png").exists() else []),
        *_table(claims, "the paper"),
    ]
    return "\n".join([*lines, "", *_commands(list(dict.fromkeys(commands))), ""])


def _table(claims: Iterable[Claim], against: str) -> list[str]:
    """A line for each claim."""
    lines = [f"| claim | {against} | ours | spread | verdict | evidence |", "|---|---:|---:|---:|---|---|"]
    for claim in claims:
        paper = DASH if claim.paper is None else as_read(claim.paper)
        ours = DASH if claim.ours is None else format_percent(claim.ours)
        spread = DASH if claim.spread is None else f"{100 * claim.spread:.2f}"
        lines.append(f"| {' | '.join([claim.statement, paper, ours, spread, claim.verdict, claim.evidence])} |")
    return lines


def _commands(commands: Sequence[str]) -> list[str]:
    """What was run, folded away where it is long."""
    block = ["```", *commands, "```"]
    if len(commands) <= SHOWN:
        return block
    return [f"<details><summary>{len(commands)} commands</summary>\n", *block, "\n</details>"]


def _missing(name: str) -> str:
    return f"## {name}\n\n{_about(name)} Missing: nobody has run `riffle reproduce {name}` yet.\n"


def _about(name: str) -> str:
    text = FIGURES[name]
    return f"{text[0].upper()}{text[1:]}."
