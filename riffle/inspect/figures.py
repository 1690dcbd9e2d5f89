"""Pictures of what :mod:`riffle.inspect` finds: gates, states, the dependence map, where errors fall.

Every function gives a matplotlib figure, for :func:`riffle.plots.save_figure` or for a notebook to show.
"""

# N = length, D = features per cell
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from riffle.inspect.trace import Trace
from riffle.plots import GRID, INK, LAST_COLOUR, PALETTE, new_figure, style, unit_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LAYER = 8.0, 0.56
"""Inches across a column of layers, and down for each of them."""
FONT_SIZE = 9
SETTINGS: dict[str, Any] = dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), INK)
SETTINGS |= {"axes.edgecolor": GRID, "axes.titlesize": 11, "axes.titlelocation": "left"}


def gates_figure(trace: Trace, *, row: int = 0) -> Figure:
    """The update gate of every layer: an image of positions across and features down, dark where a cell is copied."""
    shown = [layer.update[row] for layer in trace.layers if layer.update is not None]
    if not shown:
        raise ValueError("the units of this network have no update gate")
    return _column(trace, shown, "update gate: 1 copies a feature, 0 computes it anew", "mean", "cividis_r", (0, 1))


def states_figure(trace: Trace, *, row: int = 0) -> Figure:
    """What leaves every layer: an image of positions across and features down."""
    shown = [layer.out[row] for layer in trace.layers]
    limit = max(1.0, *(float(image.abs().max()) for image in shown))
    return _column(trace, shown, "state after the layer", "mean size", "RdBu_r", (-limit, limit))


def dependence_figure(dependence_NN: Tensor, *, title: str = "what each output depends on") -> Figure:
    """The map of :func:`riffle.inspect.dependence`: outputs down, inputs across, dark where the output depends."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    ticks = _ticks(len(dependence_NN))
    with style(FONT_SIZE, **SETTINGS):
        figure = new_figure(6.4, 5.6)
        axes = figure.add_subplot()
        norm = PowerNorm(0.5, 0, float(dependence_NN.max()))
        image = axes.imshow(_array(dependence_NN), cmap=_ink(), norm=norm, interpolation="nearest", aspect="equal")
        axes.set(title=title, xlabel="input position", ylabel="output position", xticks=ticks, yticks=ticks)
        label = "norm of the Jacobian's block"
        bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.02, label=label, ticks=MaxNLocator(5))
        bar.outline.set_visible(False)
    return figure


def errors_figure(
    rates: Tensor, lengths: Sequence[int], *, trained_length: int | None = None, title: str = "where errors fall"
) -> Figure:
    """The map of :func:`riffle.inspect.errors_over_length`: lengths down, relative positions across."""
    from matplotlib.colors import LogNorm

    with style(FONT_SIZE, **SETTINGS):
        figure = new_figure(WIDTH, 1.5 + 0.36 * len(lengths))
        axes = figure.add_subplot()
        colours = {"cmap": _ink().with_extremes(under="white", bad=GRID), "norm": LogNorm(1e-4, 1)}
        shape: dict[str, Any] = {"extent": (0, 1, len(lengths) - 0.5, -0.5), "aspect": "auto"}
        image = axes.imshow(_array(rates.clamp(min=1e-9)), **colours, **shape, interpolation="nearest")
        for index in range(1, len(lengths)):
            axes.axhline(index - 0.5, color=GRID, linewidth=0.8)
        for index, rate in enumerate(rates.nanmean(dim=1).tolist()):
            axes.text(1.015, index, f"{100 * rate:.2g}%", va="center", transform=axes.get_yaxis_transform())
        axes.text(1.015, -0.5, "mean", va="bottom", color="0.4", transform=axes.get_yaxis_transform())
        axes.set_yticks(range(len(lengths)), [str(length) for length in lengths])
        trained = sum(length <= (trained_length or 0) for length in lengths)
        if 0 < trained < len(lengths):
            axes.axhline(trained - 0.5, color=LAST_COLOUR, linewidth=1.6)
            axes.text(0.005, trained - 0.55, "trained up to here", color=LAST_COLOUR, va="bottom", fontsize=8)
        axes.set(title=title, xlabel="position, as a share of the length", ylabel="length")
        bar = figure.colorbar(image, ax=axes, pad=0.07, extend="min", label="share of wrong symbols", fraction=0.05)
        bar.outline.set_visible(False)
    return figure


def _column(trace: Trace, shown: list[Tensor], title: str, number: str, cmap: str, limits: tuple[float, float]) -> Any:
    """One image ``[N, D]`` for each layer below the other, with the layer's unit and address bit beside it."""
    from matplotlib.patches import Rectangle

    layers = [seen.layer for seen in trace.layers]
    colours = unit_colours(layer.unit for layer in layers)
    features_D = _order(trace)
    with style(FONT_SIZE, **SETTINGS):
        figure = new_figure(WIDTH, 1.1 + LAYER * len(layers))
        layout: Any = figure.get_layout_engine()
        layout.set(h_pad=0.02, hspace=0.0, w_pad=0.06)
        rows = figure.subplots(len(layers), 1, sharex=True, squeeze=False)[:, 0]
        for index, (axes, layer, image) in enumerate(zip(rows, layers, shown, strict=True)):
            image = image[: trace.length, features_D]
            pixels = {"vmin": limits[0], "vmax": limits[1], "aspect": "auto", "interpolation": "nearest"}
            picture = axes.imshow(_array(image.T), cmap=cmap, **pixels)
            axes.axhline(len(features_D) / 2 - 0.5, color="white", linewidth=1)
            axes.tick_params(left=False, labelleft=False, bottom=index == len(layers) - 1)
            axes.spines[:].set_visible(False)
            beside = {"transform": axes.transAxes, "va": "center"}
            # A bar in the colour that the unit has in the drawing of the network.
            bar_place: dict[str, Any] = {"clip_on": False, "transform": axes.transAxes}
            axes.add_patch(Rectangle((-0.022, 0.0), 0.012, 1.0, facecolor=colours[layer.unit], **bar_place))
            axes.text(-0.035, 0.66, layer.unit, ha="right", **beside)
            axes.text(-0.035, 0.26, f"bit {layer.bit}", ha="right", color="0.4", **beside)
            axes.text(1.012, 0.5, f"{float(image.float().abs().mean()):.2f}", ha="left", **beside)
        rows[0].set_title(title, pad=22)
        above = {"transform": rows[0].transAxes, "va": "center", "color": "0.4"}
        rows[0].text(0, 1.2, "features down, below the white line the half that swapHalf exchanges", **above)
        rows[0].text(1.012, 1.2, number, **above)
        rows[-1].set_xticks(_ticks(trace.length))
        rows[-1].set_xlabel("original address" if trace.order == "in-place" else "place after the shuffles")
        bar = figure.colorbar(picture, ax=list(rows), shrink=min(1, 3 / (LAYER * len(layers))), pad=0.07, aspect=24)
        bar.outline.set_visible(False)
    return figure


def _order(trace: Trace) -> Tensor:
    """Features in the order in which to show them: in each half, those that are copied most come first."""
    half = trace.output.shape[-1] // 2
    updates = [layer.update.float().mean(dim=(0, 1)).cpu() for layer in trace.layers if layer.update is not None]
    mean_D = torch.stack(updates).mean(dim=0) if updates else torch.zeros(2 * half)
    first, second = (part.argsort(descending=True, stable=True) for part in mean_D.chunk(2))
    return torch.cat((first, second + half))


def _ink() -> Any:
    """White, where nothing is, over blue to nearly black."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ink", ["white", "#bcd7f0", PALETTE[0], "#1b2f57", "#0b1020"])


def _ticks(length: int) -> list[int]:
    """About eight round positions, the first and the last cell among them."""
    step = max(1, 2 ** max(0, (length - 1).bit_length() - 3))
    return [*range(0, length - step // 2, step), length - 1]


def _array(x: Tensor) -> Any:
    return x.detach().to("cpu", torch.float32).numpy()
