"""``python -m research lambada ship``: a reader as a folder to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Device, choose_device, errors
from riffle.cli.lambada import evaluate_reader

SHIPPED_FILES = (
    *("README.md", "config.json", "environment.json", "evaluation.json"),
    *("checkpoint.safetensors", "words.safetensors"),
)
"""What a folder to pass on has."""


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
    from riffle.files import check_exported, write_atomically, write_json
    from riffle.lambada.evaluate import TrainedReader, read_splits
    from riffle.train.run import Run

    original = Run(run)
    if folder.exists() and folder.samefile(run):
        raise ValueError(f"{folder} is the run itself: choose another folder")
    check_exported(folder, SHIPPED_FILES)
    splits = read_splits(split, Path(getattr(original.config.data, "corpus", ""))) if split else {}
    shipped = ship_reader(original, folder, words)
    if splits:
        write_json(folder / "evaluation.json", evaluate_reader(TrainedReader(shipped, choose_device(device)), splits))
    write_atomically(folder / "README.md", reader_model_card(shipped).encode())
    size = sum(file.stat().st_size for file in folder.iterdir())
    errors.print(f"{folder}: {size / 1e6:.1f} MB, its card is {folder / 'README.md'}", markup=False, soft_wrap=True)
