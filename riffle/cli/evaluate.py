"""``riffle eval``: accuracy over length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from riffle.cli.display import (
    Device,
    Json,
    Precision,
    choose_device,
    errors,
    have,
    output,
    print_json,
    print_outcome,
    program,
    progress_bar,
    titled_table,
)
from riffle.quantities import format_percent, format_wait, whole_number

if TYPE_CHECKING:
    from riffle.tasks import Task
    from riffle.train.evaluate import Score
    from riffle.train.run import Run


NOTE_SECONDS, MAX_SECONDS = 600.0, 86_400.0
"""An evaluation that seems to take longer begins with a note, or is refused."""
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run, as riffle train made it.", metavar="RUN")]


def evaluate(
    run: RunFolder,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Input lengths, separated by commas.", show_default="8 to 4096, at and between powers of two"
        ),
    ] = None,
    examples: Annotated[int, typer.Option(help="Examples for each length and split.", min=1)] = 256,
    worst_case: Annotated[
        bool, typer.Option(help="Also score the task's worst cases, such as the longest carry.")
    ] = True,
    structured: Annotated[
        bool,
        typer.Option(
            "--families",
            help="Also score families of structured inputs, and worst cases, at 1, 8 and 64 x the trained length.",
        ),
    ] = False,
    filled: Annotated[
        bool,
        typer.Option("--filled", help="Fill inputs up first, as riffle solve does: leading zeros for sums."),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Where to save the plot.", show_default="RUN/accuracy.png")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Run even if the estimate is over a day.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    json: Json = False,
) -> None:
    """Score a run on fresh examples of many lengths: a table, a plot and RUN/evaluation.json.

    Symbols: the share of right symbols where target or output is not blank, the paper's metric. Sequences: the share
    of outputs without a wrong symbol. No input is tested twice. Up to the trained length, uniform inputs are held out
    from training if they have 12 symbols or more, and none has chosen the weights. Structured inputs are held out as
    far as there are any; a small family is tested as a whole, and the table says how many training never drew.
    Between: the least accurate of the lengths between a power of two and its half.
    """
    from dataclasses import asdict
    from functools import partial

    import torch

    from riffle.environment import environment
    from riffle.files import check_writable, write_json
    from riffle.tasks.families import LIKE_TRAINING
    from riffle.train.evaluate import FACTORS, estimate_seconds, with_between
    from riffle.train.evaluate import evaluate as score
    from riffle.train.objective import in_precision
    from riffle.train.outcome import describe
    from riffle.train.run import Run

    trained = Run(run)
    numbers = run / "evaluation.json"
    check_writable(numbers)
    if picture := (plot or run / "accuracy.png") if have("matplotlib", "plot") else None:
        from riffle.plots import check_figures

        check_figures(picture)
    task, longest = task_of(trained), trained.config.data.longest_input
    powers = [2**k for k in range(3, 13)]
    default = sorted({n for power in powers for n in with_between(power)})
    sizes = default if lengths is None else parse_lengths(lengths)
    factors = [longest * factor for factor in FACTORS]
    cases = sorted({*(powers if lengths is None else sizes), *(factors if structured else ())})
    work = {"uniform": sizes}
    work |= dict.fromkeys(task.splits, cases) if worst_case else {}
    work |= dict.fromkeys(task.families(), factors) if structured else {}
    device = choose_device(device)
    model = trained.model(device)
    every = [length for tested in work.values() for length in tested]
    scores: list[Score] = []
    with in_precision(precision, torch.device(device)) as used, progress_bar(counted=False) as bar:
        if not force:
            _announce_wait(estimate_seconds(model, every, examples))
        job = bar.add_task(f"evaluating {task.name}", total=sum(every) * examples)
        for split, tested in work.items():
            scores += score(
                model,
                task,
                tested,
                splits=[split],
                examples=examples,
                trained_length=longest,
                seed=seed,
                fill=trained.padded if filled else None,
                on_progress=partial(bar.advance, job),
            )
    like = sorted(LIKE_TRAINING & work.keys()) if trained.config.data.structure else []
    result = {
        "task": task.name,
        "run": str(run),
        "step": trained.saved_step(),
        "trained_length": longest,
        "precision": used,
        "like_training": like,
        "scores": [asdict(each) for each in scores],
        "environment": environment(torch.device(device)),
    }
    write_json(numbers, result)
    title = f"{task.name}, trained on length ≤ {longest}"
    if picture:
        _plot_scores(picture, title, [each for each in scores if each.split not in task.families()], longest)
    if json:
        return print_json(result)
    output.print(_length_table(title, [each for each in scores if each.split == "uniform"], longest))
    if worst_case and task.splits and not structured:
        output.print(_worst_table([each for each in scores if each.split in task.splits]))
    if structured:
        shown = [each for each in scores if each.split != "uniform" and each.length in factors]
        output.print(_structured_table(shown, like))
    drawn = f"plot: {picture}   " if picture else ""
    errors.print(f"{drawn}numbers: {numbers}", markup=False, soft_wrap=True)
    print_outcome(*describe(trained, scores, program()), f"look inside: {program()} inspect {run}")


def _announce_wait(seconds: float) -> None:
    """Say how long an evaluation will take; raise if that is absurd."""
    wait = (
        f"this would take about {format_wait(seconds)}, judged by a short length: choose shorter ones or fewer examples"
    )
    if seconds > MAX_SECONDS:
        raise ValueError(f"{wait}, or insist with --force")
    if seconds > NOTE_SECONDS:
        errors.print(f"{wait} to be faster; Ctrl-C ends it", soft_wrap=True, highlight=False)


def task_of(run: Run) -> Task:
    """The task of a run; refuses a run on passages, which has commands of its own."""
    from riffle.config import RUN_CONFIGS
    from riffle.tasks import get_task

    if run.config.task in RUN_CONFIGS:
        command = "write" if run.config.task == "text" else f"{run.config.task} eval"
        raise ValueError(f"{run.folder} was not trained on examples of a task: use riffle {command} --run {run.folder}")
    return get_task(run.config.task)


def parse_lengths(text: str) -> list[int]:
    """The lengths in an option ``--lengths``."""
    lengths = [length for part in text.split(",") if (length := whole_number(part.strip())) is not None]
    if len(lengths) <= text.count(","):
        raise ValueError(f"--lengths takes whole numbers separated by commas, got {text!r}")
    if min(lengths) < 1:
        raise ValueError(f"--lengths must be at least 1, got {min(lengths)}")
    return lengths


def _length_table(title: str, scores: Sequence[Score], trained_length: int) -> Table:
    """Accuracy per length; where lengths between a power of two and its half were tested, their least beside it."""
    from riffle.train.evaluate import least_accurate, tested_between

    beside = {score.length: tested_between(scores, score.length) for score in scores}
    heads = ("between: symbols", "sequences") if any(beside.values()) else ()
    table = titled_table(title, "length", "x trained", "symbols right", "sequences right", *heads)
    shown_beside = {score.length for group in beside.values() for score in group}
    for score in scores:
        if score.length not in shown_beside:
            group = beside[score.length]
            least = _percents(least_accurate(group)) if group else [""] * len(heads)
            table.add_row(str(score.length), f"{score.length / trained_length:g}", *_percents(score), *least)
    return table


def _worst_table(scores: Sequence[Score]) -> Table:
    """Accuracy of worst cases, a row for every length."""
    table = titled_table("worst cases: symbols / sequences right", "length", *dict.fromkeys(s.split for s in scores))
    for length in dict.fromkeys(score.length for score in scores):
        table.add_row(str(length), *(" / ".join(_percents(score)) for score in scores if score.length == length))
    return table


def _structured_table(scores: Sequence[Score], like: Sequence[str]) -> Table:
    """Accuracy of worst cases and families, a row for every one with its inputs, and one for the least accurate."""
    from riffle.train.evaluate import least_accurate

    lengths = list(dict.fromkeys(score.length for score in scores))
    title = "structured inputs: symbols / sequences right"
    table = titled_table(title, "", "distinct inputs", "held out", *map(str, lengths))
    for kind in dict.fromkeys(score.split for score in scores):
        own = [score for score in scores if score.split == kind]
        cells = (" / ".join(_percents(score)) for score in own)
        table.add_row(f"* {kind}" if kind in like else kind, str(own[0].examples), str(own[0].held_out), *cells)
    worst = [least_accurate([score for score in scores if score.length == length]) for length in lengths]
    table.add_row("the worst", "", "", *(score.split for score in worst))
    table.caption = f"inputs and those that training never drew: at {lengths[0]}; longer ones are held out"
    table.caption += "; * training makes inputs of this kind" if like else ""
    return table


def _percents(score: Score) -> list[str]:
    return [format_percent(score.symbol_accuracy), format_percent(score.sequence_accuracy)]


def _plot_scores(path: Path, title: str, scores: Sequence[Score], trained_length: int) -> None:
    """Draw accuracy over length, with the trained lengths shaded."""
    from riffle.plots import PALETTE, new_figure, save_figure, style, style_axes

    lengths = sorted({score.length for score in scores})
    with style():
        figure = new_figure(8, 4.5)
        axes = figure.add_subplot()
        axes.axvspan(min(lengths) / 2**0.5, trained_length * 2**0.25, color="0.93", zorder=0)
        axes.text(min(lengths) / 2**0.4, 0.02, "trained", color="0.4", fontsize=9)
        for index, split in enumerate(dict.fromkeys(score.split for score in scores)):
            of_split = sorted((score for score in scores if score.split == split), key=lambda score: score.length)
            xs, symbols = [score.length for score in of_split], [score.symbol_accuracy for score in of_split]
            if split == "uniform":
                sequences = [score.sequence_accuracy for score in of_split]
                axes.plot(xs, symbols, "o-", color=PALETTE[0], markersize=4, zorder=4, label="symbols right")
                axes.plot(xs, sequences, "o--", color=PALETTE[0], markersize=3, zorder=3, label="whole sequences right")
            else:
                colour = PALETTE[(index + 1) % len(PALETTE)]
                axes.plot(xs, symbols, "x:", color=colour, markersize=4, label=f"symbols, {split}")
        axes.set_xscale("log", base=2)
        ticks = [length for length in lengths if length & (length - 1) == 0] or lengths
        axes.set_xticks(ticks, [str(length) for length in ticks])
        axes.minorticks_off()
        axes.set(xlim=(min(lengths) / 2**0.5, max(lengths) * 2**0.5), ylim=(-0.02, 1.03))
        axes.set(xlabel="length of the input", ylabel="accuracy", title=title)
        style_axes(axes)
        axes.legend(fontsize=9, loc="best")
        save_figure(figure, path)
