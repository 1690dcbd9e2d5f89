"""``riffle reproduce``: measure a figure of the paper again, and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from riffle.bench.words import duration, memory
from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, progress_bar
from riffle.experiments import EXPERIMENTS, get_experiment

if TYPE_CHECKING:
    from riffle.experiments.series import Series


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="; ".join(f"[bold]{name}[/]: {what}" for name, what in EXPERIMENTS.items()) + ".", metavar="NAME"
        ),
    ],
    memory: Annotated[
        float | None,
        typer.Option(help="Gigabytes of the GPU that may be used; the paper's had 11.", min=1, show_default="all"),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Seconds that one call may take; longer lengths are left out.", min=0.01)
    ] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small models and short lengths: seconds on a CPU.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="results/NAME, runs/NAME with --quick")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure an experiment of the paper anew: results.json, a figure drawn from it, and what of the claims holds."""
    import torch

    from riffle.experiments.run import draw, results_path, run

    experiment = get_experiment(name)
    place = torch.device(choose_device(device))
    folder = out or Path("runs" if quick else "results") / name
    with progress_bar() as bar:
        job = bar.add_task(name, total=sum(len(series.lengths) for series in experiment.configs(quick=quick)))

        def on_point(series: Series, point: dict[str, Any]) -> None:
            bar.update(job, advance=1, description=f"{series.model}, {series.work}, {point['length']}")

        def on_series(series: Series, found: dict[str, Any]) -> None:
            bar.advance(job, len(series.lengths) - len(found["points"]))
            if found["stopped"]:
                bar.console.print(f"{series.model}, {series.work}: {found['stopped']}", highlight=False, markup=False)

        results = run(
            name,
            experiment,
            folder,
            place,
            memory=memory,
            budget=budget,
            quick=quick,
            on_point=on_point,
            on_series=on_series,
        )
    if json:
        print_json(results)
    else:
        output.print(_table(results))
        for claim in results["claims"]:
            verdict = {True: "[green]holds[/]", False: "[red]does not hold[/]", None: "[yellow]open[/]"}[claim["holds"]]
            output.print(f"{verdict}: {escape(claim['statement'])}: {escape(claim['evidence'])}", highlight=False)
    path = results_path(folder, memory)
    drawn = ", ".join(map(str, draw(experiment, path)))
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
            peak = f"\n{memory(point['peak_bytes'])}" if point and point["peak_bytes"] is not None else ""
            cells.append(f"{duration(point['milliseconds'])}{peak}" if point else "")
        table.add_row(str(length), *cells)
    table.add_section()
    table.add_row("slope", *("" if series["slope"] is None else f"{series['slope']:.2f}" for series in lines.values()))
    return table
