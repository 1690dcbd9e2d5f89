"""Tables of README and docs about LAMBADA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from research.ship.reader import BOUND, PUBLISHED
from research.tables.common import RESULTS, ROOT, table
from riffle.files import read_json
from riffle.quantities import DASH, format_percent

PLACEMENTS = ("1 placement", "16 placements")
BY_WORD = {
    "Hoang, Wiseman and Rush, 2018": 0.5923,
    "GPT-2 117M, zero-shot (free prediction, other protocol)": 0.4599,
    "GPT-2 345M, zero-shot (free prediction, other protocol)": 0.5548,
    "GPT-2 762M, zero-shot (free prediction, other protocol)": 0.6012,
}
"""Published accuracies on the test set that count a word wherever it stands, as the report on GPT-2 lists them."""
LONG_ONLY = {"random word of the passage", "Universal Transformer, 6 fixed steps", BOUND, *[*BY_WORD][1:3]}
"""Rows that the short table does not have."""
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
    """Accuracy on LAMBADA: the test set, by position and by word, and the development set in columns of their own.

    The long table has other runs of ours, and a last column of the models that were trained alike.
    """
    test, passages = read_json(folder / "test-set.json"), read_evaluation(shipped)
    earlier = [] if short else [read_json(folder / "test-set-fd244a9.json")]
    bounds = {BOUND: format_percent(passages["answer in passage"]["passages"] / passages["all"]["passages"])}
    rows = [
        [model, format_percent(accuracy), DASH, bounds.get(model, DASH), DASH] for model, accuracy in PUBLISHED.items()
    ]
    rows += [[model, DASH, format_percent(accuracy), DASH, DASH] for model, accuracy in BY_WORD.items()]
    for record in (*earlier, test):
        same = record["development"][PLACEMENTS[0]]["position"] == passages["all"]["position"]
        whose = "**riffle**, the weights in the package" if same else f"riffle, earlier weights ({record['commit']})"
        for places in PLACEMENTS:
            both = _both(record["accuracy"][places]), _both(record["development"].get(places))
            rows.append([f"{whose}, {places}", *both[0], *both[1]])
    rows = [row for row in rows if not short or row[0] not in LONG_ONLY]
    rows.sort(key=lambda row: max(cell for cell in row[1:3] if cell != DASH))
    for path in [] if short else sorted(folder.glob("lambada-*.json"), reverse=True):
        run = read_json(path)
        about = f"{run['config']['model'].get('unit', 'gated')} unit, {run['parameters'] / 1e6:.1f}M parameters"
        for places in PLACEMENTS:
            name = f"riffle, {about}, before rounding, {places}"
            rows.append([name, DASH, DASH, *_both(run["development"][places])])
    heads = ["model", "test, by position", "test, by word", "development, by position", "by word"]
    if short:
        return table(heads, rows)
    runs = scored_runs(read_json(rivals))
    alike = {MODELS[name]: _both(run["development"][PLACEMENTS[0]])[0] for name, run in runs.items()}
    rows += [[model, *[DASH] * 4] for model in alike if model not in PUBLISHED]
    rows = [[*row, alike.get(row[0], DASH)] for row in rows]
    budget = f"{mean(run['step_seconds'] for run in runs.values()):.0f} s each"
    note = (
        f"*{budget}*: accuracy on the development set, {PLACEMENTS[0]}, of the model of the row, trained here so long "
        "beside the others, on the same passages and words."
    )
    return f"{table([*heads, budget], rows)}\n\n{note}"


def read_evaluation(shipped: Path) -> dict[str, Any]:
    """What the reader of the package has on the development set, by the kind of passages."""
    passages: dict[str, Any] = read_json(shipped / "evaluation.json")["splits"]["development"]["passages"]
    return passages


def scored_runs(record: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a plan that did not fail, the most accurate first."""
    scored = {name: run for name, run in record["runs"].items() if "failed" not in run}
    return dict(sorted(scored.items(), key=lambda item: -item[1]["development"][PLACEMENTS[0]]["position"]))


def _both(accuracy: Mapping[str, float] | None) -> list[str]:
    """Accuracy by position and by word."""
    return [format_percent(accuracy[by]) for by in ("position", "word")] if accuracy else [DASH, DASH]
