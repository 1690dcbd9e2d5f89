"""Networks compared on symbols: by switch unit and weight sharing, and on products by Beneš blocks and feature maps."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from research.baselines.configs import VariantConfig
from research.reproduce import paper
from research.reproduce.charts import Line, lines_figure, title
from research.reproduce.claims import Claim, at_least_as_good, reaches, stays_below
from research.reproduce.figure import LearningFigure
from research.reproduce.results import Result, accuracies, over_steps, select
from research.reproduce.specs import (
    PAPER_LENGTHS,
    EvaluationSpec,
    RunSpec,
    accuracy_at,
    shrink,
    with_model_fields,
    with_train,
)
from riffle.config import DataConfig
from riffle.quantities import format_percent
from riffle.recipes import paper as paper_recipe
from riffle.recipes import small as small_recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PRODUCT_LENGTHS = (64, 32)
"""Longest trained lengths of products: the one that is trained, as in the released code, and that of earlier runs, with
a constant learning rate and averaged weights, whose results are shown beside it."""
TASKS = ("add", "sort")
COMPARED_LENGTH = 512
"""The length at which sums and sorted sequences are compared."""
BASELINE = "gated"
ABLATIONS = tuple(unit for unit in paper.ABLATION["multiply"] if unit != BASELINE)
COLLAPSED = 0.7
"""Units that the paper has below this accuracy on multiplication do not learn it."""
SHARINGS = ("block", "minimal")
SIMILAR = 0.02
"""Difference in accuracy up to which two ways of sharing perform similarly."""


def _product_spec(folder: str = "products", variant: str = "gated, 2 blocks, 192 maps", **model: Any) -> RunSpec:
    """Multiplication with 192 maps and two blocks, some fields of the model changed, and the paper's optimiser."""
    length, *_ = PRODUCT_LENGTHS
    config = with_train(
        paper_recipe("multiply"), precision="fp32", steps=20_000, keep="best", evaluate_lengths=(length,)
    )
    config = replace(config, data=DataConfig(bins=(8, 16, 32, length)))
    config = with_model_fields(config, **{"features": 192, **model})
    measure = accuracy_at(EvaluationSpec((8, 16, 32, 64, 128), 1024), last=True)
    return RunSpec(folder=folder, group=f"multiply to {length}, {variant}", config=config, measure=measure)


def _products(results: Sequence[Result], **model: Any) -> dict[int, list[Result]]:
    """The runs on products whose model configuration has the given values, by their longest trained length."""
    runs: dict[int, list[Result]] = defaultdict(list)
    for run in select(results, "multiply", **model):
        runs[max(run["config"]["data"]["bins"])].append(run)
    return runs


def _claimed_lengths(results: Sequence[Result]) -> list[int]:
    """The trained lengths of products that there are runs of; that of new runs where there are none."""
    return [length for length in PRODUCT_LENGTHS if length in _products(results)] or [PRODUCT_LENGTHS[0]]


def _size_figure(name: str, heading: str, field: str, sizes: Sequence[int], usual: int) -> LearningFigure:
    """A figure of networks by one size, claiming that larger ones are at least as good; the usual one is shared."""

    def draw(results: Sequence[Result]) -> Figure:
        runs = {size: _products(results, **{field: size}) for size in sizes}
        panels = {
            f"accuracy at length {length}": [
                Line(f"{size} {name if size > 1 else name[:-1]}", over_steps(runs[size][length]), colour=colour)
                for colour, size in enumerate(sizes)
            ]
            for length in _products(results)
        }
        return lines_figure(title(heading, results), panels)

    def claims(results: Sequence[Result]) -> list[Claim]:
        runs = {size: _products(results, **{field: size}) for size in sizes}
        return [
            _compare(f"{more} {name} are", runs[more][length], f"{less}", runs[less][length], length)
            for length in _claimed_lengths(results)
            for less, more in pairwise(sizes)
        ]

    def networks() -> list[RunSpec]:
        others = [_product_spec(name, f"{size} {name}", **{field: size}) for size in sizes if size != usual]
        return [_product_spec(), *others]

    return LearningFigure(name=name, networks=networks, folders=(name, "products"), draw=draw, claims=claims, runs=3)


def _compare(subject: str, runs: Sequence[Result], other: str, baseline: Sequence[Result], length: int) -> Claim:
    """Claim that products of some runs are right as often as those of others, by their last weights."""
    statement = f"multiply: {subject} right as often as {other} at {length}"
    claim = at_least_as_good(statement, accuracies(runs, length), accuracies(baseline, length))
    kept = [accuracies(side, length, scores="kept_scores") for side in (runs, baseline)]
    if not all(kept):
        return claim
    ours, others = (format_percent(statistics.mean(side)) for side in kept)
    return claim._replace(evidence=f"{claim.evidence}; kept weights {ours} against {others}")


BLOCKS = _size_figure("blocks", "multiplication by Beneš blocks", "blocks", (1, 2, 3), usual=2)
MAPS = _size_figure("maps", "multiplication by feature maps", "features", (96, 192, 384), usual=192)


def _unit_spec(task: str, unit: str) -> RunSpec:
    """Addition or sorting with one of the units."""
    config = with_train(paper_recipe(task), precision="fp32", steps=20_000, evaluate_every=250)
    config = with_train(config, evaluate_lengths=(COMPARED_LENGTH,))
    config = with_model_fields(config, unit=unit)
    return RunSpec(folder="ablation", group=f"{task}, {unit}", config=config, measure=accuracy_at(PAPER_LENGTHS))


def _draw_ablation(results: Sequence[Result]) -> Figure:
    """A panel for each task; crosses are the paper's final accuracies, where it has them at the same length."""
    colours = {unit: colour for colour, unit in enumerate(paper.ABLATION["multiply"])}
    panels = {
        f"{task}, length {COMPARED_LENGTH}": [
            Line(unit, over_steps(select(results, task, unit=unit)), paper.ABLATION[task][unit], colours[unit])
            for unit in colours
            if unit in paper.ABLATION[task]
        ]
        for task in TASKS
    }
    for length in _products(results):
        panels[f"multiply, length {length}"] = [
            Line(unit, over_steps(_products(results, unit=unit)[length]), colour=colours[unit]) for unit in colours
        ]
    return lines_figure(title("the switch unit and its ablations", results), panels)


def _claim_ablation(results: Sequence[Result]) -> list[Claim]:
    """The paper's accuracies at 512; for multiplication, that its unit is the best, and which units collapse."""
    claims = [
        reaches(
            f"{task}, {unit}: symbols right at {COMPARED_LENGTH}",
            target,
            accuracies(select(results, task, unit=unit), COMPARED_LENGTH),
        )
        for task in TASKS
        for unit, target in paper.ABLATION[task].items()
    ]
    products = {unit: _products(results, unit=unit) for unit in (BASELINE, *ABLATIONS)}
    for length in _claimed_lengths(results):
        baseline = products[BASELINE][length]
        claims += [_compare(f"{BASELINE} is", baseline, unit, products[unit][length], length) for unit in ABLATIONS]
        claims += [
            stays_below(
                f"multiply: {unit} collapses, below {format_percent(COLLAPSED)} at {length}",
                COLLAPSED,
                accuracies(products[unit][length], length),
            )
            for unit in ABLATIONS
            if paper.ABLATION["multiply"][unit] < COLLAPSED
        ]
    return claims


ABLATION = LearningFigure(
    name="ablation",
    networks=lambda: [
        *(_unit_spec(task, unit) for task in TASKS for unit in paper.ABLATION[task]),
        _product_spec(),
        *(_product_spec("ablation", unit, unit=unit) for unit in ABLATIONS),
    ],
    folders=("ablation", "products"),
    draw=_draw_ablation,
    claims=_claim_ablation,
    runs=3,
)


def _sharing_spec(task: str, sharing: str) -> RunSpec:
    """Addition or sorting by weight sharing; by block, the usual one, it is the baseline of the ablation."""
    spec = _unit_spec(task, BASELINE)
    if sharing == "block":
        return spec
    config = with_model_fields(spec.config, sharing=sharing)
    return replace(spec, folder="sharing", group=f"{spec.group}, {sharing}", config=config)


def _draw_sharing(results: Sequence[Result]) -> Figure:
    panels = {
        f"{task}, length {COMPARED_LENGTH}": [
            Line(sharing, over_steps(select(results, task, unit=BASELINE, sharing=sharing)), colour=colour)
            for colour, sharing in enumerate(SHARINGS)
        ]
        for task in TASKS
    }
    return lines_figure(title("weights shared by block and minimally", results), panels)


def _claim_sharing(results: Sequence[Result]) -> list[Claim]:
    claims = []
    for task in TASKS:
        groups = [select(results, task, unit=BASELINE, sharing=sharing) for sharing in SHARINGS]
        block, minimal = (accuracies(runs, COMPARED_LENGTH) for runs in groups)
        statement = f"{task}: minimal sharing is right as often as sharing by block, within {SIMILAR * 100:g} points"
        claims.append(at_least_as_good(statement, minimal, block, SIMILAR))
    return claims


SHARING = LearningFigure(
    name="sharing",
    networks=lambda: [_sharing_spec(task, sharing) for sharing in SHARINGS for task in TASKS],
    folders=("sharing",),
    draw=_draw_sharing,
    claims=_claim_sharing,
    runs=3,
)


def _variants() -> list[RunSpec]:
    """Sorting by networks that differ in what the paper mentions without a figure; some small, some at one length."""
    config = with_train(_unit_spec("sort", BASELINE).config, steps=10_000, evaluate_every=1000)
    measure = accuracy_at(EvaluationSpec((64, 128, 256, 512, 1024), 1024))
    usual = RunSpec(folder="variants", group="sort, gated, 10,000 steps", config=config, measure=measure)
    config = with_train(paper_recipe("sort"), precision="fp32", steps=4_000, evaluate_every=500, evaluate_lengths=(64,))
    alone = RunSpec(  # where a network need not share weights
        folder="variants",
        group="sort at 64 alone, gated",
        config=replace(config, data=DataConfig(bins=(64,))),
        measure=accuracy_at(EvaluationSpec((64,), 1024)),
    )
    config = with_train(small_recipe("sort"), precision="fp32", evaluate_lengths=(256,))
    small = RunSpec(
        folder="variants",
        group="sort by 48 maps, gated",
        config=config,
        measure=accuracy_at(EvaluationSpec((32, 64, 128, 256), 1024)),
    )
    others = [_variant_spec(spec, name) for spec in (usual, small) for name in ("mirrored", "one-reset", "two-relu")]
    return [usual, alone, small, *others, _variant_spec(alone, "unshared", 64)]


def _variant_spec(usual: RunSpec, variant: str, length: int = 0) -> RunSpec:
    model = VariantConfig(**{**asdict(usual.config.model), "kind": "variant", "variant": variant, "length": length})
    return replace(usual, group=usual.group.replace(BASELINE, variant), config=replace(usual.config, model=model))


def _shrink_variant(spec: RunSpec) -> RunSpec:
    """A tiny run; of a network for one length, that length is a bin's."""
    small = shrink(spec)
    if len(spec.config.data.bins) > 1:
        return small
    config = with_train(replace(small.config, data=DataConfig(bins=(8,), batch=4)), evaluate_lengths=(8,))
    if config.model.kind == "variant":
        config = with_model_fields(config, length=8)
    return replace(small, config=config, measure=accuracy_at(EvaluationSpec((8,), 4)))


VARIANTS = LearningFigure(
    name="variants",
    networks=_variants,
    folders=("variants",),
    draw=_draw_sharing,
    claims=_claim_sharing,
    runs=3,
    shrink=_shrink_variant,
)
