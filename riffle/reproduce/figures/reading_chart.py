"""The figure of a comparison of readers: accuracy at the end, and on the way there."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from riffle.plots import PALETTE, new_figure, style, style_axes
from riffle.quantities import format_percent
from riffle.reproduce.charts import title as titled
from riffle.reproduce.figures.readers import SPLIT, accuracies
from riffle.reproduce.results import Result, by_group

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reading_figure(results: Sequence[Result], what: str) -> Figure:
    """A bar for each group of runs, and beside it accuracy over steps."""
    with style():
        figure = new_figure(12, 4.8)
        bars, curves = figure.subplots(1, 2)
        found = {group: statistics.mean(accuracies(results, group)) for group in by_group(results)}
        colours = {group: PALETTE[place % len(PALETTE)] for place, group in enumerate(found)}
        drawn = bars.barh(list(found), [100 * share for share in found.values()], color=list(colours.values()))
        bars.bar_label(drawn, [format_percent(share) for share in found.values()], padding=3)
        bars.invert_yaxis()
        bars.margins(x=0.15)  # room for the labels
        bars.set_xlabel(f"accuracy on the {SPLIT} set, %")
        for run in results:
            points = [line for line in run["metrics"] if f"accuracy/{SPLIT}" in line]
            shares = [100 * line[f"accuracy/{SPLIT}"] for line in points]
            curves.plot([line["step"] for line in points], shares, "o-", markersize=3, color=colours[run["group"]])
        curves.set(xlabel="step", ylabel="accuracy, %")
        for axes in (bars, curves):
            style_axes(axes)
        figure.suptitle(titled(what, results), fontsize=12)
    return figure
