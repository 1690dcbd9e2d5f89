"""Networks compared on symbols: by switch unit and weight sharing, and on products by Beneš blocks and feature maps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from riffle.quantities import format_percent
from riffle.recipes import long
from riffle.recipes import paper as paper_recipe
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good, count_runs, reaches
from riffle.reproduce.figure import LearningFigure
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import PAPER_LENGTHS, EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PRODUCT_LENGTH = 32
"""The longest trained length of multiplication: many networks can be trained in the time of one at 128."""
TASKS = ("add", "sort")
LENGTHS = {"add": 512, "sort": 512, "multiply": PRODUCT_LENGTH}
"""The length at which accuracy is compared."""
BASELINE = "gated"
ABLATIONS = tuple(unit for unit in paper.ABLATION["multiply"] if unit != BASELINE)
COLLAPSED = 0.7
"""Units that the paper has below this accuracy on multiplication do not learn it."""
SHARINGS = ("block", "minimal")
SIMILAR = 0.02
"""Difference in accuracy up to which two ways of sharing perform similarly."""


def _product_spec(folder: str = "products", variant: str = "gated, 2 blocks, 192 maps", **model: Any) -> RunSpec:
    """Multiplication with 192 maps and two blocks, and some fields of the model changed."""
    rate = 0.0025 if model.get("unit") == "two-fc" else 0.005  # two layers without a gate diverge at the usual rate
    # Adam as in the paper: Muon hides much of what makes one network harder to train than another.
    config = with_train(long("multiply"), steps=10_000, optimizer="adamw", learning_rate=rate)
    config = with_train(config, evaluate_lengths=(PRODUCT_LENGTH,))
    config = replace(config, data=replace(config.data, bins=(8, 16, PRODUCT_LENGTH)))
    config = with_model_fields(config, **{"features": 192, **model})
    measure = accuracy_at(EvaluationSpec((8, 16, 32, 64), 1024))
    return RunSpec(folder=folder, group=f"multiply, {variant}", config=config, measure=measure)


def _size_figure(name: str, heading: str, field: str, sizes: Sequence[int], usual: int) -> LearningFigure:
    """A figure of networks by one size, claiming that larger ones are at least as good; the usual one is shared."""

    def draw(results: Sequence[Result]) -> Figure:
        runs = {size: select(results, "multiply", **{field: size}) for size in sizes}
        lines = [Line(f"{size} {name}", over_steps(runs[size]), colour=colour) for colour, size in enumerate(sizes)]
        return lines_figure(title(heading, results), {f"accuracy at length {PRODUCT_LENGTH}": lines})

    def claims(results: Sequence[Result]) -> list[Claim]:
        runs = {size: accuracies(select(results, "multiply", **{field: size}), PRODUCT_LENGTH) for size in sizes}
        return [
            at_least_as_good(f"multiply: {more} {name} are right as often as {less}", runs[more], runs[less])
            for less, more in pairwise(sizes)
        ]

    others = [_product_spec(name, f"{size} {name}", **{field: size}) for size in sizes if size != usual]
    return LearningFigure(name=name, base_specs=[_product_spec(), *others], folders=(name,), draw=draw, claims=claims)


BLOCKS = _size_figure("blocks", "multiplication by Beneš blocks", "blocks", (1, 2, 3), usual=2)
MAPS = _size_figure("maps", "multiplication by feature maps", "features", (96, 192, 384), usual=192)


def _unit_spec(task: str, unit: str) -> RunSpec:
    """Addition or sorting with one of the units."""
    config = with_train(paper_recipe(task), steps=20_000, evaluate_every=250, evaluate_lengths=(LENGTHS[task],))
    config = with_model_fields(config, unit=unit)
    return RunSpec(folder="ablation", group=f"{task}, {unit}", config=config, measure=accuracy_at(PAPER_LENGTHS))


def _unit_accuracies(results: Sequence[Result], task: str, unit: str) -> list[float]:
    return accuracies(select(results, task, unit=unit), LENGTHS[task])


def _draw_ablation(results: Sequence[Result]) -> Figure:
    """A panel for each task; crosses are the paper's final accuracies, where it has them at the same length."""
    panels = {
        f"{task}, length {LENGTHS[task]}": [
            Line(unit, over_steps(select(results, task, unit=unit)), units[unit] if task in TASKS else None, colour)
            for colour, unit in enumerate(paper.ABLATION["multiply"])
            if unit in units
        ]
        for task, units in paper.ABLATION.items()
    }
    return lines_figure(title("the switch unit and its ablations", results), panels)


def _claim_ablation(results: Sequence[Result]) -> list[Claim]:
    """The paper's accuracies at 512; for multiplication, that its unit is the best, and which units collapse."""
    claims = [
        reaches(f"{task}, {unit}: symbols right at {LENGTHS[task]}", target, _unit_accuracies(results, task, unit))
        for task in TASKS
        for unit, target in paper.ABLATION[task].items()
    ]
    baseline = _unit_accuracies(results, "multiply", BASELINE)
    for unit in ABLATIONS:
        statement = f"multiply: {BASELINE} is right as often as {unit} at {PRODUCT_LENGTH}"
        claims.append(at_least_as_good(statement, baseline, _unit_accuracies(results, "multiply", unit)))
    for unit in ABLATIONS:
        if paper.ABLATION["multiply"][unit] < COLLAPSED:
            statement = f"multiply: {unit} collapses, below {format_percent(COLLAPSED)} at {PRODUCT_LENGTH}"
            runs = _unit_accuracies(results, "multiply", unit)
            mean = statistics.mean(runs) if runs else None
            evidence = f"{format_percent(mean)} over {count_runs(len(runs))}" if mean is not None else "not measured"
            claims.append(Claim(statement, None if mean is None else mean < COLLAPSED, evidence))
    return claims


ABLATION = LearningFigure(
    name="ablation",
    base_specs=[
        *(_unit_spec(task, unit) for task in TASKS for unit in paper.ABLATION[task]),
        _product_spec(),
        *(_product_spec("ablation", unit, unit=unit) for unit in ABLATIONS),
    ],
    folders=("ablation",),
    draw=_draw_ablation,
    claims=_claim_ablation,
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
        f"{task}, length {LENGTHS[task]}": [
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
        block, minimal = (accuracies(runs, LENGTHS[task]) for runs in groups)
        statement = f"{task}: minimal sharing is right as often as sharing by block, within {SIMILAR * 100:g} points"
        claims.append(at_least_as_good(statement, minimal, block, SIMILAR))
    return claims


SHARING = LearningFigure(
    name="sharing",
    base_specs=[_sharing_spec(task, sharing) for sharing in SHARINGS for task in TASKS],
    folders=("sharing",),
    draw=_draw_sharing,
    claims=_claim_sharing,
)
