"""Write the tables of README and docs from the result files, or check that they are up to date.

    python benchmarks/readme.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from riffle.bench.record import format_time
from riffle.config import RunConfig
from riffle.lambada.evaluate import BOUND, PUBLISHED
from riffle.quantities import DASH, format_bytes, format_length, format_milliseconds, format_percent, format_share
from riffle.reproduce.claims import SIMPLE, format_paper
from riffle.reproduce.figures import chomsky as chomsky_figure
from riffle.reproduce.figures import listops as listops_figure
from riffle.reproduce.figures.lambada import BASELINE, LAMBADA_BLOCKS, LAMBADA_MAPS, LAMBADA_SHARING, LAMBADA_UNITS
from riffle.reproduce.paper import GENERALIZATION, LENGTHS
from riffle.reproduce.results import accuracies, by_group, over_length, read_results, select
from riffle.shuffle import PADS
from riffle.tasks import TASKS
from riffle.train.card import format_accuracy, markdown_table, read_scores, summarize
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED

ROOT = Path(__file__).parent.parent
H200 = ROOT / "benchmarks" / "results" / "h200.json"
ONE_LAUNCH = H200.with_name("h200-one-launch.json")
OWN_LOOP = ROOT / "benchmarks" / "results" / "own-loop.json"
LONG = 4096
"""The longest length of the paper's figure."""
SHIPPED_COLUMNS = ("300, bare", "80 to 1000, asked", "worst family")
"""What the README says of the weights in the package."""
RECIPE = "long"
"""The recipe whose runs the README shows."""


def generalization() -> str:
    """Symbol accuracy over length for every task, beside the paper's."""
    lengths = (*LENGTHS, 16_384, 65_536)
    rows = []
    results = read_results(ROOT / "results", ["generalization"])
    for task in SIMPLE:
        paper = GENERALIZATION["shuffle-exchange"][task]
        rows.append([task, "the paper, 40k steps", *_cells(paper, lengths, format_paper)])
        for group, runs in by_group(select(results, task, kind="shuffle-exchange")).items():
            seeds = f"mean of {len(runs)}" if len(runs) > 1 else "one seed"
            label = f"recipe `{group.split(', ')[2]}`, {runs[0]['steps'] // 1000}k steps, {seeds}"
            accuracy = {point.x: point.mean for point in over_length(runs)}
            rows.append(["", label, *_cells(accuracy, lengths, format_percent)])
    return _table(["task", "trained by", *map(str, lengths)], rows, text_columns=2)


def facts() -> str:
    """What the network does, in three numbers."""
    adder = ROOT / "riffle" / "weights" / "add"
    scores = [score for score in _read(adder / "evaluation.json")["scores"] if score["split"] == "uniform"]
    sums, record = max(scores, key=lambda score: score["length"]), _read(H200)
    million = _read(ONE_LAUNCH)["rows"]["infer-1m"]["forms"]["fused"]
    ours, encoder = (
        next(iter(record["attention"][f"{name}-262144"]["forms"].values())) for name in ("ours", "encoder")
    )
    return "\n".join(
        [
            f"- **{format_percent(sums['symbol_accuracy'])}** of the digits right in the sums of {sums['length']:,} "
            "cells it was tested on, by a [network](riffle/weights/add) that was trained on lengths up to 64.",
            f"- **{format_milliseconds(million['milliseconds'])}** for a sequence of a million cells, 192 maps, one "
            f"block, on one {record['device'].removeprefix('NVIDIA ')}, in {format_bytes(million['peak_bytes'])}.",
            f"- **{encoder['milliseconds'] / ours['milliseconds']:.0f} times** as fast at 256K cells, two blocks, as a "
            "six-layer encoder on FlashAttention.",
        ]
    )


def learns() -> str:
    """Symbols / whole sequences beyond the trained length: of five seeds beside the paper's, and of what is shipped."""
    rows = []
    for task in SIMPLE:
        paper, runs, shipped_run = GENERALIZATION["shuffle-exchange"][task], _runs(task), Run(SHIPPED / task)
        row = [f"[{task}](riffle/weights/{task})"]
        for length in (512, LONG):
            means = (mean(accuracies(runs, length, metric)) for metric in ("symbol_accuracy", "sequence_accuracy"))
            row += [format_paper(paper[length]), " / ".join(map(format_percent, means))]
        summary = summarize([read_scores(shipped_run)], TASKS[task], shipped_run.config.data.longest_input)
        rows.append([*row, *(format_accuracy(summary[column]) for column in SHIPPED_COLUMNS)])
    heads = [f"{length}{whose}" for length in (512, LONG) for whose in (", the paper", "")]
    return _table(["task", *heads, *(f"shipped: {column}" for column in SHIPPED_COLUMNS)], rows)


def _runs(task: str) -> list[dict[str, Any]]:
    """The runs of the recipe that generalises furthest."""
    results = read_results(ROOT / "results", ["generalization"])
    return by_group(select(results, task, kind="shuffle-exchange"))[f"{task}, shuffle-exchange, {RECIPE}"]


OVER_LENGTH = ("trained length", "4 times", "8 times", "64 times", "1024 times")
"""Columns of the shipped weights' table: uniform inputs that fill a power of two."""
ELSEWHERE = ("300, bare", "1000, bare", "80 to 1000, asked", "worst family", "8 times, worst family")
"""Columns of their other table: lengths between powers of two, and structured inputs."""


def shipped(columns: Sequence[str]) -> str:
    """The weights in the package after rounding: symbols and whole sequences right."""
    rows = []
    for run in (Run(SHIPPED / name) for name in TASKS if (SHIPPED / name).exists()):
        name, config = run.config.task, run.config
        trained = config.data.longest_input
        summary = summarize([read_scores(run)], TASKS[name], trained)
        facts = [f"[{name}](../riffle/weights/{name})", str(config.model.features), str(trained), _chosen_at(config)]
        rows.append([*facts, *(format_accuracy(summary[column]) for column in columns)])
    return _table(["task", "maps", "trained to", "step chosen at", *columns], rows)


def seeds(path: Path = ROOT / "results" / "trials" / "five-seeds.json") -> str:
    """Runs of the recipe robust: the mean of its seeds, and the lowest and the highest."""
    columns = ("4 times", "64 times", "1024 times", "300, bare", "1000, bare", "worst family", "8 times, worst family")
    rows = []
    for task, runs in _read(path)["symbols_and_sequences"].items():
        cells = []
        for column in columns:
            symbols, sequences = zip(*(run[column] for run in runs.values()), strict=True)
            cells.append(" / ".join(map(_mean_and_spread, (symbols, sequences))))
        rows.append([task, str(len(runs)), *cells])
    return _table(["symbols / sequences", "seeds", *columns], rows)


def alphabet(folder: Path = ROOT / "results" / "alphabet") -> str:
    """Sorting by size of the alphabet: the mean of the seeds and their spread, during training and in the test."""
    sizes: dict[int, list[dict[str, Any]]] = {}
    for result in sorted(map(_read, folder.glob("*.json")), key=lambda result: (result["symbols"], result["seed"])):
        sizes.setdefault(result["symbols"], []).append(result)
    (first, *_), *_ = sizes.values()
    (trained, long), steps = first["config"]["train"]["evaluate_lengths"], [line["step"] for line in first["curve"]]
    rows = []
    for symbols, runs in sizes.items():
        curves = [{line["step"]: line[f"accuracy/{trained}"] for line in run["curve"]} for run in runs]
        shares = [[curve[step] for curve in curves] for step in steps[:-1]]
        shares += [accuracies(runs, length) for length in (trained, long)]
        rows.append([str(symbols), str(len(runs)), *map(_mean_and_spread, shares)])
    heads = [*(f"{trained}, {step} steps" for step in steps), f"{long}, {steps[-1]} steps"]
    return _table(["symbols", "seeds", *heads], rows)


def _mean_and_spread(shares: Sequence[float]) -> str:
    """``99.90% (99.70% to 100%)``, or the mean alone if all are equal."""
    spread = f" ({format_percent(min(shares))} to {format_percent(max(shares))})" if min(shares) < max(shares) else ""
    return format_percent(mean(shares)) + spread


def _chosen_at(config: RunConfig) -> str:
    """The lengths at which the step of a run's weights was chosen."""
    lengths = config.train.evaluate_lengths
    if config.train.keep == "last":
        return "the end"
    return f"{min(lengths)} to {max(lengths)}, mean" if config.data.structure else str(lengths[0])


def cpu() -> str:
    """The reference path on a CPU."""
    result = _read(ROOT / "benchmarks" / "results" / "cpu.json")
    rows = [
        [str(row["length"]), f"{row['milliseconds']:.0f} ms", f"{row['fraction'] * 100:.0f}%"]
        for row in result["speed"]["rows"]
    ]
    table, memory = _table(["length", "time", "of the product's rate"], rows, text_columns=0), result["memory"]
    peak = f"Peak memory of one inference at {memory['length']} cells: {memory['times_input']} times the input."
    return f"{table}\n\n{peak}"


def speed(path: Path = H200) -> str:
    """A GPU's speed as ``riffle bench`` measured it; nothing without the file."""
    if not path.exists():
        return ""
    record = _read(path)
    rates = record["runs"][0]["ceilings"]
    parts = [
        f"{_where(record)}, {_commands(record)}; a matrix product reached {rates['product'] / 1e12:.0f} TFLOP/s, a "
        f"copy {rates['copy'] / 1e12:.1f} TB/s. The floor is the time that a row's FLOPs take at the product's rate. "
        "The training step, and fused all rows up to 1K cells, are replayed as CUDA graphs. Before a row was timed, "
        "its results were compared with the reference in float32; a wrong one has no time "
        f"([{path.name}](../benchmarks/results/{path.name}), [kernels](kernels.md)).",
        _table(
            ["work", "eager, float32", "compiled, bfloat16", "fused", "fused, gates kept", "floor", "reached"],
            map(_speed_row, record["rows"].values()),
        ),
    ]
    if record["attention"]:
        parts.append(attention(path))
    if record["curve"] or record["attention"]:
        parts.append(f"![Time over length](../benchmarks/results/{path.stem}.png)")
    return "\n\n".join(parts)


def one_launch(path: Path = ONE_LAUNCH) -> str:
    """Rows that were measured again with the layer as one launch."""
    record = _read(path)
    rows = []
    for row in record["rows"].values():
        title, *_, fused, kept, floor, reached = _speed_row(row)
        rows.append([title, fused, kept, floor, reached])
    about = (
        f"{_where(record)}, {_commands(record)}; the floor is by a short matrix product, "
        f"{record['runs'][0]['ceilings']['product'] / 1e12:.0f} TFLOP/s "
        f"([{path.name}](../benchmarks/results/{path.name}))."
    )
    return f"{about}\n\n{_table(['work', 'fused', 'fused, gates kept', 'floor', 'reached'], rows)}"


def _speed_row(row: dict[str, Any]) -> list[str]:
    cells = []
    for form in ("eager", "compiled", "fused", "fused-keep"):
        entry = row["forms"].get(form)
        size = f", {format_bytes(entry['peak_bytes'])}" if entry and "milliseconds" in entry else ""
        cells.append(format_time(entry) + size if entry else DASH)
    timed = [entry for entry in row["forms"].values() if "milliseconds" in entry]
    if not timed:
        return [row["title"], *cells, DASH, DASH]
    best = max(timed, key=lambda entry: entry["fraction_of_floor"])
    floor = format_milliseconds(best["floor_milliseconds"])
    return [row["title"], *cells, floor, format_share(best["fraction_of_floor"])]


def attention(path: Path = H200, own: Path = OWN_LOOP) -> str:
    """This network, the encoder and linear attention on one sequence, a column for each length."""
    rows = _read(path)["attention"]
    lengths = sorted({row["lengths"][0] for row in rows.values()})
    lines = []
    for name in ("ours", "encoder"):
        entries = {
            row["lengths"][0]: next(iter(row["forms"].values())) for key, row in rows.items() if key.startswith(name)
        }
        if entries:
            first = next(row for key, row in rows.items() if key.startswith(name))
            model = "riffle, {} blocks" if name == "ours" else "{}-layer encoder, FlashAttention"
            label = f"{model.format(first['blocks'])}, {first['features']} maps"
            lines.append([label, *_cells(entries, lengths, format_time)])
    linear = [row for name, row in _read(own)["own-loop"].items() if name.startswith("own-forward")]
    entries = {row["lengths"][0]: row["forms"]["gla"] for row in linear if row["batch"] == 1 and "gla" in row["forms"]}
    lines.append([OWN_LOOP_LABELS["gla"], *_cells(entries, lengths, format_time)])
    return _table(["cells", *map(format_length, lengths)], lines)


OWN_LOOP_LABELS = {
    "riffle-graphs": "riffle",
    "riffle": "riffle, `graphs=False`",
    "riffle-compiled": "riffle, `torch.compile`",
    "riffle-reduced": 'riffle, `torch.compile(mode="reduce-overhead")`',
    "encoder": "6-layer `nn.TransformerEncoder`",
    "encoder-compiled": "the encoder, `torch.compile`",
    "encoder-graphs": "the encoder, CUDA graphs",
    "gla": "gated linear attention, both directions",
    "gla-graphs": "the same, CUDA graphs",
    "gated-deltanet": "gated DeltaNet, both directions",
    "gated-deltanet-graphs": "the same, CUDA graphs",
}


def own_loop(path: Path = OWN_LOOP) -> str:
    """The layer in a user's own loop beside other models; nothing without the file."""
    if not path.exists():
        return ""
    record = _read(path)
    rows = record["own-loop"]
    compiled = [row["forms"].get("riffle-compiled", {}) for row in rows.values()]
    seconds = max(entry.get("first_seconds", 0.0) for entry in compiled)
    about = (
        f"{_where(record)}, {_commands(record)}: float32 weights under autocast to bfloat16, by the wall "
        "clock over many rounds. A training step is zero_grad, forward, mean squared error, backward and AdamW. The "
        f"models have {_parameters(rows)} parameters; the last two are of flash-linear-attention. What riffle computed "
        f"was compared with the definition in float32 before it was timed, and took at most {seconds:.0f} s to compile "
        f"([{path.name}](../benchmarks/results/{path.name}))."
    )
    steps = _own_loop_table(rows, ("own-step", "own-call"), format_time)
    passes = _own_loop_table(rows, ("own-forward", "own-backward"), _time_and_memory)
    return f"{about}\n\n{steps}\n\n{passes}"


def own_steps(path: Path = OWN_LOOP) -> str:
    """Training steps in a user's own loop, plainly called and as graphs; nothing without the file."""
    if not path.exists():
        return ""
    forms = ("riffle-graphs", "riffle", "encoder", "encoder-compiled")
    rows = _read(path)["own-loop"]
    table = _own_loop_table(rows, ("own-step",), format_time, forms, "training step, ")
    about = f"A training step in your own loop, autocast to bfloat16 and AdamW{_from_earlier(rows, forms)}:"
    return f"{about}\n\n{table}\n\nInference as CUDA graphs:"


def _from_earlier(rows: Mapping[str, Any], forms: Sequence[str]) -> str:
    """Which forms of training steps are not of the last run: the host's speed differs from machine to machine."""
    steps = [row["forms"] for name, row in rows.items() if name.startswith("own-step")]
    last = max(entry.get("run", 0) for row in steps for entry in row.values())
    earlier = [OWN_LOOP_LABELS[form] for form in forms if all(row[form].get("run", 0) < last for row in steps)]
    return f" ({', '.join(earlier)}: an earlier run)" if earlier else ""


def _own_loop_table(
    rows: Mapping[str, Any],
    names: tuple[str, ...],
    format_cell: Callable[[Any], str],
    forms: Sequence[str] = tuple(OWN_LOOP_LABELS),
    prefix: str = "",
) -> str:
    """A row for each form, a column for each workload whose name begins like that, without a prefix of its title."""
    columns = [row for name, row in rows.items() if name.startswith(names)]
    lines = [
        [OWN_LOOP_LABELS[form], *(format_cell(row["forms"][form]) if form in row["forms"] else DASH for row in columns)]
        for form in forms
        if any(form in row["forms"] for row in columns)
    ]
    return _table(["", *(row["title"].removeprefix(prefix) for row in columns)], lines)


def beside_others(path: Path = OWN_LOOP) -> str:
    """One call beside attention and linear attention; nothing without the file."""
    if not path.exists():
        return ""
    forms = ("riffle-graphs", "riffle", "encoder", "encoder-compiled", "gla")
    return _own_loop_table(_read(path)["own-loop"], ("own-forward", "own-backward"), format_time, forms)


def chomsky() -> str:
    """The fifteen tasks of Delétang et al.: published scores and ours, in percent."""
    results = chomsky_figure.CHOMSKY.read(ROOT / "results")
    heads, rows = chomsky_figure.table(results)
    shown = [
        (head, column)
        for head, column in zip(heads, zip(*rows, strict=True), strict=True)
        if any(value is not None for value in column)
    ]
    lines = [
        [f"`{task}`", *(_percent(column[row]) for _, column in shown)]
        for row, task in enumerate(chomsky_figure.PUBLISHED)
    ]
    known = [[value for value in column if value is not None] for _, column in shown]
    lines.append(["solved", *(str(sum(value >= 100 * chomsky_figure.SOLVED for value in values)) for values in known)])
    lines.append(["mean", *(_percent(mean(values) if len(values) == len(rows) else None) for values in known)])
    return _table(["task", *(head for head, _ in shown)], lines)


def listops() -> str:
    """ListOps: published accuracies and ours, in percent."""
    rows = listops_figure.table(listops_figure.LISTOPS.read(ROOT / "results"))
    return _table(["model", "right classes"], [[name, _percent(value)] for name, value in rows.items()])


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"


def _parameters(rows: Mapping[str, Any]) -> str:
    """The smallest and the largest model of the rows that have all of them."""
    counts = [
        entry["parameters"] / 1e6
        for name, row in rows.items()
        if name.startswith("own-forward")
        for entry in row["forms"].values()
        if "parameters" in entry
    ]
    return f"{min(counts):.1f} to {max(counts):.1f} million"


def rivals(folder: Path = ROOT / "results" / "rivals") -> str:
    """Symbol accuracy over length of the baselines, beside the paper's Neural GPU."""
    rows = []
    for task, paper in GENERALIZATION["dngpu"].items():
        rows.append([task, "`dngpu`, the paper", *_cells(paper, LENGTHS, format_paper)])
        for path in sorted(folder.glob(f"{task}-*.json")):
            run = _read(path)
            model, data, train = (run["config"][part] for part in ("model", "data", "train"))
            accuracy = {score["length"]: score["symbol_accuracy"] for score in run["scores"]}
            label = f"`{model['kind']}`, {model['features']} maps, dropout {model['dropout']:g}, "
            label += f"to {data['bins'][-1]}, {run['steps']:,} steps, seed {train['seed']}"
            label += ", averaged" if train.get("average") else ""
            label += f" ([{path.stem}](../results/rivals/{path.name}))"
            rows.append(["", label, *_cells(accuracy, LENGTHS, format_percent)])
    return _table(["task", "model", *map(str, LENGTHS)], rows, text_columns=2)


def timing(name: str) -> str:
    """Time and memory over length of every series of a timing figure."""
    path = ROOT / "results" / name / "results.json"
    record = _read(path)
    lengths = [2**power for power in range(6, 22, 3)]
    rows = []
    for series in record["series"]:
        points = {point["length"]: point for point in series["points"]}
        rows.append([f"{series['model']}, {series['work']}", *_cells(points, lengths, _time_and_memory)])
    about = f"{_where(record, 7)}, {record['dtype']} ([{path.name}](../results/{name}/{path.name}))."
    return f"{about}\n\n{_table(['', *map(format_length, lengths)], rows)}"


def _time_and_memory(point: Mapping[str, Any]) -> str:
    if "failed" in point:
        return format_time(point).partition(":")[0]
    return f"{format_milliseconds(point['milliseconds'])}, {format_bytes(point['peak_bytes'])}"


def resident(path: Path = ROOT / "benchmarks" / "results" / "resident.json") -> str:
    """The longest sequence in one buffer."""
    run = _read(path)
    layers, whole = run["error_of_the_layers"], run["error_of_the_definition"]
    return (
        f"{_where(run)}: **{run['cells']:,} cells** of {run['maps']} maps in {run['dtype']}, {run['layers']} layers, "
        f"in **{run['seconds']:.1f} s** with {format_bytes(run['peak_bytes'])} of memory, "
        f"{format_bytes(run['buffer_bytes'])} of them the cells. The largest error of {layers['pairs']} pairs of every "
        f"layer was {layers['worst']:.1e}, that of the whole network at {whole['cells']:,} cells {whole['error']:.1e} "
        f"([{path.name}](../benchmarks/results/{path.name}))."
    )


def even_speed(path: Path = ROOT / "benchmarks" / "results" / "even.json") -> str:
    """Networks padded to an even length beside networks padded to a power of two."""
    record = _read(path)
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in record["time"]:
        key = (row["pass"], row["blocks"], row["batch"], row["lengths"] or f"{row['length']:,}")
        times.setdefault(key, {})[row["pad"]] = row["milliseconds"]
    rows = [
        [*map(str, key), *(format_milliseconds(pair[pad]) for pad in PADS), f"{pair['even'] / pair['power']:.0%}"]
        for key, pair in times.items()
    ]
    heads = ["", "blocks", "sequences", "cells", *(f'`pad="{pad}"`' for pad in PADS), "of the time"]
    about = f"{_where(record)}, `{' '.join(record['command'])}`: {record['time'][0]['features']} maps in bfloat16"
    return f"{about} ([{path.name}](../benchmarks/results/{path.name})).\n\n{_table(heads, rows)}"


def even_accuracy(path: Path = ROOT / "results" / "trials" / "even.json") -> str:
    """Networks trained at powers of two and at even lengths, each run with both paddings."""
    record = _read(path)
    kinds = {"powers": "powers of two", "even": "other even", "odd": "odd"}
    parts = ("trained", "beyond")
    heads = ["", "trained at", "run with", *(f"{name}, {part}" for name in kinds.values() for part in parts)]
    rows = []
    for run in record["accuracy"]:
        bins = ", ".join(map(str, run["bins"])) if len(run["bins"]) < 8 else f"even lengths to {max(run['bins'])}"
        for pad, scores in run["scores"].items():
            row = [f"{run['task']}, {run['features']} maps", bins, f'`pad="{pad}"`']
            for kind in kinds:
                for beyond in (False, True):
                    found = [
                        score for length, score in scores[kind].items() if (int(length) > run["longest"]) == beyond
                    ]
                    row.append(" / ".join(format_share(mean(values)) for values in zip(*found, strict=True)))
            rows.append(row)
    about = "Symbols / whole sequences right, means over the lengths tested"
    return f"{about} ([{path.name}](../results/trials/{path.name})).\n\n{_table(heads, rows, text_columns=3)}"


PLACEMENTS = ("1 placement", "16 placements")


def lambada(
    *,
    short: bool = False,
    folder: Path = ROOT / "results" / "lambada",
    shipped: Path = ROOT / "riffle" / "weights" / "lambada",
) -> str:
    """Accuracy on LAMBADA: the test set, by position, and the development set in columns of their own.

    The short table has models alone, and of ours no more than one run.
    """
    published = list(PUBLISHED.items())[1:-2] if short else PUBLISHED.items()  # the lowest is no model, nor the highest
    earlier = _read(folder / "test-set.json")
    passages = _read(shipped / "evaluation.json")["splits"]["development"]["passages"]
    bounds = {BOUND: format_percent(passages["answer in passage"]["passages"] / passages["all"]["passages"])}
    rows = [[model, format_percent(accuracy), bounds.get(model, DASH), DASH] for model, accuracy in published]
    for places, accuracy in earlier["accuracy"].items():
        if places in PLACEMENTS:
            name = f"riffle, earlier weights ({earlier['commit']}), {places}"
            rows.append([name, format_percent(accuracy["position"]), *_both(earlier["development"].get(places))])
    rows.sort(key=lambda row: row[1])
    rows.append(["**riffle**, the weights in the package, 1 placement", DASH, *_both(passages["all"])])
    for path in sorted(folder.glob("lambada-residual-*.json" if short else "lambada-*.json"), reverse=True):
        run = _read(path)
        about = f"{run['config']['model'].get('unit', 'gated')} unit, {run['parameters'] / 1e6:.1f}M parameters"
        for places in PLACEMENTS:
            rows.append([f"riffle, {about}, before rounding, {places}", DASH, *_both(run["development"][places])])
    return _table(["model", "test set", "development set", "by word"], rows)


def _both(accuracy: Mapping[str, float] | None) -> list[str]:
    """Accuracy by position and by word."""
    return [format_percent(accuracy[by]) for by in ("position", "word")] if accuracy else [DASH, DASH]


SHOWN_CLASSES: dict[str, dict[str, int | None]] = {
    "rank": {"to 300": 300, "to 1,000": 1_000, "to 4,000": 4_000, "to 16,000": 16_000, "rarer": None},
    "distance": {"to 10": 11, "to 25": 26, "to 50": 51, "further": None},
    "mentions": {"one": 2, "two": 3, "more": None},
    "speech": {"no quotation mark": 1, "after a closing one": 2, "after an opening one": None},
}
"""Features of passages that the page shows, and the upper limits of their classes."""


def match(path: Path = ROOT / "results" / "lambada" / "match.json") -> str:
    """How passages are distributed in the development set and in training, before and after they are weighted."""
    about = _read(path)
    columns = [about["match"]["development"]] + [
        about["match"][split][key] for split in ("train", "within") for key in ("before", "half", "full")
    ]
    rows = []
    for feature, classes in SHOWN_CLASSES.items():
        limits, begin = about["match"]["limits"][feature], 0
        for name, limit in classes.items():
            end = len(limits) + 1 if limit is None else limits.index(limit) + 1
            shares = [format_percent(sum(column[feature][begin:end])) for column in columns]
            rows.append([f"{feature}: {name}", *shares])
            begin = end
    for feature in about["match"]["limits"]:
        wanted, *others = (column[feature] for column in columns)
        apart = [sum(abs(a - b) for a, b in zip(wanted, other, strict=True)) / 2 for other in others]
        rows.append([f"apart in {feature}", DASH, *map(format_percent, apart)])
    effective = [about["match"][split]["effective share"] for split in ("train", "within")]
    shares = [cell for each in effective for cell in ("100%", *map(format_percent, (each["half"], each["full"])))]
    rows.append(["effective share", DASH, *shares])
    ends = [f"{where}, {how}" for where in ("ends", "inside") for how in ("all", "0.5", "1")]
    return _table(["", "development", *ends], rows)


def reading_speed(path: Path = ROOT / "results" / "lambada" / "lambada-residual-seed0.json") -> str:
    """How fast a reader is trained that has the GPU to itself."""
    run = _read(path)
    minutes = run["passages"] / run["passages_per_second"] / 60
    return (
        f"{_where(run)}: {run['steps']:,} steps of "
        f"{run['config']['data']['batch']} passages at **{run['passages_per_second']:,} passages a second**, "
        f"{minutes:.0f} minutes, of {run['splits']['train'] + run['splits']['within']:,} passages from "
        f"public-domain novels ([{path.name}](../results/lambada/{path.name}))."
    )


def levers(folder: Path = ROOT / "results" / "lambada-levers") -> str:
    """Accuracy on LAMBADA with one setting changed at a time, the best first."""
    runs = sorted(map(_read, folder.glob("*.json")), key=lambda run: -run["accuracy"]["all"]["position"])
    first, commits = runs[0], sorted({run["commit"][:7] for run in runs})
    about = (
        f"One {first['hardware']}, commits {', '.join(commits)}: {first['config']['model']['features']} maps, "
        f"{first['steps']:,} steps, one seed."
    )
    rows = []
    for run in runs:
        score = run["accuracy"]["all"]
        name = "nothing" if run["group"] == "as it is" else run["group"]
        rows.append([name, format_percent(score["position"]), format_percent(score["word"])])
    return f"{about}\n\n{_table(['changed', 'accuracy', 'by word'], rows)}"


def levers_part(path: Path = ROOT / "results" / "trials" / "lambada-part.json") -> str:
    """Accuracy on LAMBADA with one setting changed at a time, trained on a part of the text, the best first."""
    record = _read(path)
    runs = sorted(record["runs"].items(), key=lambda item: -item[1]["development"]["1 placement"]["position"])
    config = runs[0][1]["config"]
    about = (
        f"One {runs[0][1]['environment']['device']}, commit {record['commit']}: {config['model']['features']} maps, "
        f"{config['train']['steps']:,} steps, {100 * config['data']['share']:.0f}% of the text, one seed "
        f"([{path.name}](../results/trials/{path.name}))."
    )
    rows = [
        [name, *(cell for places in PLACEMENTS for cell in _both(run["development"][places]))] for name, run in runs
    ]
    return f"{about}\n\n{_table(['changed', 'accuracy', 'by word', '16 placements', 'by word'], rows)}"


def compared(root: Path = ROOT / "results") -> str:
    """Accuracy on LAMBADA by network: every one that a comparison of the paper has."""
    figures = (LAMBADA_MAPS, LAMBADA_BLOCKS, LAMBADA_SHARING, LAMBADA_UNITS)
    groups = {group: runs for figure in figures for group, runs in by_group(figure.read(root)).items()}
    first = groups[BASELINE][0]
    about = (
        f"One {first['hardware']}, commit {first['commit'][:7]}: {first['steps']:,} steps of "
        f"{first['config']['data']['batch']} passages."
    )
    rows = []
    for group, runs in groups.items():
        position, word = (mean(run["accuracy"]["all"][rule] for run in runs) for rule in ("position", "word"))
        size = f"{runs[0]['parameters'] / 1e6:.1f} M"
        rows.append([group, size, format_percent(position), format_percent(word), str(len(runs))])
    return f"{about}\n\n{_table(['network', 'parameters', 'accuracy', 'by word', 'seeds'], rows)}"


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "facts": facts,
        "learns": learns,
        "own-steps": own_steps,
        "fast": attention,
        "lambada": partial(lambada, short=True),
    },
    "docs/results.md": {
        "generalization": generalization,
        "shipped": partial(shipped, OVER_LENGTH),
        "elsewhere": partial(shipped, (*ELSEWHERE, "8 times, carries over 31")),
        "seeds": seeds,
    },
    "docs/deviations.md": {"alphabet": alphabet},
    "docs/speed.md": {"speed": speed, "one-launch": one_launch, "even": even_speed, "cpu": cpu},
    "docs/training.md": {"even": even_accuracy},
    "docs/using.md": {"own-loop": own_loop},
    "docs/lambada.md": {
        "match": match,
        "lambada": lambada,
        "reading-speed": reading_speed,
        "levers": levers,
        "levers-part": levers_part,
        "compared": compared,
    },
    "docs/rivals.md": {
        "rivals": rivals,
        "timing-addition": partial(timing, "timing-addition"),
        "timing-lambada": partial(timing, "timing-lambada"),
    },
    "docs/scaling.md": {"resident": resident},
    "docs/when-to-use.md": {
        "chomsky": chomsky,
        "listops": listops,
        "fast": attention,
        "beside-others": beside_others,
    },
}
"""The tables of every page, by name."""


def with_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with every table written anew."""
    for name, table in tables.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, marker, rest = text.partition(start)
        assert marker, f"the page has no place for the table {name}"
        lines = table()
        text = before + start + (lines + "\n" if lines else "") + end + rest.partition(end)[2]
    return text


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> str:
    """A table in Markdown; columns after the first ``text_columns`` are right-aligned."""
    return "\n".join(markdown_table(heads, rows, text_columns=text_columns))


def _cells(by_length: Mapping[int, Any], lengths: Iterable[int], format_cell: Callable[[Any], str]) -> list[str]:
    """The cell of every length, a dash where there is none."""
    return [format_cell(by_length[length]) if length in by_length else DASH for length in lengths]


def _where(record: Mapping[str, Any], digits: int | None = None) -> str:
    return f"One {record['device']}, commit {record['commit'][:digits]}, torch {record['versions']['torch']}"


def _commands(record: Mapping[str, Any]) -> str:
    return " and ".join(f"`{run['command']}`" for run in record["runs"])


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    check = parser.parse_args().check
    for page, tables in PAGES.items():
        path = ROOT / page
        before = path.read_text()
        after = with_tables(before, tables)
        if check and before != after:
            sys.exit(f"{page}'s tables are not those of the result files: run python benchmarks/readme.py")
        path.write_text(after)


if __name__ == "__main__":
    main()
