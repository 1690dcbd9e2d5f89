"""The results of a timing experiment as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from riffle.bench.words import duration, memory


def rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Time and peak of memory by length, a column for each series, and last how they grow."""
    lines = results["series"]
    lengths = sorted({point["length"] for series in lines for point in series["points"]})
    table = [["length", *(f"{series['model']}\n{series['work']}" for series in lines)]]
    for length in lengths:
        cells = []
        for series in lines:
            point = next((point for point in series["points"] if point["length"] == length), None)
            peak = f"\n{memory(point['peak_bytes'])}" if point and point["peak_bytes"] is not None else ""
            cells.append(f"{duration(point['milliseconds'])}{peak}" if point else "")
        table.append([str(length), *cells])
    slopes = ("" if series["slope"] is None else f"{series['slope']:.2f}" for series in lines)
    return [*table, ["slope", *slopes]]
