"""``riffle lambada solve``: the word that a passage ends with."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json
from riffle.cli.lambada_eval import Placements, RunOption
from riffle.quantities import format_percent

if TYPE_CHECKING:
    from riffle.lambada.evaluate import Candidate


FIRST, OTHERS = "bold black on green", "bold green"
"""How the most likely word and the next ones are marked in the passage."""


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
    found = candidates(tokens, reader.next_word_probabilities(tokens, placements), top)
    if json:
        print_json({"run": str(trained.folder), "tokens": tokens, "words": [each._asdict() for each in found]})
        return
    output.print(_marked(" ".join(text.split()), found), soft_wrap=True)
    table = Table("word", header_style="bold")
    table.add_column("probability", justify="right")
    for each in found:
        table.add_row(each.word, format_percent(each.probability))
    output.print(table)
    errors.print(f"by {trained.folder}, step {trained.saved_step()}", highlight=False, markup=False, soft_wrap=True)


def _marked(text: str, found: Sequence[Candidate]) -> Text:
    """The passage, the words that were found standing out."""
    marked = Text(text)
    for number, each in enumerate(found):
        marked.highlight_regex(rf"(?i)(?<!\w){re.escape(each.word)}(?!\w)", OTHERS if number else FIRST)
    return marked
