"""Draw the README's tables from the result files, or check that they are up to date.

    python benchmarks/readme.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from riffle.wording import percent

ROOT = Path(__file__).parent.parent
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
PAPER = {
    "duplicate": (1, 1, 1, 1, 1, 1, 1),
    "reverse": (1, 1, 1, 1, 1, 0.99, 0.955),
    "add": (1, 1, 1, 0.99, 0.98, 0.93, 0.845),
    "sort": (1, 1, 0.98, 0.97, 0.963, 0.943, 0.93),
}
"""Read off the paper's figure of generalisation, to about a point; mean of five runs of 40 thousand steps."""


def generalization() -> str:
    """Symbol accuracy over length for every task, beside the paper's."""
    lines = ["| task | trained by | " + " | ".join(map(str, LENGTHS)) + " |", "|---|---|" + "---:|" * len(LENGTHS)]
    for task, paper in PAPER.items():
        lines.append(f"| {task} | the paper, 40k steps | " + " | ".join(f"{value * 100:g}%" for value in paper) + " |")
        for name, label in (("paper", "recipe `paper`"), ("long", "recipe `long`")):
            result = _read(ROOT / "results" / "generalization" / f"{task}-{name}-seed0.json")
            by_length = {s["length"]: s["symbol_accuracy"] for s in result["scores"] if s["split"] == "uniform"}
            cells = " | ".join(percent(by_length[length]) for length in LENGTHS)
            lines.append(f"| | {label}, {result['steps'] // 1000}k steps | {cells} |")
    return "\n".join(lines)


def cpu() -> str:
    """The reference path on a CPU."""
    result = _read(ROOT / "benchmarks" / "results" / "cpu.json")
    lines = ["| length | time | of the product's rate |", "|---:|---:|---:|"]
    for row in result["speed"]["rows"]:
        lines.append(f"| {row['length']} | {row['milliseconds']:.0f} ms | {row['fraction'] * 100:.0f}% |")
    memory = result["memory"]
    lines.append(
        f"\nPeak memory of one inference at {memory['length']} cells: {memory['times_input']} times the input."
    )
    return "\n".join(lines)


TABLES = {"generalization": generalization, "cpu": cpu}


def drawn(text: str) -> str:
    """The README with every table drawn anew."""
    for name, table in TABLES.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(start)
        assert found, f"README.md has no place for the table {name}"
        text = before + start + table() + "\n" + end + rest.partition(end)[2]
    return text


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    readme = ROOT / "README.md"
    before = readme.read_text()
    after = drawn(before)
    if parser.parse_args().check and before != after:
        sys.exit("README.md's tables are not those of the result files: run python benchmarks/readme.py")
    readme.write_text(after)


if __name__ == "__main__":
    main()
