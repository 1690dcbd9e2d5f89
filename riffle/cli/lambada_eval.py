"""``riffle lambada eval``: how many passages a run answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, progress_bar
from riffle.quantities import format_percent

if TYPE_CHECKING:
    from riffle.lambada.evaluate import PassageScore


RunOption = Annotated[
    Path | None, typer.Option("--run", help="The trained run.", show_default="the newest in runs, else the shipped one")
]
Placements = Annotated[
    int, typer.Option(help="Places among the network's positions to average over; 1 is the middle.", min=1)
]


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
    from riffle.files import write_json
    from riffle.lambada.evaluate import TrainedReader, find_reader, read_splits
    from riffle.train.shipped import SHIPPED

    place = choose_device(device)
    trained = find_reader(run)
    reader = TrainedReader(trained, place)
    splits = read_splits(split or [], corpus or Path(reader.objective.config.data.corpus))
    with progress_bar() as bar:
        job = bar.add_task("passages", total=sum(map(len, splits.values())))
        result = reader.report(splits, placements=placements, on_progress=lambda count: bar.advance(job, count))
    kept = None if trained.folder.resolve().parent == SHIPPED.resolve() else trained.folder / "evaluation.json"
    if kept:
        write_json(kept, result)
    if json:
        print_json(result)
        return
    for name, parts in result["splits"].items():
        output.print(_table(f"{name}: {trained.folder}, step {trained.saved_step()}", parts))
    if kept:
        then = f"beside the paper's: riffle lambada report --run {trained.folder}"
        errors.print(f"numbers: {kept}   {then}", markup=False, soft_wrap=True)


def _table(title: str, parts: dict[str, dict[str, PassageScore]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("")
    for column in ("passages", "right by position", "right by word"):
        table.add_column(column, justify="right")
    for name, scores in parts.items():
        for label, score in scores.items():
            what = label if name == "passages" else f"{name} {label}"
            table.add_row(
                what, f"{score['passages']:,}", format_percent(score["position"]), format_percent(score["word"])
            )
        table.add_section()
    return table
