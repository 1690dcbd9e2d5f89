"""A drawing of a permutation's way through the network: ``python -m riffle.draw_route route.svg 3 1 0 2``.

Every message is a line of its own colour from the wire where it enters, on the left, to the one where it comes out. The
switches it passes are boxes, filled where they are crossed. Columns are layers, the wires between them are shuffles.
"""

# Coordinates: wires are 1 apart and numbered downwards, columns are numbered to the right
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from riffle.draw import BOX, HALVES, INCH, INK, STUB, save_figure
from riffle.routing import Settings, route, trace
from riffle.shuffle import Layer, schedule

MOST = 64
"""How many messages a drawing can show and still be read."""
GRADIENT = ("#5a4aa0", "#3b6fb6", "#2a9a9a", "#4d9365", "#b59a1c", "#d9822b", "#c0455e", "#8a3a78")
"""The colours of the messages, from the first to the last that enters."""
STRAIGHT, CROSSED = ("#ffffff", "#b6bec8"), ("#dfe5ee", "#5b6775")
"""Fill and edge of a switch by its setting."""
SOFT, SHARP = "#6e7781", 150
"""The colour of the numbers of the wires, and pixels per inch."""


def draw_route(permutation: Sequence[int], path: str | Path) -> None:
    """Draw how the switches set by :func:`riffle.routing.route` carry out a permutation.

    Args:
        permutation: Where each message comes out; 2 to 64 of them.
        path: The file to write: ``.svg``, ``.png`` or what else matplotlib knows.
    """
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap, to_hex
    from matplotlib.figure import Figure

    settings = route(permutation)
    cells = len(permutation)
    if cells > MOST:
        raise ValueError(f"a drawing shows up to {MOST} messages, got {cells}")
    layers, ways = schedule(cells.bit_length() - 1), trace(settings)
    wide = 2.2 + 0.1 * min(cells, 32)  # long shuffles need room to stay gentle
    columns = [wide * index for index in range(len(layers))]
    left, right = columns[0] - BOX / 2 - STUB - 1.3, columns[-1] + BOX / 2 + STUB + 1.6
    top, bottom = -1.6, cells + 1.8
    shades = LinearSegmentedColormap.from_list("messages", GRADIENT)
    colours = [to_hex(shades(message / (cells - 1))) for message in range(cells)]
    with matplotlib.rc_context({"svg.hashsalt": "riffle", "font.family": "DejaVu Sans", "font.size": 10.5}):
        figure = Figure(figsize=(INCH * (right - left), INCH * (bottom - top)), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        _switches(axes, settings, columns)
        for message, colour in enumerate(colours):
            _message(axes, message, [way[message] for way in ways], settings, columns, colour)
        _captions(axes, layers, columns, cells)
        save_figure(figure, Path(path), SHARP)


def _switches(axes: Any, settings: Settings, columns: list[float]) -> None:
    from matplotlib.patches import FancyBboxPatch

    for index, (layer, column) in enumerate(zip(settings, columns, strict=True)):
        for q, crossed in enumerate(layer):
            fill, edge = CROSSED if crossed else STRAIGHT
            box = FancyBboxPatch(
                (column - BOX / 2, 2 * q - 0.34), BOX, 1.68, boxstyle="round,pad=0,rounding_size=0.22", zorder=1
            )
            box.set(facecolor=fill, edgecolor=edge, linewidth=1.1)
            box.set_gid(f"switch-{index}-{q}-{'crossed' if crossed else 'straight'}")
            axes.add_patch(box)


def _message(axes: Any, message: int, wires: list[int], settings: Settings, columns: list[float], colour: str) -> None:
    """One line through all layers, level where it enters and leaves a switch, with its number at both ends."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    start, end = columns[0] - BOX / 2 - STUB, columns[-1] + BOX / 2 + STUB
    points = [(start, wires[0])]
    for layer, column, wire in zip(settings, columns, wires, strict=False):
        points += [(column - BOX / 2, wire), (column + BOX / 2, wire ^ layer[wire // 2])]
    points.append((end, wires[-1]))
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        level = 0.42 * (x1 - x0)
        vertices += [(x0 + level, y0), (x1 - level, y1), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    # A seam along each line, above the lines before it, keeps apart those that cross.
    for over, stroke, width in ((0.0, "#ffffff", 3.9), (0.5, colour, 2.1)):
        line = PathPatch(Curve(vertices, codes), fill=False, edgecolor=stroke, linewidth=width, capstyle="butt")
        line.set(zorder=2 + (message + over) / MOST, gid=f"message-{message}" if over else None)
        axes.add_patch(line)
    for x, wire in ((start, wires[0]), (end, wires[-1])):
        axes.plot(x, wire, "o", color=colour, markersize=17, markeredgecolor="white", zorder=5)
        axes.text(x, wire, message, ha="center", va="center_baseline", color="white", weight="bold", size=8.5, zorder=6)


def _captions(axes: Any, layers: tuple[Layer, ...], columns: list[float], cells: int) -> None:
    """Above the ends what they are; under every column its address bit, under a half block the shuffle behind it."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
    start, end = columns[0] - BOX / 2 - STUB, columns[-1] + BOX / 2 + STUB
    axes.text(start, -1.0, "in", **style)
    axes.text(end, -1.0, "out", **style)
    for wire in range(cells):
        axes.text(end + 0.75, wire, wire, **{**style, "color": SOFT, "va": "center_baseline"}, size=8.5)
    axes.text(start, cells + 0.1, "bit", **style)
    for layer, column in zip(layers, columns, strict=True):
        axes.text(column, cells + 0.1, layer.bit, **style, weight="bold")
    first = 0
    for turn, half in groupby(layers, key=lambda layer: layer.turn):
        last = first + len(list(half)) - 1
        x0, x1 = columns[first] - BOX / 2, columns[last] + BOX / 2
        axes.plot((x0, x1), (cells + 0.7,) * 2, color=INK, linewidth=1.0)
        text = HALVES[turn] if last > first else HALVES[turn].rpartition(" ")[2]
        axes.text((x0 + x1) / 2, cells + 1.2, text, **style)
        first = last + 1


def main(path: Path, permutation: list[int]) -> None:
    """Draw how the network carries out a permutation."""
    draw_route(permutation, path)


if __name__ == "__main__":
    import typer

    typer.run(main)
