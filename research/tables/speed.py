"""Tables of README and docs about time and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from research.bench.record import format_time
from research.quantities import format_milliseconds, format_share
from research.tables.common import MEASURED, RESULTS, commands, row_of, table, where
from riffle.files import read_json
from riffle.quantities import DASH, format_bytes, format_length

H200 = MEASURED / "h200.json"
ONE_LAUNCH = H200.with_name("h200-one-launch.json")
ATTENTION = H200.with_name("h200-attention.json")
OWN_LOOP = MEASURED / "own-loop.json"


def cpu() -> str:
    """The median call of layers of as many weights on a CPU, by one thread / by two."""
    times: dict[str, dict[tuple[bool, int], list[float]]] = {}
    for row in read_json(MEASURED / "cpu.json")["rows"]:
        at = row["training"], row["length"]
        if at != (True, 1025):
            times.setdefault(row["layer"], {}).setdefault(at, []).append(row["milliseconds"])
    columns = next(iter(times.values()))
    heads = [f"{length:,}{', both passes' * training}" for training, length in columns]
    rows = [[name, *(" / ".join(map(format_milliseconds, by)) for by in row.values())] for name, row in times.items()]
    return table(["cells", *heads], rows)


def speed(path: Path = ONE_LAUNCH, before: Path = H200) -> str:
    """Single calls as ``riffle bench`` measured them: plain PyTorch in the run ``before`` the layer was one launch."""
    record, earlier = read_json(path), read_json(before)
    rows = []
    for name, row in sorted(record["rows"].items(), key=lambda item: item[1]["title"].startswith("forward")):
        forms = earlier["rows"][name]["forms"] if name in earlier["rows"] else {}
        row["forms"] |= {form: forms[form] for form in ("eager", "compiled") if form in forms}
        rows.append(_speed_row(row))
    files = ", ".join(f"[{file.name}](research/bench/results/{file.name})" for file in (path, before))
    about = (
        f"One {record['device']}, torch {record['versions']['torch']}, {commands(record)}, eager and compiled by "
        f"{commands(earlier)} ({files}). The floor is the time that a row's FLOPs take at the rate of a short matrix "
        f"product, {record['runs'][0]['ceilings']['product'] / 1e12:.0f} TFLOP/s. The training step, and fused all "
        "rows up to 1K cells, are replayed as CUDA graphs. Before a row was timed, its results were compared with the "
        "reference in float32; a wrong one has no time."
    )
    heads = ["work", "eager, float32", "compiled, bfloat16", "fused", "fused, gates kept", "floor", "reached"]
    return f"{about}\n\n{table(heads, rows)}"


def beside_attention(path: Path = ATTENTION) -> str:
    """This network beside an encoder over length, with the command and the plot."""
    record = read_json(path)
    about = f"{where(record)}, {commands(record)} ([{path.name}](research/bench/results/{path.name})):"
    return "\n\n".join([about, attention(path), f"![Time over length](research/bench/results/{path.stem}.png)"])


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


def attention(path: Path = ATTENTION, own: Path = OWN_LOOP) -> str:
    """This network, the encoder and linear attention on one sequence, a column for each length."""
    rows = read_json(path)["attention"]
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
            lines.append([label, *row_of(entries, lengths, format_time)])
    linear = [row for name, row in read_json(own)["own-loop"].items() if name.startswith("own-forward")]
    entries = {row["lengths"][0]: row["forms"]["gla"] for row in linear if row["batch"] == 1 and "gla" in row["forms"]}
    lines.append([OWN_LOOP_LABELS["gla"], *row_of(entries, lengths, format_time)])
    return table(["cells", *map(format_length, lengths)], lines)


OWN_LOOP_LABELS = {
    "riffle-graphs": "riffle",
    "riffle-graphs-compiled": "riffle, `torch.compile`",
    "riffle": "riffle, `graphs=False`",
    "riffle-compiled": "riffle, `graphs=False`, `torch.compile`",
    "riffle-reduced": 'riffle, `graphs=False`, `torch.compile(mode="reduce-overhead")`',
    "encoder": "6-layer `nn.TransformerEncoder`",
    "encoder-compiled": "the encoder, `torch.compile`",
    "encoder-graphs": "the encoder, CUDA graphs",
    "gla": "gated linear attention, both directions",
    "gla-graphs": "gated linear attention, CUDA graphs",
    "gated-deltanet": "gated DeltaNet, both directions",
    "gated-deltanet-graphs": "gated DeltaNet, CUDA graphs",
}
OWN_LOOP_TABLES = {"First table": ("own-step", "own-call"), "Second table": ("own-forward", "own-backward")}
"""Beginnings of the names of their workloads."""


def own_loop(path: Path = OWN_LOOP) -> str:
    """The layer in a user's own loop beside other models."""
    record = read_json(path)
    rows = record["own-loop"]
    compiled = ("riffle-compiled", "riffle-graphs-compiled")
    seconds = max(row["forms"].get(form, {}).get("first_seconds", 0.0) for row in rows.values() for form in compiled)
    about = (
        f"One {record['device']}, torch {record['versions']['torch']}: float32 weights under autocast to bfloat16, by "
        "the wall clock over many rounds. A training step is zero_grad, forward, mean squared error, backward and "
        f"AdamW. The models have {_parameters(rows)} parameters; gated linear attention and gated DeltaNet are of "
        "flash-linear-attention. What riffle computed was compared with the definition in float32 before it was timed, "
        f"and `torch.compile` of it took at most {seconds:.0f} s "
        f"([{path.name}](research/bench/results/{path.name})). The host's speed differs from run to run:"
    )
    steps, passes = (
        _own_loop_table(rows, names, cell)
        for names, cell in zip(OWN_LOOP_TABLES.values(), (format_time, _time_and_memory), strict=True)
    )
    return "\n\n".join([about, _own_loop_runs(record), steps, passes])


def _own_loop_runs(record: Mapping[str, Any]) -> str:
    """A line for each run that something of the tables is of: its command and its rows."""
    lines = []
    for number, run in enumerate(record["runs"]):
        parts = []
        for name, beginnings in OWN_LOOP_TABLES.items():
            rows = [row["forms"] for row_name, row in record["own-loop"].items() if row_name.startswith(beginnings)]
            found = {form for forms in rows for form, entry in forms.items() if entry.get("run", 0) == number}
            if found:
                labels = "; ".join(OWN_LOOP_LABELS[form] for form in OWN_LOOP_LABELS if form in found)
                parts.append(f"{name}: {labels}")
        if parts:
            lines.append(f"- `{run['command']}`. {' '.join(f'{part}.' for part in parts)}")
    return "\n".join(lines)


def _own_loop_table(rows: Mapping[str, Any], names: tuple[str, ...], format_cell: Callable[[Any], str]) -> str:
    """A row for each form, a column for each workload whose name begins like that."""
    columns = [row for name, row in rows.items() if name.startswith(names)]
    lines = [
        [label, *(format_cell(row["forms"][form]) if form in row["forms"] else DASH for row in columns)]
        for form, label in OWN_LOOP_LABELS.items()
        if any(form in row["forms"] for row in columns)
    ]
    return table(["", *(row["title"] for row in columns)], lines)


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


def timing(name: str) -> str:
    """Time and memory over length of every series of a timing figure."""
    path = RESULTS / name / "results.json"
    record = read_json(path)
    lengths = [2**power for power in range(6, 22, 3)]
    rows = []
    for series in record["series"]:
        points = {point["length"]: point for point in series["points"]}
        rows.append([f"{series['model']}, {series['work']}", *row_of(points, lengths, _time_and_memory)])
    about = f"{where(record, 7)}, {record['dtype']} ([{path.name}](research/results/{name}/{path.name}))."
    return f"{about}\n\n{table(['', *map(format_length, lengths)], rows)}"


def _time_and_memory(point: Mapping[str, Any]) -> str:
    if "failed" in point:
        return format_time(point).partition(":")[0]
    return f"{format_milliseconds(point['milliseconds'])}, {format_bytes(point['peak_bytes'])}"


def resident(path: Path = MEASURED / "resident.json") -> str:
    """The longest sequence in one buffer."""
    run = read_json(path)
    layers, whole = run["error_of_the_layers"], run["error_of_the_definition"]
    return (
        f"{where(run)}: **{run['cells']:,} cells** of {run['maps']} maps in {run['dtype']}, {run['layers']} layers, "
        f"in **{run['seconds']:.1f} s** with {format_bytes(run['peak_bytes'])} of memory, "
        f"{format_bytes(run['buffer_bytes'])} of them the cells. The largest error of {layers['pairs']} pairs of every "
        f"layer was {layers['worst']:.1e}, that of the whole network at {whole['cells']:,} cells {whole['error']:.1e} "
        f"([{path.name}](research/bench/results/{path.name}))."
    )
