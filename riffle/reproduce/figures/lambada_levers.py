"""What training for LAMBADA owes to each of its settings: all as they were at first, and all but one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from riffle.quantities import format_percent
from riffle.reproduce.claims import Claim
from riffle.reproduce.figures.readers import accuracies, reader, seeded_readers
from riffle.reproduce.figures.reading_chart import reading_figure
from riffle.reproduce.results import Result
from riffle.reproduce.specs import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = 1
FOLDERS = ("lambada-levers",)
FEATURES = 192
"""Half the maps of the paper's network: settings are compared, and more steps fit into the time."""
FIRST: dict[str, dict[str, Any]] = {"data": {"within": 0.5}, "train": {"optimizer": "adamw", "learning_rate": 0.0016}}
"""What the recipe was before this was measured, where it is another now."""
BASE = "as it is"
LEVERS: dict[str, dict[str, Any]] = {
    BASE: {},
    "sentence ends only": {"data": {"within": 0.0}},
    "inside sentences only": {"data": {"within": 1.0}},
    "answers as often as they occur": {"data": {"flatten": 0.0}},
    "occurrences added up": {"data": {"label": "sum"}},
    "no word forgotten": {"data": {"forget": 0.0}},
    "no word dropped": {"data": {"word_dropout": 0.0}},
    "no dropout": {"dropout": 0.0},
    "half the learning rate": {"train": {"learning_rate": 0.0008}},
    "twice the learning rate": {"train": {"learning_rate": 0.0032}},
    "four times the learning rate": {"train": {"learning_rate": 0.0064}},
    "eight times the learning rate": {"train": {"learning_rate": 0.0128}},
    "batches of half the size": {"data": {"batch": 256}},
    "batches of twice the size": {"data": {"batch": 1024}},
    "half of the novels": {"data": {"share": 0.5}},
    "a tenth of the novels": {"data": {"share": 0.1}},
    "Muon": {"train": {"optimizer": "muon"}},
    "Muon, twice the learning rate": {"train": {"optimizer": "muon", "learning_rate": 0.0032}},
    "Muon, four times the learning rate": {"train": {"optimizer": "muon", "learning_rate": 0.0064}},
    "Muon, eight times the learning rate": {"train": {"optimizer": "muon", "learning_rate": 0.0128}},
    "weight decay 0.01": {"train": {"weight_decay": 0.01}},
    "weights averaged": {"train": {"average": 0.999}},
}
"""What is changed, by the name of the group."""


def configs(*, quick: bool = False, runs: int = RUNS) -> list[RunSpec]:
    """Every setting."""
    return seeded_readers([_changed(name) for name in LEVERS], runs, quick)


def _changed(name: str) -> RunSpec:
    change = LEVERS[name]
    parts = {part: {**settings, **change.get(part, {})} for part, settings in FIRST.items()}
    return reader("lambada-levers", name, **{"features": FEATURES, **change, **parts})


def figure(results: Sequence[Result]) -> Figure:
    """Accuracy by network, and over steps."""
    return reading_figure(results, "LAMBADA by settings, 192 maps, 2 blocks")


def claims(results: Sequence[Result]) -> list[Claim]:
    """Whether any change would have been better; no claim of the paper's."""
    found = {name: max(runs) for name in LEVERS if (runs := accuracies(results, name))}
    statement = "no change of one setting is better"
    if len(found) < len(LEVERS):
        return [Claim(statement, None, f"{len(found)} of {len(LEVERS)} were measured")]
    best = max(found, key=found.__getitem__)
    return [
        Claim(statement, best == BASE, f"{best} {format_percent(found[best])}, {BASE} {format_percent(found[BASE])}")
    ]
