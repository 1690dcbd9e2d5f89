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

from riffle.bench.rows import short
from riffle.bench.words import NOTHING, duration, memory, outcome, share
from riffle.experiments.paper import GENERALIZATION, LENGTHS
from riffle.wording import percent

ROOT = Path(__file__).parent.parent
H200 = ROOT / "benchmarks" / "results" / "h200.json"
TASKS = ("duplicate", "reverse", "add", "sort")


def generalization() -> str:
    """Symbol accuracy over length for every task, beside the paper's."""
    lines = ["| task | trained by | " + " | ".join(map(str, LENGTHS)) + " |", "|---|---|" + "---:|" * len(LENGTHS)]
    for task in TASKS:
        paper = " | ".join(f"{value * 100:g}%" for value in GENERALIZATION["shuffle-exchange"][task].values())
        lines.append(f"| {task} | the paper, 40k steps | {paper} |")
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


def speed(path: Path = H200) -> str:
    """A GPU's speed as ``riffle bench`` measured it; nothing where it has not yet."""
    if not path.exists():
        return ""
    record = _read(path)
    ceilings = record["runs"][0]["ceilings"]
    commands = " and ".join(f"`{run['command']}`" for run in record["runs"])
    lines = [
        f"One {record['device']}, commit {record['commit']}, torch {record['versions']['torch']}, {commands}; a matrix "
        f"product reached {ceilings['product'] / 1e12:.0f} TFLOP/s, a copy {ceilings['copy'] / 1e12:.1f} TB/s. The "
        "floor is the time that a row's FLOPs take at the product's rate. The training step, and fused all rows up to "
        "1K cells, are replayed as CUDA graphs. Before a row was timed, its results were compared with the reference "
        f"in float32; a wrong one has no time ([{path.name}](benchmarks/results/{path.name}), "
        "[docs/kernels.md](docs/kernels.md)).\n",
        "| work | eager, float32 | compiled, bfloat16 | fused | fused, gates kept | floor | reached |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_speed_row(row) for row in record["rows"].values()]
    if record["attention"]:
        lines += ["", *_attention(record["attention"])]
    if record["curve"] or record["attention"]:
        lines += ["", f"![Time over length](benchmarks/results/{path.stem}.png)"]
    return "\n".join(lines)


def _speed_row(row: dict[str, Any]) -> str:
    cells = []
    for form in ("eager", "compiled", "fused", "fused-keep"):
        entry = row["forms"].get(form)
        size = f", {memory(entry['peak_bytes'])}" if entry and "milliseconds" in entry else ""
        cells.append(outcome(entry) + size if entry else NOTHING)
    timed = [entry for entry in row["forms"].values() if "milliseconds" in entry]
    best = max(timed, key=lambda entry: entry["fraction_of_floor"], default=None)
    cells += [duration(best["floor_milliseconds"]), share(best["fraction_of_floor"])] if best else [NOTHING] * 2
    return f"| {row['title']} | " + " | ".join(cells) + " |"


def _attention(rows: dict[str, Any]) -> list[str]:
    """This network and the encoder, a column for each length."""
    lengths = sorted({row["lengths"][0] for row in rows.values()})
    lines = ["| cells | " + " | ".join(map(short, lengths)) + " |", "|---|" + "---:|" * len(lengths)]
    for name in ("ours", "encoder"):
        mine = {row["lengths"][0]: row for key, row in rows.items() if key.startswith(name)}
        if not mine:
            continue
        entries = [next(iter(mine[length]["forms"].values())) if length in mine else None for length in lengths]
        first = next(iter(mine.values()))
        what = (
            f"riffle, {first['blocks']} blocks"
            if name == "ours"
            else f"{first['blocks']}-layer encoder, FlashAttention"
        )
        cells = " | ".join(outcome(entry) if entry else NOTHING for entry in entries)
        lines.append(f"| {what}, {first['features']} maps | {cells} |")
    return lines


TABLES = {"generalization": generalization, "speed": speed, "cpu": cpu}


def drawn(text: str) -> str:
    """The README with every table drawn anew."""
    for name, table in TABLES.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(start)
        assert found, f"README.md has no place for the table {name}"
        lines = table()
        text = before + start + (lines + "\n" if lines else "") + end + rest.partition(end)[2]
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
