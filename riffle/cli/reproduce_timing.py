"""``riffle reproduce`` of what takes time: its progress and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from riffle.cli.display import choose_device, errors, output, print_claims, print_json, progress_bar
from riffle.quantities import format_bytes as size
from riffle.quantities import format_milliseconds
from riffle.reproduce import get_figure

if TYPE_CHECKING:
    from riffle.bench.over_length import Series


def measure(
    name: str,
    root: Path,
    only: Sequence[str],
    device: str,
    *,
    memory: float | None,
    budget: float,
    quick: bool,
    commit: str | None,
) -> None:
    """Measure the series of an experiment behind a progress bar."""
    import torch

    from riffle.reproduce.timing_runs import measure_figure, selected

    figure = get_figure(name)
    place = torch.device(choose_device(device))
    series = selected(figure.configs(quick=quick), only)
    with progress_bar() as bar:
        job = bar.add_task(name, total=sum(len(each.lengths) for each in series))

        def on_point(series: Series, point: dict[str, Any]) -> None:
            bar.update(job, advance=1, description=f"{series.name}, {point['length']}")

        def on_series(series: Series, found: dict[str, Any]) -> None:
            bar.advance(job, len(series.lengths) - len(found["points"]))
            stopped = f"; {found['stopped']}" if found["stopped"] else ""
            said = f"{series.name}: {len(found['points'])} lengths in {found['seconds']:.0f} s{stopped}"
            bar.console.print(said, highlight=False, markup=False)

        measure_figure(
            name,
            series,
            root / name,
            place,
            memory=memory,
            budget=budget,
            quick=quick,
            commit=commit,
            add=bool(only),
            on_point=on_point,
            on_series=on_series,
        )


def show(name: str, root: Path, memory: float | None, *, json: bool) -> None:
    """Draw the figure of the results, and print them and the claims."""
    from riffle.reproduce.timing_runs import draw_timing, read_timing, results_path

    path = results_path(root / name, memory)
    results = read_timing(path)
    claims = get_figure(name).claims(results)
    drawn = ", ".join(map(str, draw_timing(get_figure(name), path)))
    if json:
        print_json({**results, "claims": [claim._asdict() for claim in claims]})
    else:
        output.print(_table(results))
        print_claims(claims)
    errors.print(f"numbers: {path}   figure: {drawn}", markup=False, soft_wrap=True)


def _table(results: dict[str, Any]) -> Table:
    lines = {(series["model"], series["work"]): series for series in results["series"]}
    lengths = sorted({point["length"] for series in lines.values() for point in series["points"]})
    table = Table(title=f"{results['experiment']}: {results['device']}", title_justify="left", header_style="bold")
    table.add_column("length", justify="right")
    for model, work in lines:
        table.add_column(f"{model}\n{work}", justify="right")
    for length in lengths:
        cells = []
        for series in lines.values():
            point = next((point for point in series["points"] if point["length"] == length), None)
            peak = f"\n{size(point['peak_bytes'])}" if point and point["peak_bytes"] is not None else ""
            cells.append(f"{format_milliseconds(point['milliseconds'])}{peak}" if point else "")
        table.add_row(str(length), *cells)
    table.add_section()
    table.add_row("slope", *("" if series["slope"] is None else f"{series['slope']:.2f}" for series in lines.values()))
    return table
