"""What a run has learned, in one sentence, and what to do next: from its scores and from the course of its training."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from riffle.quantities import format_percent
from riffle.tasks import get_task
from riffle.train.evaluate import Score, by_length, right_up_to
from riffle.train.run import Run, read_metrics


def training_scores(run: Run) -> list[Score]:
    """The scores of uniform examples at the evaluation of the kept weights in training, if there was one."""
    line = next((each for each in read_metrics(run.folder)[::-1] if each["step"] == run.weights_step()), {})
    names = [(length, f"accuracy/sequences/{length}") for length in run.config.train.evaluate_lengths]
    return [
        Score(length, "uniform", 0, line[f"accuracy/{length}"], line[name]) for length, name in names if name in line
    ]


def describe(run: Run, scores: Sequence[Score], program: str = "riffle") -> tuple[str, str]:
    """What a run has learned, in a sentence with numbers, and what to do next with ``program``."""
    task, longest = get_task(run.config.task), run.config.data.longest_input
    asked, right = by_length(task, scores), right_up_to(task, scores)
    solve = f"{program} solve {run.config.task} {' '.join(task.example)} --run {run.folder}"
    if right is None:
        return "No test says yet what it has learned.", f"{program} eval {run.folder}"
    trained = [length for length in asked if length <= longest] or list(asked)[:1]
    if right < trained[-1]:
        worst = min((asked[length] for length in trained), key=lambda score: score.sequence_accuracy)
        symbols, sequences = format_percent(worst.symbol_accuracy), format_percent(worst.sequence_accuracy)
        said = f"Not learned: {symbols} of the symbols and {sequences} of the whole sequences are right at length"
        return f"{said} {worst.length}.", _remedy(run)
    further = [length for length in asked if length > right]
    if further:
        percent = format_percent(asked[further[0]].sequence_accuracy)
        said = f"Learned, right up to length {right}, but it does not carry to longer inputs"
        return f"{said}: {percent} of the whole sequences are right at length {further[0]}.", solve
    return f"Learned: at least 99% of the whole sequences are right at every tested length up to {right}.", solve


def _remedy(run: Run) -> str:
    """What may help a run that has not learned its task: more steps if it was still learning, else a larger network."""
    model, errors = run.config.model, [1 - line["accuracy"] for line in read_metrics(run.folder) if "loss" in line]
    last = len(errors) // 4
    steps = f"more steps (--steps {2 * run.config.train.steps})"
    blocks = f"more blocks (--set model.blocks={model.blocks + 1}) or " if hasattr(model, "blocks") else ""
    larger = f"{blocks}more maps (--features {2 * model.features})"
    if not last:
        return f"train with {steps}, {larger}"
    before, after = mean(errors[-2 * last : -last]), mean(errors[-last:])
    if after < 0.9 * before:
        return f"train with {steps}: the training error still fell at the end"
    return f"train with {larger}: the training error no longer fell at the end"
