"""The tab Route: messages on their paths through switches set by the looping algorithm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from riffle.demo.svg import EDGE, Grid, curve, errors_as_markup, tag
from riffle.routing import MAX_DRAWN, Settings, message_positions, parse_permutation, route
from riffle.shuffle import schedule


def random_permutation(messages: int) -> str:
    """A random permutation as text."""
    return " ".join(map(str, random.sample(range(messages), messages)))


@errors_as_markup
def show_route(text: str) -> str:
    """The drawing of a typed permutation, and its number of switches."""
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError("there is no permutation: type where each message goes, for example 3 1 0 2")
    if len(words) > MAX_DRAWN:
        limit = f"the page draws up to {MAX_DRAWN} messages, got {len(words)}"
        raise ValueError(f"{limit}; the command riffle route takes more")
    permutation = parse_permutation(text)
    settings = route(permutation)
    crossed, switches = sum(map(sum, settings)), sum(map(len, settings))
    facts = f"<strong>{len(permutation)} messages</strong> through {len(settings)} layers"
    facts += f" · {crossed} of {switches} switches crossed"
    return _draw(permutation, settings) + tag("p", facts, class_="facts")


def _draw(permutation: Sequence[int], settings: Settings) -> str:
    """A line of its own colour for every message; crossed switches are filled."""
    cells, positions = len(permutation), message_positions(settings)
    grid = Grid(len(settings), cells)
    parts = []
    for layer, switches in enumerate(settings):
        for switch, crossed in enumerate(switches):
            setting = {"class_": f"setting{' crossed' * crossed}", "title": "crossed" if crossed else "straight"}
            parts.append(grid.switch(layer, switch, **setting))
    for message in range(cells):
        parts.append(_draw_message(grid, message, [wires[message] for wires in positions], settings))
    parts.append(grid.captions(schedule(cells.bit_length() - 1)))
    return grid.drawing(parts, f"{cells} messages on their way to {' '.join(map(str, permutation))}", "route")


def _draw_message(grid: Grid, message: int, wires: Sequence[int], settings: Settings) -> str:
    colour = f"--hue: {360 * message / grid.cells:.0f}; --wait: {0.6 * message / grid.cells:.2f}s"
    ends = ((EDGE / 2, grid.wire(wires[0])), (grid.width - EDGE / 2, grid.wire(wires[-1])))
    points = [ends[0]]
    for layer, wire in enumerate(wires[:-1]):
        leaves = wire ^ settings[layer][wire // 2]
        points += [(grid.left(layer), grid.wire(wire)), (grid.right(layer), grid.wire(leaves))]
    points.append(ends[1])
    path = "M{:g} {:g}".format(*points[0])
    path += "".join(curve(*start, *end) for start, end in pairwise(points))
    lines = tag("path", d=path, class_="seam") + tag("path", d=path, class_="way", pathLength=1)
    balls = "".join(tag("circle", cx=f"{x:g}", cy=f"{y:g}", r=10) + grid.text(x, y + 4, message) for x, y in ends)
    return tag("g", tag("title", f"message {message}") + lines + balls, class_="message", style=colour)
