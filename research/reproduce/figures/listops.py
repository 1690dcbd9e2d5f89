"""ListOps of the Long Range Arena: the value of nested lists of 500 to 2,000 symbols, one of ten classes."""

# B = batch, N = length
from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from research.reproduce.figure import LearningFigure
from research.reproduce.results import Result, by_group
from research.reproduce.specs import RunSpec, shrink, with_model_fields
from research.tasks.listops import ListOps
from riffle.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from riffle.recipes import with_model
from riffle.train.objective import autocast
from riffle.train.run import Run

PUBLISHED = {
    "Transformer": 36.4,
    "Longformer": 35.6,
    "Performer": 18.0,
    "Paramixer": 39.6,
    "S4": 59.6,
    "ChordMixer": 59.9,
    "S5": 62.2,
    "MEGA": 63.1,
}
"""Published accuracies in percent."""
TRAINING_EXAMPLES, TEST_EXAMPLES, CELLS = 96_000, 2_000, 2048
TEST_SET = 1
"""Seed of the test set."""
ROWS = 50
"""Test examples that go through a model at once."""
VARIANTS = ("gated", "residual", "transformer")


def score_test_set(run: Run, device: torch.device, examples: int = TEST_EXAMPLES) -> dict[str, Any]:
    """The share of test examples whose class is right, in the precision of the training."""
    generator = torch.Generator(device).manual_seed(TEST_SET)
    test, model = ListOps().data_set(examples, 1, CELLS, generator=generator), run.model(device)
    right = 0
    for inputs_BN, targets_BN in zip(test.inputs.split(ROWS), test.targets.split(ROWS), strict=True):
        with torch.inference_mode(), autocast(run.config.train.precision, device):
            right += int((model(inputs_BN.long())[:, 0].argmax(dim=-1) == targets_BN[:, 0]).sum())
    return {"accuracy": {"score": right / examples, "examples": examples}}


def _spec(variant: str) -> RunSpec:
    """This network with a unit, or a baseline; all see the same examples in the same number of steps.

    Short and long lists are in one bin, so that training and test run them on the same number of cells.
    """
    config = RunConfig(
        task="listops",
        model=ModelConfig(features=128, blocks=2),
        data=DataConfig(bins=(CELLS,), batch=16, examples=TRAINING_EXAMPLES),
        train=TrainConfig(
            steps=10_000,
            learning_rate=0.001,
            warmup=500,
            schedule="linear",
            weight_decay=0.1,
            clip=1.0,
            blank_weight=0.0001,  # one cell of 2,048 has an answer
            precision="bf16",
            evaluate_every=0,
        ),
    )
    ours = variant in ("gated", "residual")
    config = with_model_fields(config, unit=variant) if ours else with_model(config, variant)
    group = f"listops, {variant}"
    return RunSpec(folder="listops", group=group, config=config, measure=score_test_set, runs=None if ours else 1)


def _shrink(spec: RunSpec) -> RunSpec:
    return replace(shrink(spec), measure=partial(score_test_set, examples=4))


def scores(results: Sequence[Result], variant: str) -> list[float]:
    """The accuracies of the runs of a unit or a baseline."""
    return [run["accuracy"]["score"] for run in by_group(results).get(f"listops, {variant}", [])]


def table(results: Sequence[Result]) -> dict[str, float | None]:
    """Accuracies in percent: published, then the means of our runs."""
    ours = {variant: scores(results, variant) for variant in VARIANTS}
    counts = {name: f"mean of {len(runs)}" if len(runs) > 1 else "one run" for name, runs in ours.items()}
    means = {f"{name}, {counts[name]}": 100 * statistics.mean(runs) for name, runs in ours.items() if runs}
    return {**PUBLISHED, **means}


LISTOPS = LearningFigure(
    name="listops",
    networks=lambda: [_spec(variant) for variant in VARIANTS],
    folders=("listops",),
    runs=3,
    shrink=_shrink,
)
