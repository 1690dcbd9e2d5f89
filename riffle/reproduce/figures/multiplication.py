"""Multiplication: at length 128 as in the paper, and at 32 by the number of Beneš blocks and of feature maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from riffle.recipes import long
from riffle.reproduce import paper
from riffle.reproduce.charts import Line, lines_figure, title
from riffle.reproduce.claims import Claim, at_least_as_good, reaches
from riffle.reproduce.figure import LearningFigure
from riffle.reproduce.results import Result, accuracies, over_steps, select
from riffle.reproduce.specs import EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LENGTH = 128
COMPARED_LENGTH = 32
"""The longest trained length of comparisons: many networks can be trained in the time of one at 128."""
LEARNING_RATE = 0.005
"""Of comparisons."""


def _draw_multiplication(results: Sequence[Result]) -> Figure:
    lines = [
        Line(result["run"], over_steps([result]), paper.MULTIPLICATION, colour) for colour, result in enumerate(results)
    ]
    return lines_figure(title("multiplication", results), {f"accuracy at length {LENGTH}": lines})


def _claim_multiplication(results: Sequence[Result]) -> list[Claim]:
    statement = f"multiply: symbols right at {LENGTH}, best run"
    return [reaches(statement, paper.MULTIPLICATION, accuracies(results, LENGTH), best=True)]


MULTIPLICATION = LearningFigure(
    name="multiplication",
    base_specs=[
        RunSpec(
            folder="multiplication",
            group="multiply",
            config=long("multiply"),
            measure=accuracy_at(EvaluationSpec((8, 16, 32, 64, 128, 256), 1024)),
        )
    ],
    folders=("multiplication",),
    draw=_draw_multiplication,
    claims=_claim_multiplication,
    runs=3,
)


def compared_spec(
    folder: str = "products", variant: str = "gated, 2 blocks, 192 maps", rate: float = LEARNING_RATE, **model: Any
) -> RunSpec:
    """A network of a comparison: 192 maps and two blocks, with some fields of the model changed."""
    # Adam as in the paper: Muon hides much of what makes one network harder to train than another.
    config = with_train(long("multiply"), steps=10_000, optimizer="adamw", learning_rate=rate)
    config = with_train(config, evaluate_lengths=(COMPARED_LENGTH,))
    config = replace(config, data=replace(config.data, bins=(8, 16, COMPARED_LENGTH)))
    config = with_model_fields(config, **{"features": 192, **model})
    measure = accuracy_at(EvaluationSpec((8, 16, 32, 64), 1024))
    return RunSpec(folder=folder, group=f"multiply, {variant}", config=config, measure=measure)


def _size_figure(name: str, heading: str, field: str, sizes: Sequence[int], usual: int) -> LearningFigure:
    """A figure of networks by one size, claiming that larger ones are at least as good; the usual one is shared."""

    def draw(results: Sequence[Result]) -> Figure:
        runs = {size: select(results, "multiply", **{field: size}) for size in sizes}
        lines = [Line(f"{size} {name}", over_steps(runs[size]), colour=colour) for colour, size in enumerate(sizes)]
        return lines_figure(title(heading, results), {f"accuracy at length {COMPARED_LENGTH}": lines})

    def claims(results: Sequence[Result]) -> list[Claim]:
        runs = {size: accuracies(select(results, "multiply", **{field: size}), COMPARED_LENGTH) for size in sizes}
        return [
            at_least_as_good(f"multiply: {more} {name} are right as often as {less}", runs[more], runs[less])
            for less, more in pairwise(sizes)
        ]

    others = [compared_spec(name, f"{size} {name}", **{field: size}) for size in sizes if size != usual]
    return LearningFigure(name=name, base_specs=[compared_spec(), *others], folders=(name,), draw=draw, claims=claims)


BLOCKS = _size_figure("blocks", "multiplication by Beneš blocks", "blocks", (1, 2, 3), usual=2)
MAPS = _size_figure("maps", "multiplication by feature maps", "features", (96, 192, 384), usual=192)
