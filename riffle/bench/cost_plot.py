"""Time over length for several numbers of devices, by the model of cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from riffle.bench.plot import DPI, SIZE
from riffle.cost import Machine, ShardedCost, ShardedWork
from riffle.plots import INK, LAST_COLOUR, PALETTE, WIRE, new_figure, save_figure, style

LONGEST, MOST = 36, 10
"""Address bits of the longest sequence drawn, and of the largest number of devices."""
SHORTEST = 20


def draw(path: Path, work: ShardedWork, machine: Machine) -> None:
    """Draw the forward time up to 2^36 cells and 1,024 devices, and which part of it is communication.

    Args:
        path: The file to write: ``.svg``, ``.png`` or what else matplotlib knows.
        work: The network; its own length and number of devices are marked.
        machine: The devices.
    """
    with style(font_size=14):
        figure = new_figure(*SIZE)
        times, shares = figure.subplots(1, 2)
        for index, p in enumerate(range(0, MOST + 1, 2)):
            costs = [
                ShardedCost(replace(work, length=2**k, ranks=2**p), machine)
                for k in range(max(SHORTEST, 2 * p), LONGEST + 1)
            ]
            _line(times, costs, [cost.seconds for cost in costs], PALETTE[index])
            if p:
                _line(shares, costs, [cost.communication_seconds / cost.seconds for cost in costs], PALETTE[index])
        mine = ShardedCost(work, machine)
        times.plot([work.length], [mine.seconds], "o", color=LAST_COLOUR, markersize=9, zorder=5)
        shares.plot(
            [work.length], [mine.communication_seconds / mine.seconds], "o", color=LAST_COLOUR, markersize=9, zorder=5
        )
        what = "forward and backward" if work.training else "forward"
        times.set(yscale="log", ylabel=f"seconds, {what}")
        shares.set(ylim=(0, 1), ylabel="share of communication")
        for axes in (times, shares):
            axes.set_xscale("log", base=2)
            axes.set(xlabel="cells")
            axes.grid(color=WIRE, alpha=0.25)
            axes.legend(frameon=False, labelcolor=INK, fontsize=12)
        blocks = f"{work.blocks} block{'s' * (work.blocks != 1)}"
        figure.suptitle(
            f"{work.features} maps, {blocks}: solid where it fits, dotted where it does not", color=INK, fontsize=14
        )
        save_figure(figure, path, dpi=DPI, text_as_paths=True)


def _line(axes: Any, costs: list[ShardedCost], values: list[float], colour: str) -> None:
    """A line that is solid as far as the memory of the devices reaches."""
    ranks = costs[0].work.ranks
    lengths = [cost.work.length for cost in costs]
    held = [value if cost.fits else float("nan") for cost, value in zip(costs, values, strict=True)]
    axes.plot(lengths, values, ":", color=colour, linewidth=1.5)
    axes.plot(lengths, held, "-", color=colour, linewidth=2.5, label=f"{ranks:,} device{'s' * (ranks != 1)}")
