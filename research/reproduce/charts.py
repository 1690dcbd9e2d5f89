"""Charts of the figures: accuracy over steps or lengths, and time and memory over length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from research.bench.over_length import points, slope
from research.reproduce.results import Point, Result
from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, style, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LINE_COLOURS = (PALETTE[0], PALETTE[2], PALETTE[4], PALETTE[6], LAST_COLOUR, INK, WIRE)
WORK_STYLES = {"evaluation": "-o", "training": "--s"}


@dataclass(frozen=True)
class Line:
    """A group of runs, or a dotted curve of the paper; ``colour`` is an index, the same in all panels."""

    label: str
    points: Sequence[Point]
    paper: float | None = None
    """The paper's final accuracy, drawn as a cross at the last point."""
    colour: int = 0
    dotted: bool = False


def lines_figure(heading: str, panels: Mapping[str, Sequence[Line]], *, lengths: bool = False) -> Figure:
    """Panels of accuracy over steps or lengths, by title; those without any point are left out, unless all are."""
    panels = {name: lines for name, lines in panels.items() if any(line.points for line in lines)} or panels
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    with style():
        figure = new_figure(1.5 + 5 * columns, 0.8 + 4 * rows)
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (name, lines) in zip(grid, panels.items(), strict=False):
            _draw_lines(axes, name, lines, lengths)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(heading, fontsize=12)
    return figure


def table_figure(heading: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> Figure:
    """A table of percentages, each cell the darker the higher it is; None is left empty."""
    with style():
        figure = new_figure(3 + 0.85 * len(columns), 1.6 + 0.33 * len(rows))
        axes = figure.subplots()
        shades = [[0.0 if value is None else value for value in row] for row in rows.values()]
        axes.imshow(shades, cmap="Blues", vmin=0, vmax=180, aspect="auto")
        for y, row in enumerate(rows.values()):
            for x, value in enumerate(row):
                axes.text(x, y, "" if value is None else f"{value:.1f}", ha="center", va="center")
        axes.set_xticks(range(len(columns)), [column.replace(", ", "\n") for column in columns])
        axes.set_yticks(range(len(rows)), list(rows))
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        figure.suptitle(heading, fontsize=12)
    return figure


def title(text: str, results: Sequence[Result]) -> str:
    """The title of a figure: what it shows, and the hardware of the runs."""
    hardware = ", ".join(sorted({result["hardware"] for result in results}))
    shown = "a quick run of tiny networks" if any(result["quick"] for result in results) else text
    return f"{shown}: {hardware or 'nothing measured yet'}"


def _draw_lines(axes: Axes, name: str, lines: Sequence[Line], lengths: bool) -> None:
    drawn = [line for line in lines if line.points]
    for line in drawn:
        colour = LINE_COLOURS[line.colour % len(LINE_COLOURS)]
        xs, means, lows, highs = (list(numbers) for numbers in zip(*line.points, strict=True))
        marker = "o" if lengths and not line.dotted else None
        axes.plot(xs, means, ":" if line.dotted else "-", color=colour, marker=marker, markersize=3, label=line.label)
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
        if line.paper is not None:
            axes.plot(xs[-1], line.paper, "x", color=colour)
    if lengths:
        axes.set_xscale("log", base=2)
    axes.set(title=name, xlabel="length" if lengths else "step", ylabel="symbols right", ylim=(-0.02, 1.03))
    if drawn:
        axes.legend(frameon=False, fontsize=8, loc="best")
    style_axes(axes)


def timing_figure(results: Mapping[str, Any], title: str) -> Figure:
    """Time and memory over length, both axes logarithmic; the legend gives the exponent of each series' growth."""
    has_memory = any(points(results, s["model"], s["work"], "peak_bytes") for s in results["series"])
    with style():
        figure = new_figure(13 if has_memory else 7.5, 5.8)
        panels = figure.subplots(1, 2 if has_memory else 1, squeeze=False)[0]
        _draw_series(panels[0], results, "milliseconds", 1e-3, "seconds for one sequence")
        if has_memory:
            _draw_series(panels[1], results, "peak_bytes", 1e-9, "peak of memory, GB")
            limit = results["memory"] or 11
            panels[1].axhline(limit, color=WIRE, linewidth=1, linestyle=":")
            panels[1].text(64, limit * 1.1, f"{limit:g} GB", color=WIRE)
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
        title = "a quick run of small models" if results["quick"] else title
        figure.suptitle(f"{title}: {results['device']}, torch {results['versions']['torch']}", fontsize=12)
    return figure


def _draw_series(axes: Axes, results: Mapping[str, Any], number: str, scale: float, ylabel: str) -> None:
    models = dict.fromkeys(series["model"] for series in results["series"])
    colours = dict(zip(models, LINE_COLOURS, strict=False))
    for series in results["series"]:
        model, work = series["model"], series["work"]
        by_length = points(results, model, work, number)
        if not by_length:
            continue
        growth = slope(by_length)
        label = f"{model}, {work}" + (f", n^{growth:.2f}" if growth is not None else "")
        values = [value * scale for value in by_length.values()]
        axes.plot(list(by_length), values, WORK_STYLES[work], color=colours[model], markersize=4, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="length", ylabel=ylabel)
    style_axes(axes)
