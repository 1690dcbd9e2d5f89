"""Drawings of the network and of a permutation routed through it, both made from the network's schedule.

``python -m riffle.drawings docs/network.png`` draws the paper's network of 16 cells and two blocks,
``riffle route 5 3 6 2 0 1 7 4 --draw docs/route.svg`` a route. Cells enter on the left as wires. A column of boxes is a
layer of switches; the wires between two columns are the shuffle.
"""

# Coordinates: wires are 1 apart and numbered downwards, columns are numbered from left to right
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path as Curve

from riffle.plots import INK, LAST_COLOUR, WIRE, new_figure, save_figure, style, unit_colours
from riffle.routing import message_positions, route
from riffle.shuffle import SHUFFLES, Layer, Sharing, schedule

COLUMN, BOX, STUB = 2.7, 1.05, 1.2
"""Distance of columns, width of a switch, and length of the wires before the first and after the last one."""
INCH, NETWORK_DPI, FONT_SIZE = 0.36, 117.5, 10.5
"""Inches per unit, and pixels per inch: 1600 pixels for the paper's network of 16 cells and two blocks."""
LEGEND_WIDTH = 4.6
HALVES = {1: "forward half: unriffle", -1: "reverse half: riffle", 0: "last"}
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
MAX_MESSAGES = 64
"""With more messages, the lines of a drawing cannot be distinguished."""
MESSAGE_COLOURS = ("#5a4aa0", "#3b6fb6", "#2a9a9a", "#4d9365", "#b59a1c", "#d9822b", "#c0455e", "#8a3a78")
STRAIGHT = {"facecolor": "#ffffff", "edgecolor": "#b6bec8"}
CROSSED = {"facecolor": "#dfe5ee", "edgecolor": "#5b6775"}


def draw_network(k: int = 4, blocks: int = 2, sharing: Sharing = "block", *, path: str | Path) -> None:
    """Draw a network of ``blocks`` Beneš blocks on ``2**k`` cells.

    Switches have the colour of the unit whose weights they use; arcs are skip connections.

    Args:
        k: Address bits; the drawing has ``2**k`` wires.
        blocks: Beneš blocks.
        sharing: Which layers share their weights, see :func:`riffle.shuffle.schedule`.
        path: The file to write: ``.svg``, ``.png`` or another suffix that matplotlib knows.
    """
    layers, cells = schedule(k, blocks, sharing), 2**k
    colours = unit_colours(layer.unit for layer in layers)
    columns = [COLUMN * index for index in range(len(layers))]
    left, right = columns[0] - BOX / 2 - STUB - 1, columns[-1] + BOX / 2 + STUB + 1
    handles = _legend(layers, colours)
    per_row = max(1, int((right - left) / LEGEND_WIDTH))
    rows = -(-len(handles) // per_row)
    arc_height = 0.55 * max((i - layer.skip for i, layer in enumerate(layers) if layer.skip is not None), default=0)
    top, bottom = -1.2 - arc_height, cells + 3.3 + 0.9 * rows
    with style(FONT_SIZE):
        figure, axes = _blank(left, right, bottom, top, vertical=0.8)
        _draw_wires(axes, layers, columns, cells)
        for index, (layer, column) in enumerate(zip(layers, columns, strict=True)):
            colour = colours[layer.unit]
            if layer.skip is not None:
                _draw_skip(axes, f"skip-{index}", columns[layer.skip], column, arc_height, colour)
            for wire in range(0, cells, 2):
                box: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 1.0, "zorder": 3}
                _draw_switch(axes, column, wire, 0.32, **box, gid=f"switch-{index}-{wire // 2}")
                for start, end in ((0, 0), (1, 1), (0, 1), (1, 0)):
                    edges = [(column - BOX / 2, wire + start), (column + BOX / 2, wire + end)]
                    _draw_curve(axes, edges, 0.3, edgecolor="#ffffffb0", linewidth=1.1, zorder=4)
        _draw_captions(axes, layers, columns, cells, rule=0.75, text=1.3)
        _draw_blocks(axes, len(layers), columns, cells, blocks)
        axes.legend(handles=handles, ncols=per_row, loc="lower center", frameon=False, labelcolor=INK, handlelength=1)
        save_figure(figure, Path(path), dpi=NETWORK_DPI, text_as_paths=True)


def draw_route(permutation: Sequence[int], path: str | Path) -> None:
    """Draw how the switches, set by :func:`riffle.routing.route`, carry out a permutation of up to 64 messages.

    Every message is a line of its own colour; switches that exchange their messages are filled.
    """
    settings, cells = route(permutation), len(permutation)
    if cells > MAX_MESSAGES:
        raise ValueError(f"a drawing shows up to {MAX_MESSAGES} messages, got {cells}")
    layers, positions = schedule(cells.bit_length() - 1), message_positions(settings)
    distance = 2.2 + 0.1 * min(cells, 32)  # long shuffles need room, or their wires are too steep
    columns = [distance * index for index in range(len(layers))]
    start, end = columns[0] - BOX / 2 - STUB, columns[-1] + BOX / 2 + STUB
    colour_map = LinearSegmentedColormap.from_list("messages", MESSAGE_COLOURS)
    with style(FONT_SIZE):
        figure, axes = _blank(start - 1.3, end + 1.6, cells + 1.8, -1.6)
        for index, (layer, column) in enumerate(zip(settings, columns, strict=True)):
            for q, crossed in enumerate(layer):
                name = f"switch-{index}-{q}-{'crossed' if crossed else 'straight'}"
                colours = CROSSED if crossed else STRAIGHT
                _draw_switch(axes, column, 2 * q, 0.34, **colours, linewidth=1.1, zorder=1, gid=name)
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
        _draw_captions(axes, layers, columns, cells, rule=0.7, text=1.2)
        save_figure(figure, Path(path), text_as_paths=True)


def shuffled_wires(layer: Layer, cells: int) -> list[int]:
    """Which wire each wire behind a layer's shuffle comes from.

    >>> shuffled_wires(schedule(3)[0], 8)
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    return SHUFFLES[layer.shuffle](torch.arange(cells).view(1, cells, 1)).flatten().tolist()


def _blank(left: float, right: float, bottom: float, top: float, vertical: float = 1.0) -> tuple[Any, Any]:
    """A figure and its axes, which fill it and show nothing of themselves."""
    figure = new_figure(INCH * (right - left), vertical * INCH * (bottom - top), layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    return figure, axes


def _draw_curve(axes: Any, points: Sequence[tuple[float, float]], level: float, **attributes: Any) -> None:
    """A line through points, horizontal at each of them for ``level`` of the distance to the next."""
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        reach = level * (x1 - x0)
        vertices += [(x0 + reach, y0), (x1 - reach, y1), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    axes.add_patch(PathPatch(Curve(vertices, codes), fill=False, **attributes))


def _draw_switch(axes: Any, column: float, wire: int, margin: float, **attributes: Any) -> None:
    """The box of a switch on two wires."""
    corner, rounded = (column - BOX / 2, wire - margin), "round,pad=0,rounding_size=0.22"
    axes.add_patch(FancyBboxPatch(corner, BOX, 1 + 2 * margin, boxstyle=rounded, **attributes))


def _draw_captions(
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


def _draw_wires(axes: Any, layers: Sequence[Layer], columns: list[float], cells: int) -> None:
    """The wires into, between and out of the columns, numbered at both ends."""
    wire: dict[str, Any] = {"edgecolor": WIRE, "linewidth": 1.1, "zorder": 1}
    first, last = columns[0] - BOX / 2, columns[-1] + BOX / 2
    for cell in range(cells):
        _draw_curve(axes, [(first - STUB, cell), (first, cell)], 0.3, **wire)
        _draw_curve(axes, [(last, cell), (last + STUB, cell)], 0.3, **wire)
        for x, side in ((first - STUB - 0.2, "right"), (last + STUB + 0.2, "left")):
            axes.text(x, cell, cell, ha=side, va="center", color=INK)
    for layer, (here, there) in zip(layers, pairwise(columns), strict=False):
        for arrives, leaves in enumerate(shuffled_wires(layer, cells)):
            _draw_curve(axes, [(here + BOX / 2, leaves), (there - BOX / 2, arrives)], 0.3, **wire)


def _draw_skip(axes: Any, name: str, source: float, target: float, height: float, colour: str) -> None:
    """An arc from the wires before one layer to the switches of another, where only gates and candidates read it."""
    (x0, y0), (x1, y1) = (source - BOX / 2 - 0.3, 0.0), (target, -0.36)
    vertices = [(x0, y0), (x0, -1.33 * height), (x1, -1.33 * height), (x1, y1)]
    arc = Curve(vertices, (Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4))
    arrow = FancyArrowPatch(path=arc, arrowstyle="-|>", mutation_scale=11, zorder=2, gid=name)
    arrow.set(edgecolor=colour, facecolor=colour, linewidth=1.4, alpha=0.7)
    axes.add_patch(arrow)
    axes.plot(x0, y0, "o", color=colour, markersize=4.5, zorder=2)


def _draw_blocks(axes: Any, layers: int, columns: list[float], cells: int, blocks: int) -> None:
    """A band behind each Beneš block, with its number; none where blocks have no layers."""
    size = (layers - 1) // blocks
    for block in range(blocks if size else 0):
        x0, x1 = columns[block * size] - 0.9 * BOX, columns[(block + 1) * size - 1] + 0.9 * BOX
        band = FancyBboxPatch((x0, -0.75), x1 - x0, cells + 3.3, boxstyle="round,pad=0,rounding_size=0.3", zorder=0)
        band.set(facecolor="#f3f5f8", edgecolor="none")
        axes.add_patch(band)
        axes.text((x0 + x1) / 2, cells + 2.05, f"Beneš block {block}", **CENTRED)


def _legend(layers: Sequence[Layer], colours: dict[str, str]) -> list[Any]:
    counts = Counter(layer.unit for layer in layers)
    handles: list[Any] = [
        Patch(color=colours[unit], label=f"{unit} \N{MULTIPLICATION SIGN}{count}") for unit, count in counts.items()
    ]
    if any(layer.shuffle for layer in layers):
        handles.append(Line2D([], [], color=WIRE, label="shuffle"))
    if any(layer.skip is not None for layer in layers):
        arrow = Line2D([], [], color=LAST_COLOUR, marker=">", markevery=[-1], alpha=0.7, label="skip connection")
        handles.append(arrow)
    return handles


def _draw_message(axes: Any, message: int, points: Sequence[tuple[float, float]], colour: str) -> None:
    """One line through all layers, with the message's number at both ends."""
    # A white seam along each line, above the lines before it, separates lines that cross.
    for above, stroke, width in ((0.0, "#ffffff", 3.9), (0.5, colour, 2.1)):
        drawn: dict[str, Any] = {"edgecolor": stroke, "linewidth": width, "capstyle": "butt"}
        zorder = 2 + (message + above) / MAX_MESSAGES
        _draw_curve(axes, points, 0.42, **drawn, zorder=zorder, gid=f"message-{message}" if above else None)
    for x, wire in (points[0], points[-1]):
        axes.plot(x, wire, "o", color=colour, markersize=17, markeredgecolor="white", zorder=5)
        axes.text(x, wire, message, ha="center", va="center_baseline", color="white", weight="bold", size=8.5, zorder=6)


def main(paths: list[Path], bits: int = 4, blocks: int = 2, sharing: str = "block") -> None:
    """Draw the network into every file given."""
    for path in paths:
        draw_network(bits, blocks, sharing, path=path)  # type: ignore[arg-type]


if __name__ == "__main__":
    import typer

    typer.run(main)
