"""The figure of a comparison of networks: accuracy at the end, and on the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riffle.draw import PALETTE
from riffle.experiments.chart import STYLE
from riffle.experiments.learning import accuracies

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning_figure(results: Mapping[str, Any], title: str) -> Figure:
    """A bar for each network, and beside it accuracy over steps."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 4.8), facecolor="white", layout="constrained")
        bars, curves = figure.subplots(1, 2)
        found = accuracies(results)
        colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(found)}
        drawn = bars.barh(list(found), [100 * share for share in found.values()], color=list(colours.values()))
        bars.bar_label(drawn, fmt="%.2f", padding=3)
        bars.invert_yaxis()
        bars.set_xlabel(f"accuracy on the {results['split']} set, %")
        for line in results["series"]:
            steps, shares = ([point[part] for point in line["curve"]] for part in ("step", "accuracy"))
            curves.plot(steps, [100 * share for share in shares], "o-", markersize=3, color=colours[line["name"]])
        curves.set(xlabel="step", ylabel="accuracy, %")
        for axes in (bars, curves):
            axes.grid(alpha=0.3)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        title = "a quick run of small networks" if results["quick"] else title
        figure.suptitle(f"{title}: {results['device']}, torch {results['versions']['torch']}", fontsize=12)
    return figure
