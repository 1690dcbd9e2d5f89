"""``python -m research lambada report`` and ``ship``: a reader beside published ones, and as a folder to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, program, titled_table
from riffle.cli.lambada import RunOption, evaluate_reader
from riffle.quantities import format_percent


def report(
    run: RunOption = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="A file that lambada eval wrote.", show_default="RUN/evaluation.json")
    ] = None,
    json: Json = False,
) -> None:
    """Show the paper's table of accuracies on LAMBADA with those of a run in their place.

    The published figures are of LAMBADA's test set; a run's are of the splits it was evaluated on.
    """
    from research.ship.reader import PUBLISHED
    from riffle.lambada.evaluate import find_reader

    path = evaluation or find_reader(run).folder / "evaluation.json"
    rows: list[dict[str, Any]] = [
        {"model": model, "accuracy": accuracy, "split": "test", "published": True}
        for model, accuracy in PUBLISHED.items()
    ]
    rows += [{**row, "published": False} for row in _measured(path)]
    rows.sort(key=lambda row: row["accuracy"])
    if json:
        return print_json(rows)
    table = titled_table("LAMBADA", "model", "split", "passages", "accuracy", left=("model", "split"))
    for row in rows:
        passages, style = ("", None) if row["published"] else (f"{row['passages']:,}", "bold green")
        table.add_row(row["model"], row["split"], passages, format_percent(row["accuracy"]), style=style)
    output.print(table)
    errors.print(f"this run: {path}; published figures are of the test set", markup=False, soft_wrap=True)


def ship(
    run: Annotated[Path, typer.Argument(help="The trained run.", metavar="RUN")],
    folder: Annotated[Path, typer.Argument(help="The folder to make.", metavar="FOLDER")],
    words: Annotated[
        int | None, typer.Option(help="Words to keep, the most common ones.", min=1, show_default="all")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="A file of passages, or a split of the corpus, to measure it on.", metavar="FILE|NAME"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Write a run as a folder to pass on: weights in int8, word vectors in 4 bits, a card with its accuracy.

    The folder can be used wherever a run can. Accuracy is measured after quantisation.
    """
    from research.ship.reader import reader_model_card, ship_reader
    from riffle.files import write_atomically, write_json
    from riffle.lambada.evaluate import TrainedReader, read_splits
    from riffle.train.run import Run

    original = Run(run)
    splits = read_splits(split, Path(getattr(original.config.data, "corpus", ""))) if split else {}
    shipped = ship_reader(original, folder, words)
    if splits:
        write_json(folder / "evaluation.json", evaluate_reader(TrainedReader(shipped, choose_device(device)), splits))
    write_atomically(folder / "README.md", reader_model_card(shipped).encode())
    size = sum(file.stat().st_size for file in folder.iterdir())
    errors.print(f"{folder}: {size / 1e6:.1f} MB, its card is {folder / 'README.md'}", markup=False, soft_wrap=True)


def _measured(path: Path) -> list[dict[str, Any]]:
    """The rows of an evaluation: every split by position and by word."""
    from research.ship.reader import read_scores

    if not path.exists():
        raise ValueError(f"{path} does not exist: make it with {program()} lambada eval")
    return [
        {"model": f"this run, by {by}", "accuracy": score, "split": split, "passages": scores["passages"]}
        for split, scores in read_scores(path).items()
        for by, score in (("position", scores["position"]), ("word", scores["word"]))
    ]
