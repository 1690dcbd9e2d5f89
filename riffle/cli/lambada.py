"""``riffle lambada``: train and use networks that point at the last word of a passage."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from riffle.cli.display import (
    Device,
    Json,
    choose_device,
    errors,
    output,
    print_json,
    program,
    progress_bar,
    titled_table,
)
from riffle.cli.train import TrainMessages, train_run, with_training_options
from riffle.quantities import format_percent

if TYPE_CHECKING:
    from riffle.lambada.evaluate import TrainedReader

RunOption = Annotated[
    Path | None, typer.Option("--run", help="The trained run.", show_default="the shipped one, else the newest in runs")
]
Placements = Annotated[
    int, typer.Option(help="Places among the network's positions to average over; 1 is the middle.", min=1, max=1024)
]


@with_training_options
def train(
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of a prepared corpus.", show_default="data/lambada")
    ] = None,
    **options: Any,
) -> None:
    """Learn from prepared passages and leave a run folder behind.

    The paper's network: two Beneš blocks of 384 maps over 128 positions, for a GPU. A CPU needs a smaller one, such as
    --features 48 --set model.blocks=1 --set data.batch=32 --precision fp32.
    """
    from riffle.recipes import lambada

    messages = TrainMessages(
        command="lambada train",
        metric="passages answered",
        score="{} in {}",
        next_step=lambda run: errors.print(f"Look closer: {program()} lambada eval --run {run.folder}", markup=False),
    )
    train_run(lambada, "lambada", {"data.corpus": corpus}, messages, **options)


def evaluate(
    run: RunOption = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of passages, one a line, the answer last, or a split of the corpus. Can be repeated.",
            show_default="all splits of the corpus that are not trained on",
            metavar="FILE|NAME",
        ),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="The corpus that splits belong to.", show_default="the run's own")
    ] = None,
    placements: Placements = 1,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a run on passages: a table for each split, and RUN/evaluation.json.

    Every passage counts; of one with more tokens than the network has positions, the last ones are read. By position:
    the word at the most likely position is right, the paper's metric. By word: the word that is most likely when its
    occurrences are added up. Rank: the answer's among the run's words, most common first. Distance: how many words
    before the end it was last mentioned.
    """
    from riffle.files import check_writable, write_json
    from riffle.lambada.evaluate import TrainedReader, find_reader, read_splits
    from riffle.train.shipped import SHIPPED

    trained = find_reader(run)
    reader = TrainedReader(trained, choose_device(device))
    splits = read_splits(split or [], corpus or Path(reader.objective.config.data.corpus))
    file = None if trained.folder.resolve().parent == SHIPPED.resolve() else trained.folder / "evaluation.json"
    if file:
        check_writable(file)
    result = evaluate_reader(reader, splits, placements)
    if file:
        write_json(file, result)
    if json:
        return print_json(result)
    for split_name, parts in result["splits"].items():
        title = f"{split_name}: {trained.folder}, step {trained.saved_step()}"
        table = titled_table(title, "", "passages", "right by position", "right by word", left=("",))
        for part, scores in parts.items():
            for label, score in scores.items():
                accuracies = (format_percent(score[by]) for by in ("position", "word"))
                row = label if part == "passages" else f"{part} {label}"
                table.add_row(row, f"{score['passages']:,}", *accuracies)
            table.add_section()
        output.print(table)
    if file:
        errors.print(f"numbers: {file}", markup=False, soft_wrap=True)


def solve(
    passage: Annotated[
        list[str],
        typer.Argument(help="The passage without its last word, in whose place ___ may stand; - reads standard input."),
    ],
    run: RunOption = None,
    top: Annotated[int, typer.Option(help="How many words to show.", min=1)] = 5,
    placements: Placements = 1,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Find the last word of a passage: the most likely words, marked in it, and how likely each is.

    Only words of the passage can be found, so it has to be one whose last word has occurred before.

    riffle lambada solve "Mirra gave Osha the key. At the gate Osha asked for it, and thanked ___"
    """
    from riffle.lambada.evaluate import TrainedReader, candidates, find_reader, read_question

    text = sys.stdin.read() if passage == ["-"] else " ".join(passage)
    tokens = read_question(text)
    trained = find_reader(run)
    reader = TrainedReader(trained, choose_device(device))
    best = candidates(tokens, reader.next_word_probabilities(tokens, placements), top)
    if json:
        return print_json({"run": str(trained.folder), "tokens": tokens, "words": [word._asdict() for word in best]})
    highlighted = Text(" ".join(text.split()))
    table = Table("word", Column("probability", justify="right"), header_style="bold")
    for number, (word, probability, _) in enumerate(best):
        style = "bold green" if number else "bold black on green"
        highlighted.highlight_regex(rf"(?i)(?<!\w){re.escape(word)}(?!\w)", style)
        table.add_row(word, format_percent(probability))
    output.print(highlighted, soft_wrap=True)
    output.print(table)
    errors.print(f"by {trained.folder}, step {trained.saved_step()}", highlight=False, markup=False, soft_wrap=True)


def evaluate_reader(
    reader: TrainedReader, splits: Mapping[str, list[list[str]]], placements: int = 1
) -> dict[str, Any]:
    """The content of evaluation.json: the accuracy on every split, and how it was measured; with a progress bar."""
    from riffle.environment import environment

    with progress_bar() as bar:
        advance = partial(bar.advance, bar.add_task("passages", total=sum(map(len, splits.values()))))
        scores = {name: reader.evaluate(passages, placements, advance) for name, passages in splits.items()}
    return {
        "task": reader.run.config.task,
        "run": str(reader.run.folder),
        "step": reader.run.saved_step(),
        "positions": reader.objective.positions,
        "placements": placements,
        "splits": scores,
        "environment": environment(reader.objective.device),
    }
