"""Networks trained on lengths up to 64, beside the Neural GPU, over lengths and over training; products at 128."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from research.recipes import long
from research.reproduce import paper
from research.reproduce.charts import Line, lines_figure, title
from research.reproduce.claims import SIMPLE, Claim, at_least_as_good, reaches
from research.reproduce.figure import LearningFigure
from research.reproduce.paper import NEURAL_GPU, OURS
from research.reproduce.results import (
    Point,
    Result,
    accuracies,
    accuracies_by,
    by_group,
    over_length,
    over_steps,
    select,
)
from research.reproduce.specs import PAPER_LENGTHS, EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train
from riffle.config import DataConfig
from riffle.recipes import RECIPES, with_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = (*SIMPLE, "multiply")
HISTORIC = ("paper", "released", "preprint")
"""The recipes that may have made the paper's curves with the paper's network."""
PREPRINT = "preprint"
"""The network of the preprint's code, by its ``model.kind``: it may have made them, too."""
CURVES = {OURS: (OURS, PREPRINT), NEURAL_GPU: (NEURAL_GPU,)}
"""The networks that may have made each of the paper's curves."""
NEURAL_GPU_WIDTHS = (48, 96)
"""Feature maps of the Neural GPU: its authors' for addition, and those of the paper's timing."""
CLAIMED_LENGTHS = (64, 512, 1024, 4096)
BETTER_THAN_NEURAL_GPU = ("add", "sort")
"""Tasks on which the paper's network generalises further than the Neural GPU."""
CONVERGENCE_LENGTH = 512
LOGGED_LENGTHS = (CONVERGENCE_LENGTH, 1024, 4096)
"""Lengths at which training is followed."""
MOVES = ("duplicate", "reverse")
"""Tasks that the paper's network learns within 700 steps."""
FIRST_STEPS = "first steps"
"""Groups of runs that end early and are evaluated often, for what the paper says is learned within 700 steps."""
PRODUCT_LENGTH = 128
FEWER_PRODUCTS = (EvaluationSpec((8, 16, 32, 64, 128, 256, 512), 1024), EvaluationSpec((1024, 2048, 4096), 128))
"""The paper's lengths for products: networks twice as wide and as deep, which are near chance from 512 on."""


def shuffle_exchange_spec(task: str, recipe: str = "paper") -> RunSpec:
    """This network on a task, evaluated during training; by a historic recipe at the paper's lengths only."""
    # Duplicating and reversing are learned within a few hundred steps, which the figure of convergence shows.
    config = with_train(RECIPES[recipe](task), precision="fp32", evaluate_every=250)
    tests = list(FEWER_PRODUCTS) if task == "multiply" else [PAPER_LENGTHS]
    if recipe in HISTORIC:
        config = with_train(config, steps=40_000, evaluate_lengths=LOGGED_LENGTHS)
    else:
        tests.append(EvaluationSpec((8192, 16384, 32768, 65536), 64))
    return RunSpec(
        folder="generalization",
        group=f"{task}, {OURS}, {recipe}",
        config=replace(config, data=replace(config.data, bins=DataConfig().bins)),  # up to 64, products too
        measure=accuracy_at(*tests),
    )


def _preprint_spec(task: str) -> RunSpec:
    """The network of the preprint's code, with the training of that time."""
    spec = shuffle_exchange_spec(task, "preprint")
    return replace(spec, group=f"{task}, {PREPRINT} network", config=with_model(spec.config, PREPRINT))


def _neural_gpu_spec(task: str, features: int) -> RunSpec:
    """The Neural GPU as its authors trained it, evaluated less, since its time grows with the square of the length."""
    config = with_model(shuffle_exchange_spec(task).config, NEURAL_GPU)
    config = with_train(config, steps=20_000, evaluate_every=4000, evaluate_lengths=(64,))
    dropout = 0.5 if (task, features) == ("add", 48) else 0.1  # as its authors have it
    config = with_model_fields(config, features=features, dropout=dropout)
    config = replace(config, data=replace(config.data, batch=32))  # likewise
    short = EvaluationSpec((8, 16, 32, 64, 128, 256, 512), 256)
    measure = accuracy_at(short, EvaluationSpec((1024,), 64), EvaluationSpec((2048,), 32), EvaluationSpec((4096,), 16))
    group = f"{task}, {NEURAL_GPU}, {features} maps"
    return RunSpec(folder="rivals", group=group, config=config, measure=measure, runs=3)


def _groups(results: Sequence[Result], task: str, curve: str) -> list[tuple[str, list[Result]]]:
    """The runs of the networks that may have made a curve, by group."""
    runs = [run for kind in CURVES[curve] for run in select(results, task, kind=kind)]
    return list(by_group(runs).items())


def _draw_generalization(results: Sequence[Result]) -> Figure:
    """A panel for each task, with the paper's curves."""
    panels: dict[str, list[Line]] = {}
    for task in TASKS:
        panels[task] = []
        for colour, kind in ((0, OURS), (5, NEURAL_GPU)):
            for index, (group, runs) in enumerate(_groups(results, task, kind)):
                panels[task].append(Line(group.removeprefix(f"{task}, "), over_length(runs), colour=colour + index))
            curve = [Point(x, y, y, y) for x, y in paper.GENERALIZATION[kind][task].items()]
            panels[task].append(Line(f"the paper, {kind}", curve, colour=colour, dotted=True))
    return lines_figure(title("accuracy over length, trained on lengths to 64", results), panels, lengths=True)


def _claim_generalization(results: Sequence[Result]) -> list[Claim]:
    """The paper's curves, and the tasks on which it generalises further than the Neural GPU."""
    claims = []
    for kind in (OURS, NEURAL_GPU):
        for task in TASKS:
            for group, runs in _groups(results, task, kind) or [(f"{task}, {kind}", [])]:
                for length in CLAIMED_LENGTHS:
                    target = paper.GENERALIZATION[kind][task][length]
                    claims.append(reaches(f"{group}: symbols right at {length}", target, accuracies(runs, length)))
    for task in BETTER_THAN_NEURAL_GPU:
        for group, runs in _groups(results, task, OURS):
            for baseline, baseline_runs in _groups(results, task, NEURAL_GPU):
                statement = f"{group} is right more often than {baseline} at 4096"
                claims.append(at_least_as_good(statement, accuracies(runs, 4096), accuracies(baseline_runs, 4096)))
    return claims


GENERALIZATION = LearningFigure(
    name="generalization",
    networks=lambda: [
        *(shuffle_exchange_spec(task, recipe) for recipe in HISTORIC for task in TASKS),
        *(shuffle_exchange_spec(task, "long") for task in SIMPLE),
        *(_preprint_spec(task) for task in SIMPLE),
        *(_neural_gpu_spec(task, features) for features in NEURAL_GPU_WIDTHS for task in TASKS),
    ],
    folders=("generalization", "rivals"),
    draw=_draw_generalization,
    claims=_claim_generalization,
    runs=5,
)


def _first_steps_spec(spec: RunSpec) -> RunSpec:
    """The first steps of a historic run, evaluated often."""
    # A linear schedule would end with these steps; that of the whole run falls by 2% in them.
    schedule = "constant" if spec.config.train.schedule == "linear" else spec.config.train.schedule
    lengths = (CONVERGENCE_LENGTH,)
    config = with_train(spec.config, steps=800, schedule=schedule, evaluate_every=50, evaluate_lengths=lengths)
    measure = accuracy_at(EvaluationSpec(lengths, 1024))
    return replace(spec, folder="convergence", group=f"{spec.group}, {FIRST_STEPS}", config=config, measure=measure)


def _draw_convergence(results: Sequence[Result]) -> Figure:
    """A panel for each task, over steps on a logarithmic axis; the cross is the paper's final accuracy."""
    panels: dict[str, list[Line]] = {}
    for task in SIMPLE:
        groups = dict(_groups(results, task, OURS))
        panels[task] = []
        for colour, group in enumerate(group for group in groups if not group.endswith(FIRST_STEPS)):
            over_training = over_steps(groups[group], CONVERGENCE_LENGTH)
            panels[task].append(Line(group.removeprefix(f"{task}, "), over_training, _converged(task), colour))
            first_steps = over_steps(groups.get(f"{group}, {FIRST_STEPS}", []), CONVERGENCE_LENGTH)
            panels[task].append(Line("_", first_steps, colour=colour))  # the underscore keeps it out of the legend
    what = f"accuracy at length {CONVERGENCE_LENGTH}, trained on lengths to 64 (cross: the paper in the end)"
    figure = lines_figure(title(what, results), panels)
    for axes in figure.axes:
        axes.set_xscale("log")
    return figure


def _claim_convergence(results: Sequence[Result]) -> list[Claim]:
    """The final accuracy, and that by which the paper has converged."""
    claims = []
    for task in SIMPLE:
        groups = dict(_groups(results, task, OURS)) or {task: []}
        for group, runs in groups.items():
            if group.endswith(FIRST_STEPS):
                continue
            statement = f"{group}: symbols right at {CONVERGENCE_LENGTH}"
            claims.append(reaches(statement, _converged(task), accuracies(runs, CONVERGENCE_LENGTH)))
            if task in paper.CONVERGED_BY:
                level, step = paper.CONVERGED_BY[task]
                early = accuracies_by(groups.get(f"{group}, {FIRST_STEPS}", runs), step, CONVERGENCE_LENGTH)
                claims.append(reaches(f"{statement} after {step:,} steps", level, early))
    return claims


def _converged(task: str) -> float:
    """The paper's accuracy, the same number as in the figure of generalisation."""
    return paper.GENERALIZATION[OURS][task][CONVERGENCE_LENGTH]


CONVERGENCE = LearningFigure(
    name="convergence",
    networks=lambda: [
        *(shuffle_exchange_spec(task, recipe) for recipe in (*HISTORIC, "long") for task in SIMPLE),
        *(_preprint_spec(task) for task in SIMPLE),
        *(_first_steps_spec(shuffle_exchange_spec(task)) for task in SIMPLE if task not in MOVES),
        *(_first_steps_spec(shuffle_exchange_spec(task, recipe)) for recipe in HISTORIC for task in MOVES),
        *(_first_steps_spec(_preprint_spec(task)) for task in MOVES),
    ],
    folders=("generalization", "convergence"),
    draw=_draw_convergence,
    claims=_claim_convergence,
    runs=GENERALIZATION.runs,
)


def _draw_multiplication(results: Sequence[Result]) -> Figure:
    lines = [
        Line(result["run"], over_steps([result]), paper.MULTIPLICATION, colour) for colour, result in enumerate(results)
    ]
    return lines_figure(title("multiplication", results), {f"accuracy at length {PRODUCT_LENGTH}": lines})


def _claim_multiplication(results: Sequence[Result]) -> list[Claim]:
    statement = f"multiply: symbols right at {PRODUCT_LENGTH}, best run"
    return [reaches(statement, paper.MULTIPLICATION, accuracies(results, PRODUCT_LENGTH), best=True)]


MEASURE = accuracy_at(EvaluationSpec((8, 16, 32, 64, 128, 256), 1024))
MULTIPLICATION = LearningFigure(
    name="multiplication",
    networks=lambda: [
        RunSpec(
            folder="multiplication",
            group="multiply",
            config=with_train(long("multiply"), precision="fp32"),
            measure=MEASURE,
        )
    ],
    folders=("multiplication",),
    draw=_draw_multiplication,
    claims=_claim_multiplication,
    runs=3,
)
