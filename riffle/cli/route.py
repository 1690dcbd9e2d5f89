"""``riffle route``: how a Beneš network carries out a permutation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from riffle.cli.display import Json, errors, output, print_json

if TYPE_CHECKING:
    from riffle.routing import Settings


SHOWN = 32
"""Up to how many messages the switches are printed one by one."""
STRAIGHT, CROSSED = ("══", "══"), ("╲╱", "╱╲")  # noqa: RUF001 (they are drawn, not read)
"""A switch in two lines of text, one for each of its wires."""
COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")


def route(
    permutation: Annotated[
        list[str] | None,
        typer.Argument(
            help="Where each message comes out: of 0..N-1, N = 2, 4, 8, ..., each once.", metavar="PERMUTATION"
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--random", help="Route a random permutation of N messages.", metavar="N", min=2)
    ] = None,
    seed: Annotated[int, typer.Option(help="Which random permutation.")] = 0,
    draw: Annotated[Path | None, typer.Option(help="Draw the messages' ways to this .svg or .png file.")] = None,
    json: Json = False,
) -> None:
    """Set the switches of a Beneš network so that it carries out a permutation, and check them by running it.

    riffle route 3 1 0 2  ·  riffle route "3, 1, 0, 2" --draw route.svg  ·  riffle route --random 16 --seed 1
    """
    from riffle.routing import permutation_of
    from riffle.routing import route as settings_of

    ends = _chosen(permutation or [], number, seed)
    settings = settings_of(ends)
    if draw is not None:
        from riffle.drawings import draw_route

        draw_route(ends, draw)
    verified = permutation_of(settings) == ends
    assert verified, "the looping algorithm failed"
    switches, crossed = sum(map(len, settings)), sum(map(sum, settings))
    if json:
        print_json(
            {
                "permutation": ends,
                "layers": len(settings),
                "switches": switches,
                "crossed": crossed,
                "bits": _bits(settings),
                "settings": settings,
                "verified": verified,
                "drawing": None if draw is None else str(draw),
            }
        )
        return
    if len(ends) <= SHOWN:
        output.print(_table(settings))
    else:
        errors.print(f"{len(ends)} messages are too many to show here: --json prints every setting", soft_wrap=True)
    output.print(f"{len(settings)} layers, {switches} switches, {crossed} of them crossed", highlight=False)
    errors.print("[green]verified[/]: run with these settings, every message comes out at its place", soft_wrap=True)
    if draw is not None:
        errors.print(f"drawn to {escape(str(draw))}", highlight=False, soft_wrap=True)


def _chosen(words: list[str], number: int | None, seed: int) -> list[int]:
    """The permutation asked for, as numbers; what is no permutation is refused by the routing itself."""
    if bool(words) == (number is not None):
        raise ValueError("give either a permutation, for example `riffle route 3 1 0 2`, or --random N")
    if number is not None:
        ends = list(range(number))
        random.Random(seed).shuffle(ends)
        return ends
    parts = " ".join(words).replace(",", " ").split()
    wrong = [part for part in parts if not part.isdecimal()]
    if wrong:
        raise ValueError(f"a permutation consists of whole numbers from 0, got {wrong[0]!r}: for example 3 1 0 2")
    return [int(part) for part in parts]


def _bits(settings: Settings) -> list[int]:
    """The original address bit in which the pairs of a layer differ."""
    top = len(settings) // 2
    return [top - abs(layer - top) for layer in range(len(settings))]


def _table(settings: Settings) -> Table:
    """A line for each wire: which message is on it before every layer, and how the switch there is set.

    Above the switches stands the address bit in which the cells differ that their layer joins.
    """
    from riffle.routing import wire_contents

    *before, out = wire_contents(settings, range(2 * len(settings[0])))
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for layer, bit in enumerate(_bits(settings)):
        table.add_column("bit" if layer == 0 else "", justify="right")
        table.add_column(str(bit))
    table.add_column("out", justify="right")
    for wire in range(len(out)):
        cells: list[Text] = []
        for switches, messages in zip(settings, before, strict=True):
            picture, style = (CROSSED, "bold") if switches[wire // 2] else (STRAIGHT, "dim")
            cells += [_message(messages[wire]), Text(picture[wire % 2], style=style)]
        table.add_row(*cells, _message(out[wire]))
    return table


def _message(number: int) -> Text:
    return Text(str(number), style=COLOURS[number % len(COLOURS)])
