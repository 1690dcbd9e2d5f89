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
    choose_device,
    errors,
    output,
    print_json,
    print_next,
    progress_bar,
    require,
    titled_table,
)
from riffle.quantities import format_percent, format_wait

if TYPE_CHECKING:
    from riffle.train.evaluate import Score


NOTE_SECONDS, MAX_SECONDS = 600.0, 86_400.0
"""An evaluation that seems to take longer begins with a note, or is refused."""
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run, as riffle train made it.", metavar="RUN")]


def evaluate(
    run: RunFolder,
    lengths: Annotated[
        str, typer.Option(help="Input lengths, separated by commas.")
    ] = "8,16,32,64,128,256,512,1024,2048,4096",
    examples: Annotated[int, typer.Option(help="Examples for each length and split.", min=1)] = 256,
    worst_case: Annotated[
        bool, typer.Option(help="Also score the task's worst cases, such as the longest carry.")
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="Where to save the plot.", show_default="RUN/accuracy.png")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Run even if the estimate is over a day or more memory than is free.")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a run on fresh examples of many lengths: a table, a plot and RUN/evaluation.json.

    Symbols: the share of right symbols where target or output is not blank, the paper's metric. Sequences: the share
    of outputs without a wrong symbol. Up to the trained length, the examples are held out from training.
    """
    from dataclasses import asdict
    from functools import partial

    import torch

    from riffle.environment import environment
    from riffle.files import write_json
    from riffle.tasks import get_task
    from riffle.train.evaluate import estimate_seconds, refuse_too_large
    from riffle.train.evaluate import evaluate as score
    from riffle.train.run import Run

    require("matplotlib")
    sizes, trained = parse_lengths(lengths), Run(run)
    task = get_task(trained.config.task)
    splits = ["uniform", *(task.splits if worst_case else ())]
    longest = trained.config.data.longest_input
    device = choose_device(device)
    model = trained.model(device)
    if not force:
        refuse_too_large(model, sizes, examples)
        _announce_wait(len(splits) * estimate_seconds(model, sizes, examples))
    with progress_bar(counted=False) as bar:
        job = bar.add_task(f"evaluating {task.name}", total=sum(sizes) * len(splits) * examples)
        advance = partial(bar.advance, job)
        sampling = {"examples": examples, "trained_length": longest, "seed": seed}
        scores = score(model, task, sizes, splits=splits, on_progress=advance, **sampling)  # type: ignore[arg-type]
    result = {
        "task": task.name,
        "run": str(run),
        "step": trained.saved_step(),
        "trained_length": longest,
        "scores": [asdict(each) for each in scores],
        "environment": environment(torch.device(device)),
    }
    write_json(run / "evaluation.json", result)
    picture = plot or run / "accuracy.png"
    _plot_scores(picture, f"{task.name}: trained on length ≤ {longest}", scores, longest)
    if json:
        return print_json(result)
    for table in _score_tables(f"{task.name}, trained on length ≤ {longest}", scores, longest):
        output.print(table)
    errors.print(f"plot: {picture}   numbers: {run / 'evaluation.json'}", markup=False, soft_wrap=True)
    print_next(f"riffle solve {task.name} --run {run} {' '.join(task.example)}, or look inside: riffle inspect {run}")


def _announce_wait(seconds: float) -> None:
    """Say how long an evaluation will take; raise if that is absurd."""
    wait = (
        f"this would take about {format_wait(seconds)}, judged by a short length: choose shorter ones or fewer examples"
    )
    if seconds > MAX_SECONDS:
        raise ValueError(f"{wait}, or insist with --force")
    if seconds > NOTE_SECONDS:
        errors.print(f"{wait} to be faster; Ctrl-C ends it", soft_wrap=True, highlight=False)


def parse_lengths(text: str) -> list[int]:
    """The lengths in an option ``--lengths``."""
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--lengths takes whole numbers separated by commas, got {text!r}") from None
    if min(lengths) < 1:
        raise ValueError(f"--lengths must be at least 1, got {min(lengths)}")
    return lengths


def _score_tables(title: str, scores: Sequence[Score], trained_length: int) -> list[Table]:
    """Accuracy per length, of symbols and of whole sequences: of uniform examples, and of worst cases."""
    splits = dict.fromkeys(score.split for score in scores if score.split != "uniform")
    uniform = titled_table(title, "length", "x trained", "symbols right", "sequences right")
    worst = titled_table("worst cases: symbols / sequences right", "length", *splits)
    worst_rows: dict[int, list[str]] = {}
    for score in scores:
        symbols, sequences = format_percent(score.symbol_accuracy), format_percent(score.sequence_accuracy)
        if score.split == "uniform":
            uniform.add_row(str(score.length), f"{score.length / trained_length:g}", symbols, sequences)
        else:
            worst_rows.setdefault(score.length, [str(score.length)]).append(f"{symbols} / {sequences}")
    for row in worst_rows.values():
        worst.add_row(*row)
    return [uniform, worst] if splits else [uniform]


def spread_out(lengths: Sequence[int], most: int = 16) -> list[int]:
    """Of rising lengths those whose labels have room on a logarithmic axis.

    >>> spread_out([8, 16, 17, 18, 32, 4096])
    [8, 16, 32, 4096]
    """
    apart = (lengths[-1] / lengths[0]) ** (1 / most)
    kept = [lengths[0]]
    for length in lengths[1:]:
        if length >= kept[-1] * apart:
            kept.append(length)
    return kept


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
                axes.plot(xs, symbols, "o-", color=PALETTE[0], linewidth=2, zorder=4, label="symbols right")
                axes.plot(xs, sequences, "o--", color=PALETTE[0], markersize=4, zorder=3, label="whole sequences right")
            else:
                colour = PALETTE[(index + 1) % len(PALETTE)]
                axes.plot(xs, symbols, "x:", color=colour, markersize=4, label=f"symbols, {split}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(spread_out(lengths), [str(length) for length in spread_out(lengths)])
        axes.minorticks_off()
        axes.set(xlim=(min(lengths) / 2**0.5, max(lengths) * 2**0.5), ylim=(-0.02, 1.03))
        axes.set(xlabel="length of the input", ylabel="accuracy", title=title)
        style_axes(axes)
        axes.legend(fontsize=9, loc="best")
        save_figure(figure, path)
