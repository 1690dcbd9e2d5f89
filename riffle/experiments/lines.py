"""The figure of learned accuracy: panels of lines over steps or lengths, each with the spread of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riffle.draw import INK, LAST, PALETTE, WIRE
from riffle.experiments.chart import STYLE
from riffle.experiments.results import Point, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (PALETTE[0], PALETTE[2], PALETTE[4], PALETTE[6], LAST, INK, WIRE)


@dataclass(frozen=True)
class Line:
    """A group of runs, or a curve of the paper."""

    label: str
    points: Sequence[Point]
    paper: float | None = None
    """What the paper has in the end, drawn as a cross at the last point."""
    colour: int = 0
    """Its place among the colours, the same in all panels."""
    faint: bool = False
    """Whether it is dotted: for the paper's curves."""


def lines_figure(heading: str, panels: Mapping[str, Sequence[Line]], *, lengths: bool = False) -> Figure:
    """Panels side by side, accuracy upwards; those that nothing is known of yet are left out, unless all are.

    Args:
        heading: Above all panels, see :func:`title`.
        panels: The lines of each panel by its title.
        lengths: Whether lines go over lengths, on a logarithmic axis; over steps otherwise.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = {name: lines for name, lines in panels.items() if any(line.points for line in lines)} or panels
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 5 * columns, 0.8 + 4 * rows), facecolor="white", layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (name, drawn) in zip(grid, panels.items(), strict=False):
            _draw(axes, name, drawn, lengths)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(heading, fontsize=12)
    return figure


def title(text: str, results: Sequence[Result]) -> str:
    """The title of a figure: what is shown, and where the runs were made."""
    places = ", ".join(sorted({result["hardware"] for result in results}))
    shown = "a quick run of tiny networks" if any(result["quick"] for result in results) else text
    return f"{shown}: {places or 'nothing measured yet'}"


def _draw(axes: Axes, name: str, lines: Sequence[Line], lengths: bool) -> None:
    for line in lines:
        if not line.points:
            continue
        colour = COLOURS[line.colour % len(COLOURS)]
        xs, means, lows, highs = (list(numbers) for numbers in zip(*line.points, strict=True))
        mark = "o" if lengths and not line.faint else None
        axes.plot(xs, means, ":" if line.faint else "-", color=colour, marker=mark, markersize=3, label=line.label)
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
        if line.paper is not None:
            axes.plot(xs[-1], line.paper, "x", color=colour)
    if lengths:
        axes.set_xscale("log", base=2)
    axes.set(title=name, xlabel="length" if lengths else "step", ylabel="symbols right", ylim=(-0.02, 1.03))
    axes.grid(alpha=0.3)
    if any(line.points for line in lines):
        axes.legend(frameon=False, fontsize=8, loc="best")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
