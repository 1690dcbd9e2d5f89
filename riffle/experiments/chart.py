"""The figure of a timing experiment: time over length, and beside it the peak of memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riffle.draw import INK, PALETTE, WIRE, save_figure
from riffle.experiments.series import names, points, slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (PALETTE[0], PALETTE[2], PALETTE[4], PALETTE[6])
LINES: dict[str, str] = {"evaluation": "-", "training": "--"}
MARKS: dict[str, str] = {"evaluation": "o", "training": "s"}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "svg.hashsalt": "riffle",
    "svg.fonttype": "none",  # text that can be found and copied, at half the size
}


def timing_figure(results: Mapping[str, Any], title: str) -> Figure:
    """Time and memory over length, both axes logarithmic; a slope stands beside each name."""
    import matplotlib
    from matplotlib.figure import Figure

    has_memory = any(points(results, s["model"], s["work"], "peak_bytes") for s in results["series"])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(13 if has_memory else 7.5, 5.8), facecolor="white", layout="constrained")
        panels = figure.subplots(1, 2 if has_memory else 1, squeeze=False)[0]
        _draw(panels[0], results, "milliseconds", 1e-3, "seconds for one sequence")
        if has_memory:
            _draw(panels[1], results, "peak_bytes", 1e-9, "peak of memory, GB")
            limit = results["memory"] or 11
            panels[1].axhline(limit, color=WIRE, linewidth=1, linestyle=":")
            panels[1].text(64, limit * 1.1, f"{limit:g} GB", color=WIRE)
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
        title = "a quick run of small models" if results["quick"] else title
        figure.suptitle(f"{title}: {results['device']}, torch {results['versions']['torch']}", fontsize=12)
    return figure


def save(figure: Figure, *paths: Path) -> None:
    """Write a figure into every file given."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        for path in paths:
            save_figure(figure, path, 150)


def _draw(axes: Axes, results: Mapping[str, Any], number: str, scale: float, label: str) -> None:
    colours = dict(zip(names(results), COLOURS, strict=False))
    for series in results["series"]:
        model, work = series["model"], series["work"]
        found = points(results, model, work, number)
        if not found:
            continue
        growth = slope(found)
        exponent = f", n^{growth:.2f}" if growth is not None else ""
        axes.plot(
            list(found),
            [value * scale for value in found.values()],
            LINES[work] + MARKS[work],
            color=colours[model],
            markersize=4,
            label=f"{model}, {work}{exponent}",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="length", ylabel=label)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
