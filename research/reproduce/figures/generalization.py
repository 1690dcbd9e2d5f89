"""Networks trained on lengths up to 64, beside the Neural GPU, over lengths and over training; products at 128."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from research.recipes import long
from research.reproduce import paper
from research.reproduce.charts import Line, Panel, lines_figure, title
from research.reproduce.figure import LearningFigure
from research.reproduce.paper import LENGTHS, NEURAL_GPU, OURS, SIMPLE
from research.reproduce.results import Point, Result, accuracies, accuracies_by, by_group, over_length, over_steps
from research.reproduce.specs import PAPER_LENGTHS, EvaluationSpec, RunSpec, accuracy_at, with_model_fields, with_train
from research.reproduce.verdicts import Claim, Wanted
from riffle.config import DataConfig
from riffle.recipes import RECIPES as BY_NAME
from riffle.recipes import with_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = (*SIMPLE, "multiply")
HISTORIC = ("paper", "released", "preprint")
"""The recipes that may have made the paper's curves with the paper's network."""
PREPRINT = "preprint"
"""The network of the preprint's code, by its ``model.kind``: it may have made them, too."""
NEURAL_GPU_WIDTHS = (48, 96)
"""Feature maps of the Neural GPU: its authors' for addition, and those of the paper's timing."""
CLAIMED_LENGTHS = (64, 512, 4096)
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
    config = with_train(BY_NAME[recipe](task), precision="fp32", evaluate_every=250)
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


def _group(results: Sequence[Result], task: str, curve: str) -> list[Result]:
    """The runs that stand for a curve of the paper: of its network by the recipe ``paper``, of its Neural GPU."""
    named = {OURS: f"{task}, {OURS}, paper", NEURAL_GPU: f"{task}, {NEURAL_GPU}, {NEURAL_GPU_WIDTHS[1]} maps"}
    return by_group(results).get(named[curve], [])


def _paper(task: str, kind: str = OURS) -> dict[str, Any]:
    """A curve of the paper, as a line has it."""
    read = [Point(length, y, y, y) for length, y in paper.GENERALIZATION[kind][task].items()]
    return {"points": read, "paper": True}


def _ours(runs: Sequence[Result]) -> list[Point]:
    """Accuracy at the paper's lengths."""
    return [point for point in over_length(runs) if point.x in LENGTHS]


def _draw_generalization(results: Sequence[Result]) -> Figure:
    """A panel for each network, as in the paper, with a curve for each task."""
    panels = []
    for kind, name in ((OURS, "Shuffle-Exchange"), (NEURAL_GPU, "Neural GPU (DNGPU)")):
        lines = []
        for colour, task in enumerate(TASKS):
            lines.append(Line(task, _ours(_group(results, task, kind)), colour))
            lines.append(Line(f"{task}, paper", **_paper(task, kind)))
        panels.append(Panel(name, lines, low=0.25))
    return lines_figure(title("symbols right over length, trained on lengths to 64", results), panels, height=4)


def _claim_generalization(results: Sequence[Result]) -> list[Claim]:
    """The paper's curves, and what it says of one network beside the other."""
    claims = []
    for kind, name in ((OURS, ""), (NEURAL_GPU, ", Neural GPU")):
        for task in TASKS:
            for length in CLAIMED_LENGTHS:
                values = accuracies(_group(results, task, kind), length)
                read = paper.GENERALIZATION[kind][task][length]
                claims.append(Claim(f"{task}{name} at {length}", values, read, "reached" if kind == OURS else "equal"))
    for task in TASKS[:-1]:
        ours, theirs = (accuracies(_group(results, task, kind), 4096) for kind in (OURS, NEURAL_GPU))
        wanted: Wanted = "equal" if task in MOVES else "higher"
        claims.append(Claim(f"{task} at 4096, beside the Neural GPU", ours, theirs, wanted))
    return claims


GENERALIZATION = LearningFigure(
    name="generalization",
    networks=lambda: [
        *(shuffle_exchange_spec(task) for task in TASKS),
        *(_neural_gpu_spec(task, features) for features in NEURAL_GPU_WIDTHS for task in TASKS),
    ],
    folders=(),
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
    """One panel as in the paper, a curve for each task, and one of the first steps."""
    panels = []
    for heading, suffix, last in (("the first 800 steps", f", {FIRST_STEPS}", 800), ("all steps", "", 40_000)):
        lines = []
        for colour, task in enumerate(SIMPLE):
            runs = by_group(results).get(f"{task}, {OURS}, paper{suffix}", [])
            lines.append(Line(task, over_steps(runs, CONVERGENCE_LENGTH), colour))
        for task, level, step in paper.CONVERGED_BY:
            if (step <= 800) == (last == 800):
                lines.append(Line(f"{task}, paper", [Point(step, level, level, level)], paper=True))
        panels.append(Panel(heading, lines, x="step", low=0.5, last=last))
    what = f"symbols right at length {CONVERGENCE_LENGTH}, trained on lengths to 64"
    return lines_figure(title(what, results), panels)


def _claim_convergence(results: Sequence[Result]) -> list[Claim]:
    """The level that the paper names and the step by which it has reached it."""
    claims, groups = [], by_group(results)
    for task, level, step in paper.CONVERGED_BY:
        runs = groups.get(f"{task}, {OURS}, paper" + (f", {FIRST_STEPS}" if step <= 800 else ""), [])
        when = f"after {step:,} steps" if step < 40_000 else "in the end"
        values = accuracies_by(runs, step, CONVERGENCE_LENGTH)
        claims.append(Claim(f"{task} at {CONVERGENCE_LENGTH} {when}", values, level, "reached"))
    return claims


CONVERGENCE = LearningFigure(
    name="convergence",
    networks=lambda: [
        *(shuffle_exchange_spec(task) for task in SIMPLE),
        *(_first_steps_spec(shuffle_exchange_spec(task)) for task in SIMPLE),
    ],
    folders=("convergence",),
    draw=_draw_convergence,
    claims=_claim_convergence,
    runs=GENERALIZATION.runs,
)


def _by_recipe(results: Sequence[Result], task: str) -> dict[str, list[Result]]:
    """The runs of a task by recipe, the preprint's network last."""
    groups = by_group(
        run for run in results if run["group"].startswith(f"{task}, ") and FIRST_STEPS not in run["group"]
    )
    return {name.removeprefix(f"{task}, ").removeprefix(f"{OURS}, "): runs for name, runs in groups.items()}


def _draw_recipes(results: Sequence[Result]) -> Figure:
    """A panel for each task, a curve for each recipe."""
    panels = []
    for task in SIMPLE:
        recipes = enumerate(_by_recipe(results, task).items())
        lines = [Line(name, _ours(runs), colour) for colour, (name, runs) in recipes]
        panels.append(Panel(task, [Line("paper's curve", **_paper(task)), *lines], low=0.5))
    return lines_figure(title("symbols right over length by recipe, trained on lengths to 64", results), panels)


def _claim_recipes(results: Sequence[Result]) -> list[Claim]:
    return [
        Claim(
            f"{task}, {name} at {length}", accuracies(runs, length), paper.GENERALIZATION[OURS][task][length], "reached"
        )
        for task in TASKS
        for name, runs in _by_recipe(results, task).items()
        if name != "paper"
        for length in (512, 4096)
    ]


RECIPES = LearningFigure(
    name="recipes",
    networks=lambda: [
        *(shuffle_exchange_spec(task, recipe) for recipe in HISTORIC for task in TASKS),
        *(shuffle_exchange_spec(task, "long") for task in SIMPLE),
        *(_preprint_spec(task) for task in SIMPLE),
        *(_first_steps_spec(shuffle_exchange_spec(task, recipe)) for recipe in HISTORIC[1:] for task in MOVES),
        *(_first_steps_spec(_preprint_spec(task)) for task in MOVES),
    ],
    folders=(),
    draw=_draw_recipes,
    claims=_claim_recipes,
    runs=GENERALIZATION.runs,
)


def _draw_multiplication(results: Sequence[Result]) -> Figure:
    lines = [Line(f"seed {run['seed']}", over_steps([run]), colour) for colour, run in enumerate(results)]
    lines.append(Line("paper", [Point(50_000, *[paper.MULTIPLICATION] * 3)], paper=True))
    panel = Panel(f"accuracy at length {PRODUCT_LENGTH}", lines, x="step", low=0.5, last=52_000)
    return lines_figure(title("products, 384 maps, two blocks, by Muon", results), [panel])


def _claim_multiplication(results: Sequence[Result]) -> list[Claim]:
    values = accuracies(results, PRODUCT_LENGTH)
    return [Claim(f"products at {PRODUCT_LENGTH}, by Muon", values, paper.MULTIPLICATION, "reached")]


def _products() -> list[RunSpec]:
    config, measure = with_train(long("multiply"), precision="fp32"), accuracy_at(EvaluationSpec(TESTED, 1024))
    return [RunSpec(folder="multiplication", group="multiply", config=config, measure=measure)]


TESTED = (8, 16, 32, 64, 128, 256)
MULTIPLICATION = LearningFigure(
    name="multiplication",
    networks=_products,
    folders=("multiplication",),
    draw=_draw_multiplication,
    claims=_claim_multiplication,
    runs=3,
)
