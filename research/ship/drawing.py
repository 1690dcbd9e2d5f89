"""The drawing of the network in README, made from the network's schedule.

``python -m research.ship.drawing docs/network.png`` draws the paper's network of 16 cells and two blocks. Cells enter
on the left as wires. A column of boxes is a layer of switches; the wires between two columns are the shuffle.
"""

# Coordinates: wires are 1 apart and numbered downwards, columns are numbered from left to right
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.path import Path as Curve

from riffle.drawings import BOX, CENTRED, FONT_SIZE, STUB, blank, draw_captions, draw_curve, draw_switch
from riffle.plots import INK, LAST_COLOUR, WIRE, save_figure, style, unit_colours
from riffle.shuffle import Layer, Sharing, schedule, shuffled_wires

COLUMN, LEGEND_WIDTH = 2.7, 4.6
NETWORK_DPI = 117.5
"""Pixels per inch: 1600 pixels for the paper's network of 16 cells and two blocks."""


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
        figure, axes = blank(left, right, bottom, top, vertical=0.8)
        _draw_wires(axes, layers, columns, cells)
        for index, (layer, column) in enumerate(zip(layers, columns, strict=True)):
            colour = colours[layer.unit]
            if layer.skip is not None:
                _draw_skip(axes, f"skip-{index}", columns[layer.skip], column, arc_height, colour)
            for wire in range(0, cells, 2):
                box: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 1.0, "zorder": 3}
                draw_switch(axes, column, wire, 0.32, **box, gid=f"switch-{index}-{wire // 2}")
                for start, end in ((0, 0), (1, 1), (0, 1), (1, 0)):
                    edges = [(column - BOX / 2, wire + start), (column + BOX / 2, wire + end)]
                    draw_curve(axes, edges, 0.3, edgecolor="#ffffffb0", linewidth=1.1, zorder=4)
        draw_captions(axes, layers, columns, cells, rule=0.75, text=1.3)
        _draw_blocks(axes, len(layers), columns, cells, blocks)
        axes.legend(handles=handles, ncols=per_row, loc="lower center", frameon=False, labelcolor=INK, handlelength=1)
        save_figure(figure, Path(path), dpi=NETWORK_DPI, text_as_paths=True)


def _draw_wires(axes: Any, layers: Sequence[Layer], columns: list[float], cells: int) -> None:
    """The wires into, between and out of the columns, numbered at both ends."""
    wire: dict[str, Any] = {"edgecolor": WIRE, "linewidth": 1.1, "zorder": 1}
    first, last = columns[0] - BOX / 2, columns[-1] + BOX / 2
    for cell in range(cells):
        draw_curve(axes, [(first - STUB, cell), (first, cell)], 0.3, **wire)
        draw_curve(axes, [(last, cell), (last + STUB, cell)], 0.3, **wire)
        for x, side in ((first - STUB - 0.2, "right"), (last + STUB + 0.2, "left")):
            axes.text(x, cell, cell, ha=side, va="center", color=INK)
    for layer, (here, there) in zip(layers, pairwise(columns), strict=False):
        for arrives, leaves in enumerate(shuffled_wires(layer, cells)):
            draw_curve(axes, [(here + BOX / 2, leaves), (there - BOX / 2, arrives)], 0.3, **wire)


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


def main(paths: list[Path], bits: int = 4, blocks: int = 2, sharing: str = "block") -> None:
    """Draw the network into every file given."""
    for path in paths:
        draw_network(bits, blocks, sharing, path=path)  # type: ignore[arg-type]


if __name__ == "__main__":
    typer.run(main)
