"""Networks compared on LAMBADA: by feature maps, blocks, units and sharing as in the paper, and by training settings.

All comparisons of the paper share one baseline, with half the maps of the paper's network, so that each trains within
half an hour on a GPU. Accuracy is on the development set; the test set is for the one network chosen in the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from research.reproduce.charts import title
from research.reproduce.claims import Claim, at_least_as_good, largest_spread
from research.reproduce.figure import LearningFigure
from research.reproduce.results import Result, by_group
from research.reproduce.specs import RunSpec, with_model_fields, with_train
from research.reproduce.synthetic import prepare_synthetic_corpus
from riffle.config import PassageDataConfig, TrainConfig
from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.plots import PALETTE, new_figure, style, style_axes
from riffle.quantities import format_percent
from riffle.recipes import paper_reader
from riffle.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SPLIT = "development"
QUICK_FOLDER = Path("runs/quick/synthetic")


def measure_passages(run: Run, device: torch.device) -> dict[str, Any]:
    """Parameters, and accuracy on the development set."""
    reader = TrainedReader(run, device)
    passages = read_splits([SPLIT], Path(reader.objective.config.data.corpus))[SPLIT]
    parameters = sum(parameter.numel() for parameter in reader.model.parameters())
    return {"parameters": parameters, "accuracy": reader.evaluate(passages)["passages"]}


def _spec(folder: str, group: str, *, data: Mapping[str, Any], train: Mapping[str, Any], **model: Any) -> RunSpec:
    """The paper's reader with 192 maps and some fields changed."""
    config = with_model_fields(with_train(paper_reader(), **train), **{"features": 192, **model})
    config = replace(config, data=replace(config.data, **data))
    return RunSpec(folder=folder, group=group, config=config, measure=measure_passages)


def _compared(folder: str, group: str, *, train: Mapping[str, Any] = {}, **model: Any) -> RunSpec:
    """A network of the paper's comparisons, by Adam as there: Muon hides how hard networks are to train."""
    usual = {"optimizer": "adamw", "steps": 3000, "warmup": 300, "evaluate_every": 500}
    return _spec(folder, group, data={}, train={**usual, **train}, **model)


def _shrink(spec: RunSpec) -> RunSpec:
    """A tiny network trained for four steps on the synthetic corpus."""
    config = spec.config
    corpus = QUICK_FOLDER / "corpus" if QUICK_FOLDER.exists() else prepare_synthetic_corpus(QUICK_FOLDER)
    own: Any = config.model
    model = replace(own, features=own.features // 24, dropout=0.0)
    data = PassageDataConfig(bins=(32,), batch=8, corpus=str(corpus))
    train = TrainConfig(steps=4, log_every=2, evaluate_every=2, evaluate_lengths=(), checkpoint_every=2)
    return replace(spec, config=replace(config, model=model, data=data, train=train))


def passage_accuracies(results: Sequence[Result], group: str) -> list[float]:
    """Accuracy by position of the runs of a group."""
    return [run["accuracy"]["all"]["position"] for run in by_group(results).get(group, [])]


def increasing(results: Sequence[Result], groups: Sequence[str]) -> list[Claim]:
    """Claim that each group is at least as accurate as the one before."""
    runs = {group: passage_accuracies(results, group) for group in groups}
    return [
        at_least_as_good(f"{more} read as well as {less}", runs[more], runs[less]) for less, more in pairwise(groups)
    ]


def similar(results: Sequence[Result], groups: Sequence[str], points: float) -> Claim:
    """Claim that the mean accuracies of groups are within some percentage points of one another."""
    measured = [runs for group in groups if (runs := passage_accuracies(results, group))]
    statement = f"{'; '.join(groups)}: within {points:g} points"
    if len(measured) < len(groups):
        return Claim(statement, None, f"{len(measured)} of {len(groups)} were measured")
    means = [statistics.mean(runs) for runs in measured]
    low, high = min(means), max(means)
    evidence = f"{100 * (high - low):.2f} points from {format_percent(low)} to {format_percent(high)}"
    margin = points / 100 - (high - low)
    within_noise = 0 < abs(margin) <= largest_spread(*measured)
    return Claim(statement, margin >= 0, evidence, runs=(min(map(len, measured)),), within_noise=within_noise)


def _draw(results: Sequence[Result], heading: str) -> Figure:
    """A bar for each group of runs, and beside it accuracy over steps."""
    with style():
        figure = new_figure(12, 4.8)
        bars, curves = figure.subplots(1, 2)
        means = {group: statistics.mean(passage_accuracies(results, group)) for group in by_group(results)}
        colours = {group: PALETTE[index % len(PALETTE)] for index, group in enumerate(means)}
        drawn = bars.barh(list(means), [100 * mean for mean in means.values()], color=list(colours.values()))
        bars.bar_label(drawn, [format_percent(mean) for mean in means.values()], padding=3)
        bars.invert_yaxis()
        bars.margins(x=0.15)  # room for the labels
        bars.set_xlabel(f"accuracy on the {SPLIT} set, %")
        for run in results:
            lines = [line for line in run["metrics"] if f"accuracy/{SPLIT}" in line]
            percentages = [100 * line[f"accuracy/{SPLIT}"] for line in lines]
            curves.plot([line["step"] for line in lines], percentages, "o-", markersize=3, color=colours[run["group"]])
        curves.set(xlabel="step", ylabel="accuracy, %")
        for axes in (bars, curves):
            style_axes(axes)
        figure.suptitle(title(heading, results), fontsize=12)
    return figure


def _figure(
    name: str,
    heading: str,
    networks: Callable[[], Sequence[RunSpec]],
    claims: Callable[[Sequence[Result]], list[Claim]],
) -> LearningFigure:
    draw = partial(_draw, heading=heading)
    return LearningFigure(name=name, networks=networks, folders=(name,), draw=draw, claims=claims, shrink=_shrink)


BASELINE, HALF, TWICE = (f"{maps} maps, 2 blocks" for maps in (192, 96, 384))
BASELINE_SPEC = partial(_compared, "lambada-maps", BASELINE)
TWICE_SPEC = partial(_compared, "lambada-maps", TWICE, features=384)
"""Networks that several figures share."""
LAMBADA_MAPS = _figure(
    "lambada-maps",
    "LAMBADA by feature maps, 2 blocks",
    lambda: [_compared("lambada-maps", HALF, features=96), BASELINE_SPEC(), TWICE_SPEC()],
    lambda results: increasing(results, [HALF, BASELINE, TWICE]),
)

ONE_BLOCK, THREE_BLOCKS = "192 maps, 1 block", "192 maps, 3 blocks"
LAMBADA_BLOCKS = _figure(
    "lambada-blocks",
    "LAMBADA by Beneš blocks, 192 maps",
    lambda: [
        _compared("lambada-blocks", ONE_BLOCK, blocks=1),
        BASELINE_SPEC(),
        _compared("lambada-blocks", THREE_BLOCKS, blocks=3),
    ],
    lambda results: increasing(results, [ONE_BLOCK, BASELINE, THREE_BLOCKS]),
)

GATED_ABLATIONS = ("no-swap", "no-residual", "no-benes", "swap-gate", "two-fc-gate")
"""The ablations that keep the gate, which matters most according to the paper."""
WITHOUT_GATE = "two-fc"


def _claim_units(results: Sequence[Result]) -> list[Claim]:
    gated = [BASELINE, *GATED_ABLATIONS]
    better = [claim for unit in gated for claim in increasing(results, [WITHOUT_GATE, unit])]
    return [similar(results, gated, 3), *better]


LAMBADA_UNITS = _figure(
    "lambada-units",
    "LAMBADA by switch unit, 192 maps, 2 blocks",
    lambda: [
        BASELINE_SPEC(),
        *(_compared("lambada-units", unit, unit=unit) for unit in GATED_ABLATIONS),
        # Without a gate nothing is learned at four times this learning rate, the usual one.
        _compared("lambada-units", WITHOUT_GATE, train={"learning_rate": 0.0004}, unit=WITHOUT_GATE),
        _compared("lambada-units", "residual", unit="residual"),
    ],
    _claim_units,
)

SHARINGS = ("minimal", "full")
LAMBADA_SHARING = _figure(
    "lambada-sharing",
    "LAMBADA by weight sharing, 2 blocks",
    lambda: [
        BASELINE_SPEC(),
        *(_compared("lambada-sharing", sharing, sharing=sharing) for sharing in SHARINGS),
        TWICE_SPEC(),
    ],
    lambda results: [similar(results, [BASELINE, *SHARINGS], 2), *increasing(results, [BASELINE, TWICE])],
)

INITIAL: dict[str, dict[str, Any]] = {"data": {"within": 0.5}, "train": {"optimizer": "adamw", "learning_rate": 0.0016}}
"""Settings of the recipe before this comparison, where they are others now."""
UNCHANGED = "as it is"
CHANGES: dict[str, dict[str, Any]] = {
    UNCHANGED: {},
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
"""The setting that is changed, by the name of the group."""


def _claim_levers(results: Sequence[Result]) -> list[Claim]:
    """Whether any change is an improvement; not a claim of the paper."""
    measured = {group: runs for group in CHANGES if (runs := passage_accuracies(results, group))}
    statement = "no change of one setting is better"
    if len(measured) < len(CHANGES):
        return [Claim(statement, None, f"{len(measured)} of {len(CHANGES)} were measured")]
    means = {group: statistics.mean(runs) for group, runs in measured.items()}
    winner = max(means, key=means.__getitem__)
    evidence = f"{winner} {format_percent(means[winner])}, {UNCHANGED} {format_percent(means[UNCHANGED])}"
    noise = largest_spread(measured[winner], measured[UNCHANGED])
    within_noise = 0 < means[winner] - means[UNCHANGED] <= noise
    fewest = min(map(len, measured.values()))
    return [Claim(statement, winner == UNCHANGED, evidence, runs=(fewest,), within_noise=within_noise)]


LAMBADA_LEVERS = _figure(
    "lambada-levers",
    "LAMBADA by settings, 192 maps, 2 blocks",
    lambda: [
        _spec("lambada-levers", group, **change | {part: INITIAL[part] | change.get(part, {}) for part in INITIAL})
        for group, change in CHANGES.items()
    ],
    _claim_levers,
)
