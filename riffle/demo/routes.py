"""The tab Route: messages on their way through switches that are set by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

from riffle.demo.svg import EDGE, Grid, curve, escape, in_place, tag
from riffle.routing import Settings, message_positions, route
from riffle.shuffle import schedule

MOST = 64
"""Messages that can be drawn and still be told apart."""


def parse(text: str) -> list[int]:
    """The permutation that was typed; refuses more than the page draws. What is no permutation is left to ``route``."""
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError("there is no permutation: type where each message goes, for example 3 1 0 2")
    if len(words) > MOST:
        raise ValueError(f"the page draws up to {MOST} messages, got {len(words)}; the command riffle route takes more")
    wrong = [word for word in words if not (word.isdecimal() and len(word) < 10)]
    if wrong:
        raise ValueError(f"a permutation consists of whole numbers from 0, got {wrong[0]!r}: for example 3 1 0 2")
    return [int(word) for word in words]


def random_permutation(messages: int) -> str:
    """A permutation, as one would type it."""
    ends = list(range(messages))
    random.shuffle(ends)
    return " ".join(map(str, ends))


@in_place
def show_route(text: str) -> str:
    """The drawing and what it took."""
    permutation = parse(text)
    settings = route(permutation)
    crossed, switches = sum(map(sum, settings)), sum(map(len, settings))
    facts = [
        f"<strong>{len(permutation)} messages</strong> through {len(settings)} layers",
        f"{crossed} of {switches} switches crossed",
    ]
    return draw(permutation, settings) + tag("p", " · ".join(facts), class_="facts")


def draw(permutation: Sequence[int], settings: Settings) -> str:
    """Every message a line of its own colour, every crossed switch filled."""
    cells, ways = len(permutation), message_positions(settings)
    layers = schedule(cells.bit_length() - 1)
    grid = Grid(len(settings), cells)
    parts = [
        grid.box(
            layer,
            switch,
            class_="setting crossed" if crossed else "setting",
            title="crossed" if crossed else "straight",
        )
        for layer, column in enumerate(settings)
        for switch, crossed in enumerate(column)
    ]
    for message in range(cells):
        parts.append(_message(grid, message, [way[message] for way in ways], settings))
    parts.append(grid.captions(layers))
    return grid.drawing(parts, f"{cells} messages on their way to {' '.join(map(str, permutation))}", "route")


def _message(grid: Grid, message: int, wires: Sequence[int], settings: Settings) -> str:
    hue = f"--hue: {360 * message / grid.cells:.0f}; --wait: {0.6 * message / grid.cells:.2f}s"
    x, y = EDGE / 2, grid.wire(wires[0])
    path = f"M{x:g} {y:g}"
    for layer, wire in enumerate(wires[:-1]):
        behind = wire ^ settings[layer][wire // 2]
        for there in ((grid.left(layer), grid.wire(wire)), (grid.right(layer), grid.wire(behind))):
            path += curve(x, y, *there)
            x, y = there
    path += curve(x, y, grid.width - EDGE / 2, grid.wire(wires[-1]))
    ends = ((EDGE / 2, wires[0]), (grid.width - EDGE / 2, wires[-1]))
    balls = "".join(
        tag("circle", cx=f"{x:g}", cy=f"{grid.wire(wire):g}", r=10) + grid.text(x, grid.wire(wire) + 4, message)
        for x, wire in ends
    )
    lines = tag("path", d=path, class_="seam") + tag("path", d=path, class_="way", pathLength=1)
    return tag("g", tag("title", escape(f"message {message}")) + lines + balls, class_="message", style=hue)
