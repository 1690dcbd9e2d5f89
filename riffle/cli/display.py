"""What the commands print and draw: tables, progress bars, plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from riffle.quantities import format_percent

if TYPE_CHECKING:
    from riffle.reproduce.claims import Claim
    from riffle.train.evaluate import Score


output = Console()
"""Results, on standard output."""
errors = Console(stderr=True)
"""Progress bars, notes and errors, on standard error, where they do not disturb ``--json``."""
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of for people.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes a GPU where there is one.")]


def print_json(value: object) -> None:
    """Print a result for programs."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def choose_device(name: str) -> str:
    """The device a name stands for; refuses one that is not there."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: use cpu, cuda, cuda:0 or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but torch sees no GPU here: use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r} was asked for, but torch sees {torch.cuda.device_count()} GPUs here")
    return name


def progress_bar(*columns: TextColumn) -> Progress:
    """A progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        *columns,
        TimeRemainingColumn(),
        console=errors,
        expand=True,
    )


def print_claims(claims: Sequence[Claim]) -> None:
    """Print what of the paper's claims holds, and why."""
    colours = {True: "green", False: "red", None: "yellow"}
    for claim in claims:
        verdict = f"[{colours[claim.holds]}]{claim.verdict}[/]"
        output.print(f"{verdict}: {escape(claim.statement)}: {escape(claim.evidence)}", highlight=False, soft_wrap=True)


def score_table(title: str, scores: Sequence[Score], trained_length: int) -> Table:
    """Accuracy per length for uniform examples: symbols and whole sequences."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in ("length", "x trained", "symbols right", "sequences right"):
        table.add_column(column, justify="right")
    for score in scores:
        accuracy = (format_percent(score.symbol_accuracy), format_percent(score.sequence_accuracy))
        table.add_row(str(score.length), f"{score.length / trained_length:g}", *accuracy)
    return table


def worst_case_table(scores: Sequence[Score]) -> Table:
    """Accuracy per length for every worst case of a task, symbols above whole sequences."""
    splits = list(dict.fromkeys(score.split for score in scores))
    table = Table(title="worst cases: symbols / sequences right", title_justify="left", header_style="bold")
    table.add_column("length", justify="right")
    for split in splits:
        table.add_column(split, justify="right")
    for length in dict.fromkeys(score.length for score in scores):
        row = [next(s for s in scores if s.length == length and s.split == split) for split in splits]
        table.add_row(
            str(length), *(f"{format_percent(s.symbol_accuracy)} / {format_percent(s.sequence_accuracy)}" for s in row)
        )
    return table


def plot_scores(path: Path, title: str, scores: Sequence[Score], trained_length: int) -> None:
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
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set(xlim=(min(lengths) / 2**0.5, max(lengths) * 2**0.5), ylim=(-0.02, 1.03))
        axes.set(xlabel="length of the input", ylabel="accuracy", title=title)
        style_axes(axes)
        axes.legend(fontsize=9, loc="best")
        save_figure(figure, path)
