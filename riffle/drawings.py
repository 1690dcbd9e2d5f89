"""A drawing of the network, made from its schedule: ``python -m riffle.drawings network.svg network.png``.

Cells enter on the left as wires. Every column is a switch layer, its boxes coloured by the unit whose weights they use;
the wires between columns are the shuffles, the arcs above them the skip connections.

A drawing of a permutation's way through the network: ``python -m riffle.drawings route.svg 3 1 0 2``.

Every message is a line of its own colour from the wire where it enters, on the left, to the one where it comes out. The
switches it passes are boxes, filled where they are crossed. Columns are layers, the wires between them are shuffles.
"""

# Coordinates: wires are 1 apart and numbered downwards, columns are COLUMN apart and numbered to the right
# Coordinates: wires are 1 apart and numbered downwards, columns are numbered to the right
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import torch

from riffle.plots import INCH, INK, LAST_COLOUR, PALETTE, WIRE, save_figure
from riffle.routing import Settings, route, trace
from riffle.shuffle import SHUFFLES, Layer, Sharing, schedule

COLUMN, BOX, STUB = 2.7, 1.05, 1.2
"""From column to column, the width of a switch, and the wires before the first and after the last one."""
TIMES = "\N{MULTIPLICATION SIGN}"
HALVES = {1: "forward half: unriffle", -1: "reverse half: riffle", 0: "last"}
ENTRY = 4.6
"""The width of an entry of the legend."""


def draw_network(k: int = 4, blocks: int = 2, sharing: Sharing = "block", *, path: str | Path) -> None:
    """Draw a network of ``blocks`` Beneš blocks on ``2**k`` cells.

    Args:
        k: Address bits; the drawing has ``2**k`` wires.
        blocks: Beneš blocks.
        sharing: Which layers share their weights, see :func:`riffle.shuffle.schedule`.
        path: The file to write: ``.svg``, ``.png`` or what else matplotlib knows.
    """
    import matplotlib
    from matplotlib.figure import Figure

    layers, cells = schedule(k, blocks, sharing), 2**k
    colours = _colours(layers)
    columns = [COLUMN * index for index in range(len(layers))]
    left, right = columns[0] - BOX / 2 - STUB - 1, columns[-1] + BOX / 2 + STUB + 1
    handles = _handles(layers, colours)
    per_row = max(1, int((right - left) / ENTRY))
    rise, rows = _rise(layers), -(-len(handles) // per_row)
    top, bottom = -1.2 - rise, cells + 3.3 + 0.9 * rows
    size = (INCH * (right - left), 0.8 * INCH * (bottom - top))
    with matplotlib.rc_context({"svg.hashsalt": "riffle", "font.family": "DejaVu Sans", "font.size": 10.5}):
        figure = Figure(figsize=size, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        _wires(axes, layers, columns, cells)
        for index, (layer, column) in enumerate(zip(layers, columns, strict=True)):
            if layer.skip is not None:
                _skip(axes, f"skip-{index}", columns[layer.skip], column, rise, colours[layer.unit])
            for pair in range(cells // 2):
                _switch(axes, f"switch-{index}-{pair}", column, 2 * pair, colours[layer.unit])
        _captions(axes, layers, columns, cells, blocks)
        axes.legend(handles=handles, ncols=per_row, loc="lower center", frameon=False, labelcolor=INK, handlelength=1)
        save_figure(figure, Path(path))


def _colours(layers: tuple[Layer, ...]) -> dict[str, str]:
    units = list(dict.fromkeys(layer.unit for layer in layers))
    return {unit: LAST_COLOUR if unit == "last" else PALETTE[i % len(PALETTE)] for i, unit in enumerate(units)}


def _rise(layers: tuple[Layer, ...]) -> float:
    """How high the arcs of the skip connections reach."""
    spans = [index - layer.skip for index, layer in enumerate(layers) if layer.skip is not None]
    return 0.55 * max(spans, default=0)


def _curve(axes: Any, x0: float, y0: float, x1: float, y1: float, colour: str = WIRE, zorder: int = 1) -> None:
    """A wire, level where it leaves and where it arrives."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    level = 0.3 * (x1 - x0)
    codes = (Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4)
    curve = Curve([(x0, y0), (x0 + level, y0), (x1 - level, y1), (x1, y1)], codes)
    axes.add_patch(PathPatch(curve, fill=False, edgecolor=colour, linewidth=1.1, zorder=zorder))


def _wires(axes: Any, layers: tuple[Layer, ...], columns: list[float], cells: int) -> None:
    first, last = columns[0] - BOX / 2, columns[-1] + BOX / 2
    for cell in range(cells):
        _curve(axes, first - STUB, cell, first, cell)
        _curve(axes, last, cell, last + STUB, cell)
        for x, side in ((first - STUB - 0.2, "right"), (last + STUB + 0.2, "left")):
            axes.text(x, cell, cell, ha=side, va="center", color=INK)
    positions = torch.arange(cells).view(1, cells, 1)
    for layer, here, there in zip(layers, columns, columns[1:], strict=False):
        for arrives, leaves in enumerate(SHUFFLES[layer.shuffle](positions).flatten().tolist()):
            _curve(axes, here + BOX / 2, leaves, there - BOX / 2, arrives)


def _switch(axes: Any, name: str, column: float, wire: int, colour: str) -> None:
    """A switch on two wires: what goes straight and what is exchanged."""
    from matplotlib.patches import FancyBboxPatch

    box = FancyBboxPatch(
        (column - BOX / 2, wire - 0.32), BOX, 1.64, boxstyle="round,pad=0,rounding_size=0.22", zorder=3
    )
    box.set(facecolor=colour, edgecolor="white", linewidth=1.0, gid=name)
    axes.add_patch(box)
    for start, end in ((0, 0), (1, 1), (0, 1), (1, 0)):
        _curve(axes, column - BOX / 2, wire + start, column + BOX / 2, wire + end, "#ffffffb0", 4)


def _skip(axes: Any, name: str, source: float, target: float, rise: float, colour: str) -> None:
    """An arc from the input of one layer to another layer."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    # It leaves from the wires and enters the switches: only gates and candidates read it.
    (x0, y0), (x1, y1) = (source - BOX / 2 - 0.3, 0.0), (target, -0.36)
    arc = Curve(
        [(x0, y0), (x0, -1.33 * rise), (x1, -1.33 * rise), (x1, y1)],
        (Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4),
    )
    arrow = FancyArrowPatch(path=arc, arrowstyle="-|>", mutation_scale=11, zorder=2, gid=name)
    arrow.set(edgecolor=colour, facecolor=colour, linewidth=1.4, alpha=0.7)
    axes.add_patch(arrow)
    axes.plot(x0, y0, "o", color=colour, markersize=4.5, zorder=2)


def _captions(axes: Any, layers: tuple[Layer, ...], columns: list[float], cells: int, blocks: int) -> None:
    """Under every column its address bit, under the columns of a half block the shuffle that follows them."""
    from matplotlib.patches import FancyBboxPatch

    axes.text(columns[0] - BOX / 2 - STUB, cells + 0.1, "bit", ha="center", va="center", color=INK)
    for layer, column in zip(layers, columns, strict=True):
        axes.text(column, cells + 0.1, layer.bit, ha="center", va="center", color=INK, weight="bold")
    start = 0
    for shuffle, half in groupby(layers, key=lambda layer: layer.shuffle):
        end = start + len(list(half)) - 1
        x0, x1 = columns[start] - BOX / 2, columns[end] + BOX / 2
        axes.plot((x0, x1), (cells + 0.75,) * 2, color=INK, linewidth=1.0)
        text = HALVES[shuffle] if end > start else HALVES[shuffle].rpartition(" ")[2]
        axes.text((x0 + x1) / 2, cells + 1.3, text, ha="center", va="center", color=INK)
        start = end + 1
    size = (len(layers) - 1) // blocks
    for block in range(blocks if size else 0):
        x0, x1 = columns[block * size] - 0.9 * BOX, columns[(block + 1) * size - 1] + 0.9 * BOX
        band = FancyBboxPatch((x0, -0.75), x1 - x0, cells + 3.3, boxstyle="round,pad=0,rounding_size=0.3", zorder=0)
        band.set(facecolor="#f3f5f8", edgecolor="none")
        axes.add_patch(band)
        axes.text((x0 + x1) / 2, cells + 2.05, f"Beneš block {block}", ha="center", va="center", color=INK)


def _handles(layers: tuple[Layer, ...], colours: dict[str, str]) -> list[Any]:
    """The entries of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    counts = Counter(layer.unit for layer in layers)
    handles: list[Any] = [Patch(color=colours[unit], label=f"{unit} {TIMES}{count}") for unit, count in counts.items()]
    if any(layer.shuffle for layer in layers):
        handles.append(Line2D([], [], color=WIRE, label="shuffle"))
    if any(layer.skip is not None for layer in layers):
        handles.append(
            Line2D([], [], color=LAST_COLOUR, marker=">", markevery=[-1], alpha=0.7, label="skip connection")
        )
    return handles


def main(paths: list[Path], bits: int = 4, blocks: int = 2, sharing: str = "block") -> None:
    """Draw the network into every file given."""
    for path in paths:
        draw_network(bits, blocks, sharing, path=path)  # type: ignore[arg-type]


if __name__ == "__main__":
    import typer

    typer.run(main)
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
        _captions_draw_route(axes, layers, columns, cells)
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


def _captions_draw_route(axes: Any, layers: tuple[Layer, ...], columns: list[float], cells: int) -> None:
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
    for shuffle, half in groupby(layers, key=lambda layer: layer.shuffle):
        last = first + len(list(half)) - 1
        x0, x1 = columns[first] - BOX / 2, columns[last] + BOX / 2
        axes.plot((x0, x1), (cells + 0.7,) * 2, color=INK, linewidth=1.0)
        text = HALVES[shuffle] if last > first else HALVES[shuffle].rpartition(" ")[2]
        axes.text((x0 + x1) / 2, cells + 1.2, text, **style)
        first = last + 1


def main_route(path: Path, permutation: list[int]) -> None:
    """Draw how the network carries out a permutation."""
    draw_route(permutation, path)


if __name__ == "__main__":
    import typer

    typer.run(main_route)
