"""Tables of README and docs about accuracy: over length, of the shipped weights, by seeds, beside other models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from research.files import format_result
from research.reproduce.figures import chomsky as chomsky_figure
from research.reproduce.figures import listops as listops_figure
from research.reproduce.figures import residual as residual_figure
from research.reproduce.figures.generalization import HISTORIC, PREPRINT
from research.reproduce.paper import GENERALIZATION, LENGTHS, SIMPLE, format_paper
from research.reproduce.results import accuracies, by_group, over_length, read_results, select
from research.ship.card import format_accuracy, summarize
from research.tables.common import MEASURED, RESULTS, row_of, table
from riffle.config import RunConfig
from riffle.files import read_json
from riffle.quantities import DASH, format_percent
from riffle.tasks import TASKS
from riffle.train.evaluate import read_scores
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED

LONG = 4096
"""The longest length of the paper's figure."""
SHIPPED_COLUMNS = ("300, bare", "80 to 1000, asked", "worst")
"""What the README says of the weights in the package."""
UNIT_LENGTHS = (64, 512, 4096)
"""Lengths at which units are compared."""
PREPRINTS_OWN = "`preprint`, that code's network"
"""What the preprint's network is called beside the recipes by which the paper's was trained."""


def generalization() -> str:
    """Symbol accuracy over length for every task, beside the paper's."""
    lengths = (*LENGTHS, 16_384, 65_536)
    rows = []
    for task, paper in GENERALIZATION["shuffle-exchange"].items():
        rows.append([task, "the paper, 40k steps", *row_of(paper, lengths, format_paper)])
        for name, runs in _by_recipe(task).items():
            seeds = f"mean of {len(runs)}" if len(runs) > 1 else "one seed"
            accuracy = {point.x: point.mean for point in over_length(runs)}
            label = f"recipe {name}, {runs[0]['steps'] // 1000}k steps, {seeds}"
            rows.append(["", label, *row_of(accuracy, lengths, format_percent)])
    return table(["task", "trained by", *map(str, lengths)], rows, text_columns=2)


def historic() -> str:
    """Symbols / whole sequences right at the longest length by what may have made the paper's curves."""
    names = [*(f"`{recipe}`" for recipe in HISTORIC), PREPRINTS_OWN]
    rows = []
    for task in SIMPLE:
        cells = []
        for runs in map(_by_recipe(task).__getitem__, names):
            symbols, sequences = (accuracies(runs, LONG, f"{what}_accuracy") for what in ("symbol", "sequence"))
            cells.append(f"{_mean_and_spread(symbols)} / {format_percent(mean(sequences))}, {len(runs)} seeds")
        rows.append([task, format_paper(GENERALIZATION["shuffle-exchange"][task][LONG]), *cells])
    return table(["", "the paper", *names], rows)


def _by_recipe(task: str) -> dict[str, list[dict[str, Any]]]:
    """The runs of the figure of generalization: of the paper's network by recipe, then of the preprint's."""
    results = read_results(RESULTS, ["generalization"])
    groups = by_group(select(results, task, kind="shuffle-exchange"))
    runs = {f"`{group.split(', ')[2]}`": runs for group, runs in groups.items()}
    own = select(results, task, kind=PREPRINT)
    return runs | ({PREPRINTS_OWN: own} if own else {})


def learns(path: Path = RESULTS / "trials" / "five-seeds.json") -> str:
    """Symbols / whole sequences beyond the trained length: of five seeds beside the paper's, and of what is shipped."""
    rows, seeds_of = [], read_json(path)["symbols_and_sequences"]
    for task in SIMPLE:
        paper = GENERALIZATION["shuffle-exchange"][task]
        shipped_run = Run(SHIPPED / task)
        row = [f"[{task}](riffle/weights/{task})"]
        for length, column in ((512, "8 times"), (LONG, "64 times")):
            symbols, sequences = zip(*(run[column] for run in seeds_of[task].values()), strict=True)
            row += [format_paper(paper[length]), format_accuracy((mean(symbols), mean(sequences)))]
        summary = summarize([read_scores(shipped_run)], TASKS[task], shipped_run.config.data.longest_input)
        rows.append([*row, *(format_accuracy(summary[column]) for column in SHIPPED_COLUMNS)])
    heads = [f"{length}{whose}" for length in (512, LONG) for whose in (", the paper", "")]
    return table(["task", *heads, *(f"shipped: {column}" for column in SHIPPED_COLUMNS)], rows)


OVER_LENGTH = ("trained length", "4 times", "8 times", "64 times", "1024 times")
"""Columns of the shipped weights' table: uniform inputs that fill a power of two."""
ELSEWHERE = ("300, bare", "1000, bare", "80 to 1000, asked", "worst", "8 times, worst")
"""Columns of their other table: lengths between powers of two, and structured inputs."""


def shipped(columns: Sequence[str]) -> str:
    """The weights in the package after rounding: symbols and whole sequences right."""
    rows = []
    for run in (Run(SHIPPED / name) for name in TASKS if (SHIPPED / name).exists()):
        name, config = run.config.task, run.config
        trained = config.data.longest_input
        summary = summarize([read_scores(run)], TASKS[name], trained)
        facts = [f"[{name}](riffle/weights/{name})", str(config.model.features), str(trained), _chosen_at(config)]
        rows.append([*facts, *(format_accuracy(summary[column]) for column in columns)])
    return table(["task", "maps", "trained to", "step chosen at", *columns], rows)


def seeds(path: Path = RESULTS / "trials" / "five-seeds.json") -> str:
    """Runs of the recipe robust: the mean of its seeds, and the lowest and the highest."""
    columns = ("4 times", "64 times", "1024 times", "300, bare", "1000, bare", "worst family", "8 times, worst family")
    rows = []
    for task, runs in read_json(path)["symbols_and_sequences"].items():
        cells = []
        for column in columns:
            symbols, sequences = zip(*(run[column] for run in runs.values()), strict=True)
            cells.append(" / ".join(map(_mean_and_spread, (symbols, sequences))))
        rows.append([task, str(len(runs)), *cells])
    return table(["symbols / sequences", "seeds", *columns], rows)


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


def chomsky() -> str:
    """The fifteen tasks of Delétang et al.: published scores and ours, in percent."""
    results = chomsky_figure.CHOMSKY.read(RESULTS)
    heads, rows = chomsky_figure.table(results)
    lines = [[f"`{task}`", *map(_percent, row)] for task, row in zip(chomsky_figure.PUBLISHED, rows, strict=True)]
    solved = 100 * chomsky_figure.SOLVED
    columns = [None if None in column else column for column in zip(*rows, strict=True)]
    lines.append(["solved", *(str(sum(score >= solved for score in column)) if column else DASH for column in columns)])
    lines.append(["mean", *(_percent(mean(column) if column else None) for column in columns)])
    return table(["task", *heads], lines)


def listops() -> str:
    """ListOps: published accuracies and ours, in percent."""
    rows = listops_figure.table(listops_figure.LISTOPS.read(RESULTS))
    return table(["model", "right classes"], [[name, _percent(value)] for name, value in rows.items()])


def residual() -> str:
    """The units beside one another: symbols right over length, the mean of the seeds and their spread."""
    groups = by_group(residual_figure.RESIDUAL.read(RESULTS))
    rows = []
    for group, runs in groups.items():
        shares = (accuracies(runs, length) for length in UNIT_LENGTHS)
        rows.append([*group.split(", ", 1), str(len(runs)), *map(_mean_and_spread, shares)])
    return table(["task", "unit", "seeds", *map(str, UNIT_LENGTHS)], rows, text_columns=2)


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"


def input_scale(path: Path = MEASURED / "input-scale.json") -> str:
    """Symbols right by the scale of the inputs before training: the mean of the seeds, the lowest and the highest."""
    runs = read_json(path)["runs"]
    scales = list(runs[0]["accuracy"])
    cells = [row_of(run["accuracy"], scales, _mean_and_spread) for run in runs]
    rows = [[f"{run['task']}, {run['unit']}", *row] for run, row in zip(runs, cells, strict=True)]
    return table(["", *scales], rows)


def rivals(folder: Path = RESULTS / "rivals") -> str:
    """Symbol accuracy over length of the baselines, the mean of seeds with its range, beside the paper's Neural GPU."""
    lengths = (64, 128, 512, 1024, 4096)
    rows = []
    for task, paper in GENERALIZATION["dngpu"].items():
        rows.append([task, "`dngpu`, the paper", DASH, *row_of(paper, lengths, format_paper)])
        groups: dict[str, list[Any]] = defaultdict(list)
        for path in sorted(folder.glob(f"{task}-*.json")):
            run = read_json(path)
            model, longest = run["config"]["model"], run["config"]["data"]["bins"][-1]
            label = f"`{model['kind']}`, {model['features']} maps, dropout {model['dropout']:g}"
            groups[f"{label}, to {longest}, {run['steps']:,} steps"].append(run)
        for label, runs in groups.items():
            cells = {point.x: _mean_and_spread(accuracies(runs, point.x)) for point in over_length(runs)}
            rows.append(["", label, str(len(runs)), *row_of(cells, lengths, str)])
    return table(["task", "model", "seeds", *map(str, lengths)], rows, text_columns=2)


PAGE_RIVALS = {"LSTM": "lstm-192", "transformer": "transformer", "Neural GPU": "dngpu-96-maps-*"}
"""What the page's curves beside ours are of: beginnings of file names."""


def page_rivals(folder: Path = RESULTS / "rivals") -> str:
    """The mean share of symbols right of other models, by task, model and length: the page's JSON."""
    curves: dict[str, dict[str, list[Any]]] = defaultdict(dict)
    for task, (model, files) in product((*SIMPLE, "multiply"), PAGE_RIVALS.items()):
        runs = [read_json(path) for path in sorted(folder.glob(f"{task}-{files}.json"))]
        if runs:
            curves[task][model] = [[point.x, round(point.mean, 4)] for point in over_length(runs)]
    return format_result(curves) + "\n"
