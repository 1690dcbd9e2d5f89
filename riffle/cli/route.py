"""``riffle route``: how a Beneš network carries out a permutation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from riffle.cli.display import Json, errors, output, print_json, require

if TYPE_CHECKING:
    from riffle.routing import Settings


MAX_SHOWN = 32
"""Messages up to which every switch is printed."""
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
        int | None,
        typer.Option("--random", help="Route a random permutation of N messages.", metavar="N", min=2, max=2**20),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the permutation of --random.", show_default="0")] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw the paths of the messages to this .svg or .png file.")] = None,
    json: Json = False,
) -> None:
    """Set the switches of a Beneš network so that it carries out a permutation, and check them by running it.

    riffle route 3 1 0 2  ·  riffle route "3, 1, 0, 2" --draw route.svg  ·  riffle route --random 16 --seed 1
    """
    from riffle.routing import parse_permutation, permutation_of
    from riffle.routing import route as find_settings

    if bool(permutation) == (number is not None):
        raise ValueError("give either a permutation, for example `riffle route 3 1 0 2`, or --random N")
    if seed is not None and number is None:
        raise ValueError("--seed is for --random, which was not given")
    ends = list(range(number)) if number is not None else parse_permutation(" ".join(permutation or []))
    if number is not None:
        random.Random(seed or 0).shuffle(ends)
    settings = find_settings(ends)
    if draw is not None:
        require("matplotlib")
        from riffle.drawings import draw_route
        from riffle.plots import check_figures

        check_figures(draw)
        draw_route(ends, draw)
    verified = permutation_of(settings) == ends
    assert verified, "the looping algorithm failed"
    top = len(settings) // 2
    result: dict[str, Any] = {
        "permutation": ends,
        "layers": len(settings),
        "switches": sum(map(len, settings)),
        "crossed": sum(map(sum, settings)),
        "bits": [top - abs(layer - top) for layer in range(len(settings))],  # riffle.shuffle would import torch
        "settings": settings,
        "verified": verified,
        "drawing": None if draw is None else str(draw),
    }
    if json:
        return print_json(result)
    if len(ends) <= MAX_SHOWN:
        output.print(_table(settings, result["bits"]))
    else:
        errors.print(f"{len(ends)} messages are too many to show here: --json prints every setting", soft_wrap=True)
    output.print("{layers} layers, {switches} switches, {crossed} of them crossed".format(**result), highlight=False)
    errors.print("[green]verified[/]: with these settings, every message comes out at its place", soft_wrap=True)
    if draw is not None:
        errors.print(f"drawn to {escape(str(draw))}", highlight=False, soft_wrap=True)


def _table(settings: Settings, bits: Sequence[int]) -> Table:
    """A line for each wire: the message on it before every layer, its switch, and the layer's address bit on top."""
    from riffle.routing import wire_contents

    *before, out = wire_contents(settings, range(2 * len(settings[0])))
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for layer, bit in enumerate(bits):
        table.add_column("bit" if layer == 0 else "", justify="right")
        table.add_column(str(bit))
    table.add_column("out", justify="right")
    numbers = [Text(str(message), style=COLOURS[message % len(COLOURS)]) for message in range(len(out))]
    for wire in range(len(out)):
        cells: list[Text] = []
        for switches, messages in zip(settings, before, strict=True):
            picture, style = (CROSSED, "bold") if switches[wire // 2] else (STRAIGHT, "dim")
            cells += [numbers[messages[wire]], Text(picture[wire % 2], style=style)]
        table.add_row(*cells, numbers[out[wire]])
    return table
