"""Draw the tables of README and docs from the result files, or check that they are up to date.

    python benchmarks/readme.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from riffle.bench.record import format_time
from riffle.lambada.evaluate import PUBLISHED
from riffle.quantities import DASH, format_bytes, format_length, format_milliseconds, format_percent, format_share
from riffle.reproduce.claims import SIMPLE, format_paper
from riffle.reproduce.figures.lambada import BASELINE, LAMBADA_BLOCKS, LAMBADA_MAPS, LAMBADA_SHARING, LAMBADA_UNITS
from riffle.reproduce.paper import GENERALIZATION, LENGTHS
from riffle.reproduce.results import by_group, over_length, read_results, select
from riffle.tasks import TASKS

ROOT = Path(__file__).parent.parent
H200 = ROOT / "benchmarks" / "results" / "h200.json"


def generalization() -> str:
    """Symbol accuracy over length for every task, beside the paper's."""
    lengths = (*LENGTHS, 16_384, 65_536)
    lines = ["| task | trained by | " + " | ".join(map(str, lengths)) + " |", "|---|---|" + "---:|" * len(lengths)]
    results = read_results(ROOT / "results", ["generalization"])
    for task in SIMPLE:
        paper = GENERALIZATION["shuffle-exchange"][task]
        lines.append(f"| {task} | the paper, 40k steps | {_cells(paper, lengths, format_paper)} |")
        for group, runs in by_group(select(results, task, kind="shuffle-exchange")).items():
            label = f"recipe `{group.split(', ')[2]}`, {runs[0]['steps'] // 1000}k steps, " + (
                f"mean of {len(runs)}" if len(runs) > 1 else "one seed"
            )
            found = {point.x: point.mean for point in over_length(runs)}
            lines.append(f"| | {label} | {_cells(found, lengths, format_percent)} |")
    return "\n".join(lines)


def shipped(folder: Path = ROOT / "riffle" / "weights") -> str:
    """The weights in the package after rounding: accuracy at the trained length and at multiples of it."""
    times = (1, 4, 16, 64, 256, 1024)
    heads = ["there", *(f"{factor} times" for factor in times[1:])]
    lines = ["| task | maps | trained to | " + " | ".join(heads) + " |", "|---|---:|---:|" + "---:|" * len(heads)]
    for name in (name for name in TASKS if (folder / name).exists()):
        config = _read(folder / name / "config.json")
        scores = _read(folder / name / "evaluation.json")["scores"]
        found = {score["length"]: score["symbol_accuracy"] for score in scores if score["split"] == "uniform"}
        trained = max(config["data"]["bins"])
        facts = f"[{name}](riffle/weights/{name}) | {config['model']['features']} | {trained}"
        lines.append(f"| {facts} | {_cells(found, [trained * factor for factor in times], format_percent)} |")
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
        size = f", {format_bytes(entry['peak_bytes'])}" if entry and "milliseconds" in entry else ""
        cells.append(format_time(entry) + size if entry else DASH)
    timed = [entry for entry in row["forms"].values() if "milliseconds" in entry]
    best = max(timed, key=lambda entry: entry["fraction_of_floor"], default=None)
    cells += (
        [format_milliseconds(best["floor_milliseconds"]), format_share(best["fraction_of_floor"])]
        if best
        else [DASH] * 2
    )
    return f"| {row['title']} | " + " | ".join(cells) + " |"


def _attention(rows: dict[str, Any]) -> list[str]:
    """This network and the encoder, a column for each length."""
    lengths = sorted({row["lengths"][0] for row in rows.values()})
    lines = ["| cells | " + " | ".join(map(format_length, lengths)) + " |", "|---|" + "---:|" * len(lengths)]
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
        cells = " | ".join(format_time(entry) if entry else DASH for entry in entries)
        lines.append(f"| {what}, {first['features']} maps | {cells} |")
    return lines


def rivals(folder: Path = ROOT / "results" / "rivals") -> str:
    """Symbol accuracy over length of the models to compare with, beside what the paper has of the Neural GPU."""
    lines = ["| task | model | " + " | ".join(map(str, LENGTHS)) + " |", "|---|---|" + "---:|" * len(LENGTHS)]
    for task, paper in GENERALIZATION["dngpu"].items():
        lines.append(f"| {task} | `dngpu`, the paper | {_cells(paper, LENGTHS, format_paper)} |")
        for path in sorted(folder.glob(f"{task}-*.json")):
            run = _read(path)
            model, data = run["config"]["model"], run["config"]["data"]
            by_length = {score["length"]: score["symbol_accuracy"] for score in run["scores"]}
            cells = _cells(by_length, LENGTHS, format_percent)
            kind = f"`{model['kind']}`, {model['features']} maps, dropout {model['dropout']:g}"
            how = f"to {data['bins'][-1]}, {run['steps']:,} steps, seed {run['config']['train']['seed']}"
            how += ", averaged" if run["config"]["train"].get("average") else ""
            lines.append(f"| | {kind}, {how} ([{path.stem}](../results/rivals/{path.name})) | {cells} |")
    return "\n".join(lines)


def timing(name: str) -> str:
    """Time and memory over length of every series of an experiment."""
    path = ROOT / "results" / name / "results.json"
    record = _read(path)
    lengths = [2**power for power in range(6, 22, 3)]
    lines = [
        f"One {record['device']}, commit {record['commit'][:7]}, torch {record['versions']['torch']}, "
        f"{record['dtype']} ([{path.name}](../results/{name}/{path.name})).\n"
    ]
    lines += ["| | " + " | ".join(map(format_length, lengths)) + " |", "|---|" + "---:|" * len(lengths)]
    for series in record["series"]:
        points = {point["length"]: point for point in series["points"]}
        lines.append(f"| {series['model']}, {series['work']} | {_cells(points, lengths, _time_and_memory)} |")
    return "\n".join(lines)


def resident(path: Path = ROOT / "benchmarks" / "results" / "resident.json") -> str:
    """The longest sequence in one buffer."""
    run = _read(path)
    return (
        f"One {run['device']}, commit {run['commit']}, torch {run['versions']['torch']}: **{run['cells']:,} cells** of "
        f"{run['maps']} maps in {run['dtype']}, {run['layers']} layers, in **{run['seconds']:.1f} s** with "
        f"{format_bytes(run['peak_bytes'])} of memory, {format_bytes(run['buffer_bytes'])} of them the cells. "
        f"The largest error "
        f"of {run['error_of_the_layers']['pairs']} pairs of every layer was "
        f"{run['error_of_the_layers']['worst']:.1e}, that of the whole network at "
        f"{run['error_of_the_definition']['cells']:,} cells {run['error_of_the_definition']['error']:.1e} "
        f"([{path.name}](../benchmarks/results/{path.name}))."
    )


def lambada(runs: Path = ROOT / "results" / "lambada", shipped: Path = ROOT / "riffle" / "weights" / "lambada") -> str:
    """Accuracy on LAMBADA: published on the test set, ours on the development set."""
    rows = [(each.accuracy, f"{each.model}, test set", DASH) for each in PUBLISHED]
    for path in sorted(runs.glob("lambada-*.json")):
        run = _read(path)
        for places in ("1 placement", "16 placements"):
            score = run["development"][places]
            name = f"**riffle**, {run['parameters'] / 1e6:.1f}M parameters, development set, {places}"
            rows.append((score["position"], name, format_percent(score["word"])))
    if (shipped / "evaluation.json").exists():
        score = _read(shipped / "evaluation.json")["splits"]["development"]["passages"]["all"]
        rows.append(
            (score["position"], "**riffle**, the weights in the package, 1 placement", format_percent(score["word"]))
        )
    lines = ["| model | accuracy | by word |", "|---|---:|---:|"]
    return "\n".join(
        [*lines, *(f"| {name} | {format_percent(share)} | {word} |" for share, name, word in sorted(rows))]
    )


def reading_speed(path: Path = ROOT / "results" / "lambada" / "adamw-seed0.json") -> str:
    """How fast a reader is trained that has the GPU to itself."""
    run = _read(path)
    minutes = run["passages"] / run["passages_per_second"] / 60
    return (
        f"One {run['device']}, commit {run['commit']}, torch {run['versions']['torch']}: {run['steps']:,} steps of "
        f"{run['config']['data']['batch']} passages at **{run['passages_per_second']:,} passages a second**, "
        f"{minutes:.0f} minutes, of {run['splits']['train'] + run['splits']['within']:,} passages from "
        f"public-domain novels ([{path.name}](../results/lambada/{path.name}))."
    )


def _time_and_memory(point: Mapping[str, Any]) -> str:
    return f"{format_milliseconds(point['milliseconds'])}, {format_bytes(point['peak_bytes'])}"


def levers(folder: Path = ROOT / "results" / "lambada-levers") -> str:
    """Accuracy on LAMBADA with one setting changed at a time, the best first."""
    runs = sorted(map(_read, folder.glob("*.json")), key=lambda run: -run["accuracy"]["all"]["position"])
    first, commits = runs[0], sorted({run["commit"][:7] for run in runs})
    head = (
        f"One {first['hardware']}, commits {', '.join(commits)}: {first['config']['model']['features']} maps, "
        f"{first['steps']:,} steps, one seed.\n"
    )
    lines = [head, "| changed | accuracy | by word |", "|---|---:|---:|"]
    for run in runs:
        score = run["accuracy"]["all"]
        name = "nothing" if run["group"] == "as it is" else run["group"]
        lines.append(f"| {name} | {format_percent(score['position'])} | {format_percent(score['word'])} |")
    return "\n".join(lines)


def compared(root: Path = ROOT / "results") -> str:
    """Accuracy on LAMBADA by network: every one that a comparison of the paper has."""
    figures = (LAMBADA_MAPS, LAMBADA_BLOCKS, LAMBADA_SHARING, LAMBADA_UNITS)
    found = {group: runs for figure in figures for group, runs in by_group(figure.read(root)).items()}
    first = found[BASELINE][0]
    lines = [
        f"One {first['hardware']}, commit {first['commit'][:7]}: {first['steps']:,} steps of "
        f"{first['config']['data']['batch']} passages.\n",
        "| network | parameters | accuracy | by word | seeds |",
        "|---|---:|---:|---:|---:|",
    ]
    for group, runs in found.items():
        position, word = (mean(run["accuracy"]["all"][way] for run in runs) for way in ("position", "word"))
        size = f"{runs[0]['parameters'] / 1e6:.1f} M"
        lines.append(f"| {group} | {size} | {format_percent(position)} | {format_percent(word)} | {len(runs)} |")
    return "\n".join(lines)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "generalization": generalization,
        "shipped": shipped,
        "lambada": lambada,
        "speed": speed,
        "cpu": cpu,
    },
    "docs/lambada.md": {"lambada": lambada, "reading-speed": reading_speed, "levers": levers, "compared": compared},
    "docs/rivals.md": {
        "rivals": rivals,
        "timing-addition": partial(timing, "timing-addition"),
        "timing-lambada": partial(timing, "timing-lambada"),
    },
    "docs/scaling.md": {"resident": resident},
}
"""Every table by its name, page by page."""


def drawn(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with every table drawn anew."""
    for name, table in tables.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(start)
        assert found, f"the page has no place for the table {name}"
        lines = table()
        text = before + start + (lines + "\n" if lines else "") + end + rest.partition(end)[2]
    return text


def _cells(found: Mapping[int, Any], lengths: Iterable[int], say: Callable[[Any], str]) -> str:
    """What was found at every length."""
    return " | ".join(say(found[length]) if length in found else DASH for length in lengths)


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    check = parser.parse_args().check
    for page, tables in PAGES.items():
        path = ROOT / page
        before = path.read_text()
        after = drawn(before, tables)
        if check and before != after:
            sys.exit(f"{page}'s tables are not those of the result files: run python benchmarks/readme.py")
        path.write_text(after)


if __name__ == "__main__":
    main()
