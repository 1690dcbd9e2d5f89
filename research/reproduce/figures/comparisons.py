"""Networks compared on symbols: by switch unit and weight sharing, and on products by Beneš blocks and feature maps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from research.baselines.configs import VariantConfig
from research.reproduce import paper
from research.reproduce.figure import LearningFigure, Pair, Values, comparison
from research.reproduce.figures import lambada
from research.reproduce.results import Result, accuracies, by_group, select
from research.reproduce.specs import PAPER_LENGTHS, EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train
from research.reproduce.specs import shrink as shrink_spec
from riffle.config import DataConfig
from riffle.recipes import paper as paper_recipe
from riffle.recipes import small as small_recipe

PRODUCT_LENGTHS = (64, 32)
"""Longest trained lengths of products: the one that is trained, as in the released code, and that of earlier runs, with
a constant learning rate and averaged weights, whose results are shown beside it."""
TASKS = ("add", "sort")
COMPARED_LENGTH = 512
AT = {task: f"{task} at {COMPARED_LENGTH}" for task in TASKS}
"""The length at which sums and sorted sequences are compared, and what panels of it are called."""
BASELINE = "gated"


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


def products(results: Sequence[Result], length: int, **model: Any) -> tuple[float, ...]:
    """Accuracy of the runs on products to a longest trained length whose model configuration has the given values."""
    runs = select(results, "multiply", **model)
    return accuracies([run for run in runs if max(run["config"]["data"]["bins"]) == length], length)


def _size_figure(name: str, field: str, sizes: Sequence[int], usual: int, passages: Sequence[str]) -> LearningFigure:
    """A figure of networks by one size, of which the paper says that larger is better; the usual one is shared."""
    rows = [f"{size} {name if size > 1 else name[:-1]}" for size in sizes]
    others = [(size, row) for size, row in zip(sizes, rows, strict=True) if size != usual]

    def values(results: Sequence[Result]) -> Values:
        first, second = (
            {row: products(results, length, **{field: size}) for size, row in zip(sizes, rows, strict=True)}
            for length in PRODUCT_LENGTHS
        )
        read = {row: lambada.accuracy(results, group) for row, group in zip(rows, passages, strict=True)}
        return {"products at 64": first, "LAMBADA": read, "products at 32": second}

    return comparison(
        name=name,
        heading=f"accuracy by {name}",
        networks=lambda: [_product_spec(), *(_product_spec(name, f"{n} {name}", **{field: n}) for n, _ in others)],
        folders=(name, "products"),
        beside=tuple(dict.fromkeys(("lambada-maps", f"lambada-{name}"))),
        values=values,
        pairs=[(panel, more, less, "higher") for panel in LARGER for less, more in pairwise(rows)],
        drawn={"LAMBADA": dict(zip(rows, paper.LAMBADA_MAPS.values(), strict=True))} if name == "maps" else {},
        runs=3,
    )


LARGER = ("products at 64", "products at 32", "LAMBADA")
BLOCKS = _size_figure("blocks", "blocks", (1, 2, 3), 2, (lambada.ONE_BLOCK, lambada.BASELINE, lambada.THREE_BLOCKS))
MAPS = _size_figure("maps", "features", (96, 192, 384), 192, (lambada.HALF, lambada.BASELINE, lambada.TWICE))


def _unit_spec(task: str, unit: str) -> RunSpec:
    """Addition or sorting with one of the units."""
    config = with_train(paper_recipe(task), precision="fp32", steps=20_000, evaluate_every=250)
    config = with_train(config, evaluate_lengths=(COMPARED_LENGTH,))
    config = with_model_fields(config, unit=unit)
    return RunSpec(folder="ablation", group=f"{task}, {unit}", config=config, measure=accuracy_at(PAPER_LENGTHS))


UNITS = tuple(paper.ABLATION["multiply"])
OTHER_UNITS = tuple(unit for unit in UNITS if unit != BASELINE)


def _by_unit(results: Sequence[Result]) -> Values:
    """A panel for each task, as in the paper; its products are of length 128, after ten times as many steps."""
    first, second = ({unit: products(results, length, unit=unit) for unit in UNITS} for length in PRODUCT_LENGTHS)
    passages = {unit: lambada.accuracy(results, lambada.BASELINE if unit == BASELINE else unit) for unit in UNITS}
    symbols = {
        AT[task]: {unit: accuracies(select(results, task, unit=unit), COMPARED_LENGTH) for unit in paper.ABLATION[task]}
        for task in TASKS
    }
    return {"products at 64": first, "LAMBADA": passages, **symbols, "products at 32": second}


ABLATION = comparison(
    name="ablation",
    heading="the switch unit and its ablations; the paper's products have length 128",
    networks=lambda: [
        *(_unit_spec(task, unit) for task in TASKS for unit in paper.ABLATION[task]),
        _product_spec(),
        *(_product_spec("ablation", unit, unit=unit) for unit in OTHER_UNITS),
    ],
    folders=("ablation", "products"),
    beside=("lambada-maps", "lambada-units"),
    values=_by_unit,
    pairs=[
        *((f"products at {length}", BASELINE, unit, "higher") for length in PRODUCT_LENGTHS for unit in OTHER_UNITS),
        *((AT[task], BASELINE, unit, "higher") for task in TASKS for unit in paper.ABLATION[task] if unit != BASELINE),
    ],
    judged={AT[task]: paper.ABLATION[task] for task in TASKS},
    drawn={
        "LAMBADA": paper.ABLATION["lambada"],
        **dict.fromkeys(("products at 64", "products at 32"), paper.ABLATION["multiply"]),
    },
    runs=3,
)


def _sharing_spec(task: str, sharing: str) -> RunSpec:
    """Addition or sorting by weight sharing; by block, the usual one, it is the baseline of the ablation."""
    spec = _unit_spec(task, BASELINE)
    if sharing == "block":
        return spec
    config = with_model_fields(spec.config, sharing=sharing)
    return replace(spec, folder="sharing", group=f"{spec.group}, {sharing}", config=config)


def _by_sharing(results: Sequence[Result]) -> Values:
    passages = {"block": lambada.BASELINE, "minimal": "minimal", "full": "full"}
    symbols = {
        AT[task]: {
            sharing: accuracies(select(results, task, unit=BASELINE, sharing=sharing), COMPARED_LENGTH)
            for sharing in ("block", "minimal")
        }
        for task in TASKS
    }
    return {**symbols, "LAMBADA": {name: lambada.accuracy(results, group) for name, group in passages.items()}}


SHARING = comparison(
    name="sharing",
    heading="accuracy by which layers share weights",
    networks=lambda: [_sharing_spec(task, sharing) for sharing in ("block", "minimal") for task in TASKS],
    folders=("sharing",),
    beside=("lambada-maps", "lambada-sharing"),
    values=_by_sharing,
    pairs=[(AT[task], "minimal", "block", "equal") for task in TASKS],
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
    small = RunSpec(
        folder="variants",
        group="sort by 48 maps, gated",
        config=with_train(small_recipe("sort"), precision="fp32", evaluate_lengths=(256,)),
        measure=accuracy_at(EvaluationSpec((32, 64, 128, 256), 1024)),
    )
    others = [_variant_spec(spec, name) for spec in (usual, small) for name in ("mirrored", "one-reset", "two-relu")]
    return [usual, alone, small, *others, _variant_spec(alone, "unshared", 64)]


def _variant_spec(usual: RunSpec, variant: str, length: int = 0) -> RunSpec:
    model = VariantConfig(**{**asdict(usual.config.model), "kind": "variant", "variant": variant, "length": length})
    return replace(usual, group=usual.group.replace(BASELINE, variant), config=replace(usual.config, model=model))


def _shrink_variant(spec: RunSpec) -> RunSpec:
    """A tiny run; of a network for one length, that length is a bin's."""
    small = shrink_spec(spec)
    if len(spec.config.data.bins) > 1:
        return small
    config = with_train(replace(small.config, data=DataConfig(bins=(8,), batch=4)), evaluate_lengths=(8,))
    if config.model.kind == "variant":
        config = with_model_fields(config, length=8)
    return replace(small, config=config, measure=accuracy_at(EvaluationSpec((8,), 4)))


VARIANT_LENGTHS = {"sort": COMPARED_LENGTH, "sort at 64 alone": 64, "sort by 48 maps": 256}
"""The length at which networks of a group are compared."""


def _by_variant(results: Sequence[Result]) -> Values:
    panels: Values = defaultdict(dict)
    for group, runs in by_group(results).items():
        task, variant, *_ = group.split(", ")
        panels[task][variant] = accuracies(runs, VARIANT_LENGTHS[task])
    return panels


VARIANT_PAIRS: list[Pair] = [
    *((task, "mirrored", BASELINE, "equal") for task in ("sort", "sort by 48 maps")),
    *((task, each, BASELINE, "lower") for task in ("sort", "sort by 48 maps") for each in ("one-reset", "two-relu")),
    ("sort at 64 alone", "unshared", BASELINE, "equal"),
]
VARIANTS = comparison(
    name="variants",
    heading="what the paper says without a figure: sorting at 512, with 48 maps at 256",
    networks=_variants,
    folders=("variants",),
    values=_by_variant,
    pairs=VARIANT_PAIRS,
    runs=3,
    shrink=_shrink_variant,
)
