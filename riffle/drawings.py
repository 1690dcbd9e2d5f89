"""The drawing of ``riffle route 5 3 6 2 0 1 7 4 --draw route.svg``: messages on their paths through switches.

Messages enter on the left. A column of boxes is a layer of switches; between two columns is the shuffle.
:func:`draw_causal` draws the network without switches, in which cells read earlier ones.
"""

# Coordinates: wires are 1 apart and numbered downwards, columns are numbered from left to right
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from riffle.plots import INK, new_figure, save_figure, style
from riffle.routing import MAX_DRAWN, message_positions, route
from riffle.shuffle import Layer, bits, causal_schedule, schedule

CAUSAL_COLUMN = 2.4
BOX, STUB = 1.05, 1.2
"""Width of a switch, and length of the wires before the first and after the last one."""
INCH, FONT_SIZE = 0.36, 10.5
"""Inches per unit, and points of the text."""
HALVES = {1: "forward half: unriffle", -1: "reverse half: riffle", 0: "last"}
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
MESSAGE_COLOURS = ("#5a4aa0", "#3b6fb6", "#2a9a9a", "#4d9365", "#b59a1c", "#d9822b", "#c0455e", "#8a3a78")
STRAIGHT = {"facecolor": "#ffffff", "edgecolor": "#b6bec8"}
CROSSED = {"facecolor": "#dfe5ee", "edgecolor": "#5b6775"}


def draw_route(permutation: Sequence[int], path: str | Path) -> None:
    """Draw how the switches, set by :func:`riffle.routing.route`, carry out a permutation of up to 64 messages.

    Every message is a line of its own colour; switches that exchange their messages are filled.
    """
    settings, cells = route(permutation), len(permutation)
    if cells > MAX_DRAWN:
        raise ValueError(f"a drawing shows up to {MAX_DRAWN} messages, got {cells}")
    layers, positions = schedule(cells.bit_length() - 1), message_positions(settings)
    distance = 2.2 + 0.1 * min(cells, 32)  # long shuffles need room, or their wires are too steep
    columns = [distance * index for index in range(len(layers))]
    start, end = columns[0] - BOX / 2 - STUB, columns[-1] + BOX / 2 + STUB
    colour_map = LinearSegmentedColormap.from_list("messages", MESSAGE_COLOURS)
    with style(FONT_SIZE):
        figure, axes = blank(start - 1.3, end + 1.6, cells + 1.8, -1.6)
        for index, (layer, column) in enumerate(zip(settings, columns, strict=True)):
            for q, crossed in enumerate(layer):
                name = f"switch-{index}-{q}-{'crossed' if crossed else 'straight'}"
                colours = CROSSED if crossed else STRAIGHT
                draw_switch(axes, column, 2 * q, 0.34, **colours, linewidth=1.1, zorder=1, gid=name)
        for message in range(cells):
            colour = to_hex(colour_map(message / (cells - 1)))
            points = [(start, message)]
            for layer, column, wires in zip(settings, columns, positions, strict=False):
                wire = wires[message]
                points += [(column - BOX / 2, wire), (column + BOX / 2, wire ^ layer[wire // 2])]
            _draw_message(axes, message, [*points, (end, permutation[message])], colour)
        axes.text(start, -1.0, "in", **CENTRED)
        axes.text(end, -1.0, "out", **CENTRED)
        for wire in range(cells):
            axes.text(end + 0.75, wire, wire, ha="center", va="center_baseline", color="#6e7781", size=8.5)
        draw_captions(axes, layers, columns, cells, rule=0.7, text=1.2)
        save_figure(figure, Path(path), text_as_paths=True)


def draw_causal(cells: int, output: int, path: str | Path) -> None:
    """Draw a block of the causal network: every dot is a unit's evaluation, coloured what one output depends on."""
    layers = causal_schedule(bits(cells))
    needed = [{output}]
    for layer in reversed(layers):
        needed.insert(0, {cell for i in needed[0] for cell in (i, i - 2**layer.bit) if cell >= 0})
    columns = [CAUSAL_COLUMN * index for index in range(len(layers) + 1)]
    with style(FONT_SIZE):
        figure, axes = blank(-1.6, columns[-1] + 1.6, cells + 1.0, -1.6)
        for index, layer in enumerate(layers):
            ends, distance = columns[index : index + 2], 2**layer.bit
            axes.text(sum(ends) / 2, -1.0, distance, **CENTRED, weight="bold")
            for cell in range(cells):
                colour, zorder = (MESSAGE_COLOURS[1], 2) if cell in needed[index + 1] else (STRAIGHT["edgecolor"], 1)
                line: dict[str, Any] = {"edgecolor": colour, "linewidth": 1.1, "zorder": zorder}
                for source in (cell, cell - distance)[: 1 + (cell >= distance)]:
                    name = f"layer-{index}-{source}-{cell}"
                    draw_curve(axes, [(ends[0], source), (ends[1], cell)], 0.42, **line, gid=name)
                if cell >= distance:
                    axes.plot(ends[1], cell, "o", color=colour, markersize=5, zorder=zorder + 1)
        for cell in range(cells):
            for column, shift, shown in ((0, -0.7, needed[0]), (columns[-1], 0.7, needed[-1])):
                colour = INK if cell in shown else "#9aa3ad"
                axes.text(column + shift, cell, cell, ha="center", va="center_baseline", color=colour, size=8.5)
        axes.text(-0.7, -1.0, "reads at", **CENTRED)
        half = len(layers) // 2
        for first, last, caption in ((0, half, "forward half"), (half, 2 * half, "reverse half")):
            x0, x1 = columns[first] + 0.3, columns[last] - 0.3
            axes.plot((x0, x1), (cells - 0.2,) * 2, color=INK, linewidth=1.0)
            axes.text((x0 + x1) / 2, cells + 0.4, caption, **CENTRED)
        save_figure(figure, Path(path), text_as_paths=True)


def blank(left: float, right: float, bottom: float, top: float, vertical: float = 1.0) -> tuple[Any, Any]:
    """A figure and its axes, which fill it and show nothing of themselves."""
    figure = new_figure(INCH * (right - left), vertical * INCH * (bottom - top), layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    return figure, axes


def draw_curve(axes: Any, points: Sequence[tuple[float, float]], level: float, **attributes: Any) -> None:
    """A line through points, horizontal at each of them for ``level`` of the distance to the next."""
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        reach = level * (x1 - x0)
        vertices += [(x0 + reach, y0), (x1 - reach, y1), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    axes.add_patch(PathPatch(Curve(vertices, codes), fill=False, **attributes))


def draw_switch(axes: Any, column: float, wire: int, margin: float, **attributes: Any) -> None:
    """The box of a switch on two wires."""
    corner, rounded = (column - BOX / 2, wire - margin), "round,pad=0,rounding_size=0.22"
    axes.add_patch(FancyBboxPatch(corner, BOX, 1 + 2 * margin, boxstyle=rounded, **attributes))


def draw_captions(
    axes: Any, layers: Sequence[Layer], columns: list[float], cells: int, *, rule: float, text: float
) -> None:
    """Under every column its address bit; under the columns of a half block, at ``text``, the shuffle after them."""
    axes.text(columns[0] - BOX / 2 - STUB, cells + 0.1, "bit", **CENTRED)
    for layer, column in zip(layers, columns, strict=True):
        axes.text(column, cells + 0.1, layer.bit, **CENTRED, weight="bold")
    first = 0
    for shuffle, half in groupby(layers, key=lambda layer: layer.shuffle):
        last = first + len(list(half)) - 1
        x0, x1 = columns[first] - BOX / 2, columns[last] + BOX / 2
        axes.plot((x0, x1), (cells + rule,) * 2, color=INK, linewidth=1.0)
        caption = HALVES[shuffle] if last > first else HALVES[shuffle].rpartition(" ")[2]
        axes.text((x0 + x1) / 2, cells + text, caption, **CENTRED)
        first = last + 1


def _draw_message(axes: Any, message: int, points: Sequence[tuple[float, float]], colour: str) -> None:
    """One line through all layers, with the message's number at both ends."""
    # A white seam along each line, above the lines before it, separates lines that cross.
    for above, stroke, width in ((0.0, "#ffffff", 3.9), (0.5, colour, 2.1)):
        drawn: dict[str, Any] = {"edgecolor": stroke, "linewidth": width, "capstyle": "butt"}
        zorder = 2 + (message + above) / MAX_DRAWN
        draw_curve(axes, points, 0.42, **drawn, zorder=zorder, gid=f"message-{message}" if above else None)
    for x, wire in (points[0], points[-1]):
        axes.plot(x, wire, "o", color=colour, markersize=17, markeredgecolor="white", zorder=5)
        axes.text(x, wire, message, ha="center", va="center_baseline", color="white", weight="bold", size=8.5, zorder=6)
