"""Charts of the figures: accuracy over steps or lengths, final accuracies with intervals, time and memory over length.

The paper is drawn in :data:`PAPER`, a colour that nothing else has. Lines are labelled at their ends, not in a legend.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from research.bench.over_length import points, slope
from research.reproduce.results import Point, Result
from research.reproduce.verdicts import FEWEST, quantile
from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, style, style_axes
from riffle.quantities import format_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PAPER = LAST_COLOUR
COLOURS = (PALETTE[0], PALETTE[2], PALETTE[4], PALETTE[6], INK, PALETTE[1], WIRE)
WIDTH = 7.5
"""Inches of a page."""
FONT = 8.5
LINES_KEY = "lines: means of the runs; red: the paper"
LENGTHS_KEY = "; bars at the right: lowest to highest run"
POINTS_KEY = "dot: mean of the runs, their number in brackets; bar: its 95% interval; strokes: runs; red: the paper"
LABEL_GAP = 0.052
"""Height of a label at the end of a line, as a share of the panel."""


@dataclass(frozen=True)
class Line:
    """A curve over steps or lengths; of the paper it is dashed, and a single point a diamond."""

    label: str
    points: Sequence[Point]
    colour: int = 0
    paper: bool = False


@dataclass(frozen=True)
class Row:
    """The final accuracies of a group of runs, and the paper's."""

    label: str
    values: Sequence[float]
    paper: float | None = None


@dataclass(frozen=True)
class Panel:
    """A panel of lines; ``low`` is the lower end of the axis of accuracy."""

    title: str
    lines: Sequence[Line]
    x: str = "length"
    low: float = 0.0
    last: float | None = None
    """The upper end of a linear axis of steps; without it the axis is logarithmic."""


def lines_figure(heading: str, panels: Sequence[Panel], height: float = 3.4) -> Figure:
    """Panels of curves in two columns, each curve labelled at its end.

    Over length, a bar beside the last point goes from the lowest to the highest run.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with style(FONT):
        figure = new_figure(WIDTH, 0.4 + height * rows)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=len({panel.low for panel in panels}) == 1)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(heading, fontsize=FONT + 1)
        over_length = any(panel.x == "length" for panel in panels)
        figure.supxlabel(LINES_KEY + LENGTHS_KEY if over_length else LINES_KEY, fontsize=FONT - 1)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    labels: list[tuple[float, str, str]] = []
    for index, line in enumerate(line for line in panel.lines if line.points):
        colour = PAPER if line.paper else COLOURS[line.colour % len(COLOURS)]
        xs, means, lows, highs = (list(numbers) for numbers in zip(*line.points, strict=True))
        if line.paper:
            axes.plot(xs, means, "--D" if len(xs) == 1 else "--", color=colour, linewidth=1, markersize=4, zorder=3)
        else:
            over_length = panel.x == "length"
            axes.plot(xs, means, "-o" if over_length else "-", color=colour, linewidth=1.5, markersize=2.5)
            if over_length:  # beside the last point, where the runs differ most
                axes.vlines(xs[-1] * 1.05 ** (index + 1), lows[-1], highs[-1], color=colour, linewidth=1)
        labels.append((means[-1], line.label, colour))
    if panel.last is None:
        axes.set_xscale("log", base=2 if panel.x == "length" else 10)
    else:
        axes.set_xlim(0, panel.last)
    axes.set(title=panel.title, xlabel=panel.x, ylim=(panel.low, 1 + 0.03 * (1 - panel.low)))
    axes.xaxis.set_major_formatter(_count)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style_axes(axes)
    _label_ends(axes, labels)


def _count(value: float, _: float) -> str:
    """A length, or a number of steps: 64, 4K; 800, 40,000."""
    power = value >= 1 and float(value).is_integer() and not int(value) & (int(value) - 1)
    return format_length(int(value)) if power else f"{value:,.0f}"


def _label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Labels right of the axes at the height of their lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    ordered = sorted(((y - low) / (high - low), text, colour) for y, text, colour in labels)
    heights = [max(y, 0.01) for y, _, _ in ordered]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + LABEL_GAP)
    ceiling = 1.0
    for index in reversed(range(len(heights))):
        heights[index] = min(heights[index], ceiling)
        ceiling = heights[index] - LABEL_GAP
    for y, (_, text, colour) in zip(heights, ordered, strict=True):
        axes.text(1.02, y, text, color=colour, transform=axes.transAxes, va="center", fontsize=FONT - 1)


def points_figure(heading: str, panels: Mapping[str, Sequence[Row]]) -> Figure:
    """Final accuracies by group: every run, their mean with its 95% interval, and the paper's as a diamond."""
    panels = {title: rows for title, rows in panels.items() if any(row.values for row in rows)} or panels or {"": []}
    columns = min(2, len(panels))
    lines = [
        max((len(rows) for rows in list(panels.values())[start : start + columns]), default=1)
        for start in range(0, len(panels), columns)
    ]
    with style(FONT):
        figure = new_figure(WIDTH, 0.5 + sum(0.75 + 0.23 * count for count in lines))
        grid = figure.subplots(
            len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": [3 + n for n in lines]}
        )
        for axes, (title, rows) in zip(grid.flat, panels.items(), strict=False):
            _draw_points(axes, title, rows)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(heading, fontsize=FONT + 1)
        figure.supxlabel(POINTS_KEY, fontsize=FONT - 1)
    return figure


def _draw_points(axes: Axes, title: str, rows: Sequence[Row]) -> None:
    for y, row in enumerate(rows):
        shares = [100 * value for value in row.values]
        if shares:
            mean = statistics.mean(shares)
            axes.plot(shares, [y] * len(shares), "|", color=WIRE, markersize=9)
            axes.plot(mean, y, "o", color=COLOURS[0], markersize=4)
            if len(shares) >= FEWEST:
                half = quantile(len(shares) - 1.0) * statistics.stdev(shares) / len(shares) ** 0.5
                axes.hlines(y, mean - half, mean + half, color=COLOURS[0], linewidth=1.5)
        if row.paper is not None:
            axes.plot(100 * row.paper, y, "D", color=PAPER, markersize=4, markerfacecolor="none")
    values = [100 * value for row in rows for value in (*row.values, *([] if row.paper is None else [row.paper]))]
    if values:
        margin = max(0.1 * (max(values) - min(values)), 0.5)
        axes.set_xlim(min(values) - margin, min(max(values) + margin, 101))
    axes.set_yticks(range(len(rows)), [f"{row.label} ({len(row.values)})" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    style_axes(axes)


def title(text: str, results: Sequence[Result]) -> str:
    """The title of a figure: what it shows, and the hardware of the runs."""
    hardware = ", ".join(sorted({result["hardware"] for result in results}))
    shown = "a quick run of tiny networks" if any(result["quick"] for result in results) else text
    return f"{shown}: {hardware or 'nothing measured yet'}"


def timing_figure(
    results: Mapping[str, Any], title: str, paper: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> Figure:
    """Time and memory over length for both works, beside the ``paper``'s seconds by work and model."""
    numbers = {"milliseconds": (1e-3, "seconds for one sequence"), "peak_bytes": (1e-9, "peak of memory, GB")}
    works = list(dict.fromkeys(series["work"] for series in results["series"]))
    models = list(dict.fromkeys(series["model"] for series in results["series"]))
    measured = {(m, w, n): points(results, m, w, n) for m in models for w in works for n in numbers}
    shown = [name for name in numbers if any(measured[m, w, name] for m in models for w in works)]
    with style(FONT):
        figure = new_figure(WIDTH, 0.4 + 2.8 * len(shown))
        grid = figure.subplots(len(shown), len(works), squeeze=False, sharex=True, sharey="row")
        for axes_of_row, name in zip(grid, shown, strict=True):
            scale, what = numbers[name]
            for axes, work in zip(axes_of_row, works, strict=True):
                axes.set_xscale("log", base=2)
                axes.set_yscale("log")
                for colour, model in enumerate(models):
                    if by_length := measured[model, work, name]:
                        growth = slope(by_length) if name == "milliseconds" else None
                        text = model + (f", n^{growth:.2f}" if growth is not None else "")
                        values = [scale * value for value in by_length.values()]
                        axes.plot(list(by_length), values, "-o", color=COLOURS[colour], markersize=2.5, label=text)
                if name == "milliseconds":
                    for style_of, (model, seconds) in zip(("--D", "--s"), paper.get(work, {}).items(), strict=False):
                        axes.plot(
                            list(seconds), list(seconds.values()), style_of, color=PAPER, markersize=3, linewidth=1,
                            label=f"the paper, {model}",
                        )  # fmt: skip
                else:
                    limit = results["memory"] or 11
                    axes.axhline(limit, color=WIRE, linewidth=1, linestyle=":")
                    axes.text(64, 1.1 * limit, f"{limit:g} GB", color=WIRE, fontsize=FONT - 1)
                axes.xaxis.set_major_formatter(_count)
                axes.set(title=f"{work}: {what}", xlabel="length")
                style_axes(axes)
        grid[0][0].set_ylim(top=grid[0][0].get_ylim()[1] * 1e3)  # room for the legends
        for axes in grid[0]:
            axes.legend(frameon=False, fontsize=FONT - 1.5, loc="upper left", labelcolor="linecolor")
        title = "a quick run of small models" if results["quick"] else title
        figure.suptitle(f"{title}: {results['device']}, torch {results['versions']['torch']}", fontsize=FONT + 1)
    return figure
