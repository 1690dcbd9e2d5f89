"""Tables of README and docs about LAMBADA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from research.reproduce.figures.lambada import BASELINE, LAMBADA_BLOCKS, LAMBADA_MAPS, LAMBADA_SHARING, LAMBADA_UNITS
from research.reproduce.results import by_group
from research.ship.reader import BOUND, PUBLISHED
from research.tables.common import RESULTS, ROOT, table
from riffle.files import read_json
from riffle.quantities import DASH, format_percent

PLACEMENTS = ("1 placement", "16 placements")
RIVALS = RESULTS / "lambada" / "rivals.json"
"""All readers trained alike."""
MODELS = {
    "gated-attention-reader": "Gated-Attention Reader",
    "universal-reader": "Universal Transformer, 6 fixed steps",
    "universal-reader, halting": "Universal Transformer, dynamic halting",
    "universal-transformer": "Universal Transformer, 6 fixed steps, pointing",
    "shuffle-exchange, gated": "Shuffle-Exchange, the paper",
    "shuffle-exchange": "Residual Shuffle-Exchange, 2021",
}
"""The models of the runs; all but the one that points are published."""


def lambada(
    *,
    short: bool = False,
    folder: Path = RESULTS / "lambada",
    shipped: Path = ROOT / "riffle" / "weights" / "lambada",
    rivals: Path = RIVALS,
) -> str:
    """Accuracy on LAMBADA: the test set, by position, and the development set in columns of their own.

    The short table has models alone, and of ours no more than one run. The long one has a last column, of the models
    that were trained alike.
    """
    published = list(PUBLISHED.items())[1:-2] if short else PUBLISHED.items()  # the lowest is no model, nor the highest
    earlier = read_json(folder / "test-set.json")
    passages = read_json(shipped / "evaluation.json")["splits"]["development"]["passages"]
    bounds = {BOUND: format_percent(passages["answer in passage"]["passages"] / passages["all"]["passages"])}
    rows = [[model, format_percent(accuracy), bounds.get(model, DASH), DASH] for model, accuracy in published]
    for places, accuracy in earlier["accuracy"].items():
        if places in PLACEMENTS:
            name = f"riffle, earlier weights ({earlier['commit']}), {places}"
            rows.append([name, format_percent(accuracy["position"]), *_both(earlier["development"].get(places))])
    rows.sort(key=lambda row: row[1])
    rows.append(["**riffle**, the weights in the package, 1 placement", DASH, *_both(passages["all"])])
    for path in sorted(folder.glob("lambada-residual-*.json" if short else "lambada-*.json"), reverse=True):
        run = read_json(path)
        about = f"{run['config']['model'].get('unit', 'gated')} unit, {run['parameters'] / 1e6:.1f}M parameters"
        for places in PLACEMENTS:
            rows.append([f"riffle, {about}, before rounding, {places}", DASH, *_both(run["development"][places])])
    heads = ["model", "test set", "development set", "by word"]
    if short:
        return table(heads, rows)
    runs = scored_runs(read_json(rivals))
    alike = {MODELS[name]: _both(run["development"][PLACEMENTS[0]])[0] for name, run in runs.items()}
    others = [[model, DASH, DASH, DASH] for model in alike if model not in PUBLISHED]
    at = 1 + max(number for number, row in enumerate(rows) if row[1] != DASH)
    rows = [[*row, alike.get(row[0], DASH)] for row in (*rows[:at], *others, *rows[at:])]
    budget = f"{mean(run['step_seconds'] for run in runs.values()):.0f} s each"
    note = (
        f"*{budget}*: accuracy on the development set, {PLACEMENTS[0]}, of the model of the row, trained here so long "
        "beside the others, on the same passages and words."
    )
    return f"{table([*heads, budget], rows)}\n\n{note}"


def scored_runs(record: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a plan that did not fail, the most accurate first."""
    scored = {name: run for name, run in record["runs"].items() if "failed" not in run}
    return dict(sorted(scored.items(), key=lambda item: -item[1]["development"][PLACEMENTS[0]]["position"]))


def _both(accuracy: Mapping[str, float] | None) -> list[str]:
    """Accuracy by position and by word."""
    return [format_percent(accuracy[by]) for by in ("position", "word")] if accuracy else [DASH, DASH]


def compared(root: Path = RESULTS) -> str:
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
    return f"{about}\n\n{table(['network', 'parameters', 'accuracy', 'by word', 'seeds'], rows)}"
