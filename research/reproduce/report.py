"""The report of all results, research/results/README.md: the paper by its sentences, then a table of every figure."""

from __future__ import annotations

import os.path
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from research.reproduce import FIGURES, facts, get_figure
from research.reproduce.figure import LearningFigure, read_timing
from research.reproduce.verdicts import Claim, Difference, Verdict, judge
from riffle.quantities import DASH

SENTENCES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text())
HEAD: str = SENTENCES["head"]
"""What the page begins with."""
MAX_COMMANDS = 3
"""A longer list of commands is folded away."""
Judged = tuple[Claim, Verdict]


def reported() -> list[str]:
    """The figures on the page: all but the benchmarks of others, which are in research/accuracy.md."""
    return [name for name, entry in FIGURES.items() if entry.kind != "benchmark"]


def report(root: Path) -> str:
    """The page, in Markdown, from the results below ``root``."""
    sections, claims = [], {f"facts: {each[0].statement}": each for each in _judge(facts.claims(root))}
    for name in reported():
        for section, judged in _sections(name, root):
            sections.append(section)
            claims = {f"{name}: {each[0].statement}": each for each in judged} | claims
    return "\n".join([HEAD, *_sentences(claims), "\n# The figures\n", *sections])


def _judge(claims: Sequence[Claim]) -> list[Judged]:
    return list(zip(claims, judge(claims), strict=True))


def _sentences(claims: Mapping[str, Judged]) -> list[str]:
    rows, part = [], None
    count = dict.fromkeys(("holds", "does not hold", "undecided", "not measured"), 0)
    for sentence in SENTENCES["sentence"]:
        if sentence["part"] != part:
            part = sentence["part"]
            rows += [f"\n## {part}\n", "| the paper | what was found | 95% | verdict | file |", "|---|---|---|---|---|"]
        tests, also = (
            [
                claims.get(name, (Claim(name.partition(": ")[2]), Verdict("not measured")))
                for name in sentence.get(key, [])
            ]
            for key in ("claims", "also")
        )
        verdict = _overall([each for _, each in tests])
        count[verdict] += 1
        found = [f"{claim.statement}: {claim.found}" for claim, _ in tests] or [
            "arrays of the authors' code, in the tests"
        ]
        found += [f"*{claim.statement}: {claim.found}*" for claim, _ in also]
        intervals = [_interval(each.difference) for _, each in tests]
        words = [f"**{verdict}**", *(each.word for _, each in tests if len(tests) > 1)]
        words += [f"*{each.word}*" for _, each in also]
        cells = [f"“{sentence['quote']}”", *map("<br>".join, (found, intervals or [DASH], words)), _files(sentence)]
        rows.append(f"| {' | '.join(cells)} |")
    summary = "; ".join(f"{number} {word}" for word, number in count.items())
    return [f"{sum(count.values())} sentences: {summary}.", *rows]


def _overall(verdicts: Sequence[Verdict]) -> str:
    """The verdict on a sentence: a definition, which the suite tests, holds."""
    decidable = [each for each in verdicts if each.word not in ("too few seeds", "not measured")]
    agrees = [verdict.agrees for verdict in decidable]
    if False in agrees:
        return "does not hold"
    if all(agrees) and (decidable or not verdicts):
        return "holds"
    return "not measured" if all(verdict.word == "not measured" for verdict in verdicts) else "undecided"


def _interval(difference: Difference | None) -> str:
    if difference is None:
        return DASH
    mean, low, high = (f"{100 * number:+.1f}" for number in difference[:3])
    return f"{mean} [{low}, {high}]"


def _files(sentence: Mapping[str, Any]) -> str:
    """Links to where the numbers are from: the sections of figures, which have their commands, and other files."""
    names = dict.fromkeys(name.partition(":")[0] for name in sentence.get("claims", []))
    links = [f"[{name}](#{name})" for name in names if name != "facts"]
    if source := sentence.get("source"):
        links.append(f"[{Path(source).name}]({os.path.relpath(source, 'research/results')})")
    return "<br>".join(links) or DASH


def _sections(name: str, root: Path) -> list[tuple[str, list[Judged]]]:
    """The sections of a figure with their claims: a timing figure has one for each result file."""
    figure = get_figure(name)
    sections = []
    if isinstance(figure, LearningFigure):
        if results := figure.read(root):
            steps = sorted({result["steps"] for result in results})
            step_range = " to ".join(f"{count:,}" for count in dict.fromkeys([steps[0], steps[-1]]))
            about = [f"{len(results)} runs of {step_range} steps", *_provenance(results, "hardware")]
            claims, commands = _judge(figure.claims(results)), [result["command"] for result in results]
            sections.append((_section(name, root, "figure", about, commands, claims), claims))
    else:
        for path in sorted((root / name).glob("results*.json")):
            timing = read_timing(path)
            about, commands = _provenance([timing], "device"), [entry["command"] for entry in timing["commands"]]
            picture, claims = path.stem.replace("results", "figure"), _judge(figure.claims(timing))
            sections.append((_section(name, root, picture, about, commands, claims), claims))
    missing = f"## {name}\n\n{_summary(name)} Missing: nobody has run `python -m research reproduce {name}` yet.\n"
    return sections or [(missing, [])]


def _provenance(results: Sequence[dict[str, Any]], hardware: str) -> list[str]:
    """Hardware, torch version and commits of results, each value once."""
    devices = sorted({result[hardware] for result in results})
    torch = sorted({result["versions"]["torch"] for result in results})
    commits = sorted({str(result["commit"])[:7] for result in results})
    return [", ".join(devices), f"torch {', '.join(torch)}", f"commit {', '.join(commits)}"]


def _section(
    name: str, root: Path, picture: str, about: Iterable[str], commands: Iterable[str], claims: Iterable[Judged]
) -> str:
    lines = [f"## {name}\n", f"{_summary(name)} {'; '.join(about)}.\n"]
    if (root / name / f"{picture}.png").exists():
        lines.append(f"![{name}]({name}/{picture}.png)\n")
    unique = list(dict.fromkeys(commands))
    block = ["```", *unique, "```"]
    if len(unique) > MAX_COMMANDS:
        block = [f"<details><summary>{len(unique)} commands</summary>\n", *block, "\n</details>"]
    table = ["| claim | ours; the other | 95% | verdict |", "|---|---|---|---|"]
    for claim, verdict in claims:
        table.append(f"| {claim.statement} | {claim.found} | {_interval(verdict.difference)} | {verdict.word} |")
    return "\n".join([*lines, *table, "", *block, ""])


def _summary(name: str) -> str:
    text = FIGURES[name].summary
    return f"{text[0].upper()}{text[1:]}."
