"""Networks compared on LAMBADA as in the paper: by feature maps, blocks, units and sharing.

All comparisons of the paper share one baseline, with half the maps of the paper's network, so that each trains within
half an hour on a GPU. Accuracy is on the development set; the test set is for the one network chosen in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from research.reproduce.figure import LearningFigure, comparison
from research.reproduce.results import Result, by_group
from research.reproduce.specs import RunSpec, with_model_fields, with_train
from research.reproduce.synthetic import prepare_synthetic_corpus
from research.reproduce.verdicts import Claim, Wanted
from riffle.config import PassageDataConfig, TrainConfig
from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.lambada.pointing import predict_answers
from riffle.recipes import paper_reader
from riffle.train.run import Run

SPLIT = "development"
QUICK_FOLDER = Path("runs/quick/synthetic")


def measure_passages(run: Run, device: torch.device) -> dict[str, Any]:
    """Parameters, accuracy on the development set, and which passages are answered right, by position: 0 or 1 each."""
    reader = TrainedReader(run, device)
    dataset = reader.objective.dataset_from_tokens(
        read_splits([SPLIT], Path(reader.objective.config.data.corpus))[SPLIT]
    )
    predictions = predict_answers(reader.model, dataset, reader.objective.predict_rows)
    all_of_them = {"passages": len(predictions.answers), **predictions.accuracy}
    right = "".join(map(str, (predictions.by_position == predictions.answers).int().tolist()))
    parameters = sum(parameter.numel() for parameter in reader.model.parameters())
    return {"parameters": parameters, "accuracy": {"all": all_of_them}, "right": right}


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


def accuracy(results: Sequence[Result], group: str) -> tuple[float, ...]:
    """Accuracy by position of the runs of a group."""
    return tuple(run["accuracy"]["all"]["position"] for run in by_group(results).get(group, []))


def _figure(
    name: str, networks: Callable[[], Sequence[RunSpec]], pairs: Sequence[tuple[str, str, Wanted]]
) -> LearningFigure:
    """A figure with the networks of one comparison; the paper's panel of it is in a figure with those on symbols."""

    def claims(results: Sequence[Result]) -> list[Claim]:
        groups = by_group(results)
        right = {group: _right(runs) for group, runs in groups.items()}
        return [
            claim._replace(right=(right.get(one, []), right.get(other, [])))
            for claim, (one, other, _) in zip(figure.claims(results), pairs, strict=True)
        ]

    figure = comparison(
        name=name,
        heading=f"{name}, development set",
        networks=networks,
        folders=(name,),
        values=lambda results: {"LAMBADA": {group: accuracy(results, group) for group in by_group(results)}},
        pairs=[("LAMBADA", *pair) for pair in pairs],
        runs=SEEDS,
        shrink=_shrink,
    )
    return replace(figure, claims=claims)


def _right(runs: Sequence[Result]) -> list[float]:
    """The share of runs that answer each passage right; nothing where a run has not kept its answers."""
    if not all("right" in run for run in runs):
        return []
    return [sum(answers) / len(runs) for answers in zip(*(map(int, run["right"]) for run in runs), strict=True)]


SEEDS = 5
BASELINE, HALF, TWICE = (f"{maps} maps, 2 blocks" for maps in (192, 96, 384))
BASELINE_SPEC = partial(_compared, "lambada-maps", BASELINE)
TWICE_SPEC = partial(_compared, "lambada-maps", TWICE, features=384)
"""Networks that several figures share."""
LAMBADA_MAPS = _figure(
    "lambada-maps",
    lambda: [_compared("lambada-maps", HALF, features=96), BASELINE_SPEC(), TWICE_SPEC()],
    [(BASELINE, HALF, "higher"), (TWICE, BASELINE, "higher")],
)

ONE_BLOCK, THREE_BLOCKS = "192 maps, 1 block", "192 maps, 3 blocks"
LAMBADA_BLOCKS = _figure(
    "lambada-blocks",
    lambda: [
        _compared("lambada-blocks", ONE_BLOCK, blocks=1),
        BASELINE_SPEC(),
        _compared("lambada-blocks", THREE_BLOCKS, blocks=3),
    ],
    [(BASELINE, ONE_BLOCK, "higher"), (THREE_BLOCKS, BASELINE, "higher")],
)

GATED_ABLATIONS = ("no-swap", "no-residual", "no-benes", "swap-gate", "two-fc-gate")
"""The ablations that keep the gate, which matters most according to the paper."""
WITHOUT_GATE = "two-fc"
LAMBADA_UNITS = _figure(
    "lambada-units",
    lambda: [
        BASELINE_SPEC(),
        *(_compared("lambada-units", unit, unit=unit) for unit in GATED_ABLATIONS),
        # Without a gate nothing is learned at four times this learning rate, the usual one.
        _compared("lambada-units", WITHOUT_GATE, train={"learning_rate": 0.0004}, unit=WITHOUT_GATE),
        _compared("lambada-units", "residual", unit="residual"),
    ],
    [*((unit, BASELINE, "equal") for unit in GATED_ABLATIONS), (BASELINE, WITHOUT_GATE, "higher")],
)

SHARINGS = ("minimal", "full")
LAMBADA_SHARING = _figure(
    "lambada-sharing",
    lambda: [BASELINE_SPEC(), *(_compared("lambada-sharing", each, sharing=each) for each in SHARINGS), TWICE_SPEC()],
    [*((each, BASELINE, "equal") for each in SHARINGS), (TWICE, BASELINE, "higher")],
)
