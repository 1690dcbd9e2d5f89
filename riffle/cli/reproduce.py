"""``riffle reproduce``: measure a figure of the paper again, and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, progress_bar
from riffle.experiments import EXPERIMENTS, get_experiment


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="; ".join(f"[bold]{name}[/]: {what}" for name, what in EXPERIMENTS.items()) + ".", metavar="NAME"
        ),
    ],
    memory: Annotated[
        float | None,
        typer.Option(
            help="Timing: gigabytes of the GPU that may be used; the paper's had 11.", min=1, show_default="all"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Timing: seconds that one call may take; longer lengths are left out.", min=0.01)
    ] = 10.0,
    corpus: Annotated[
        Path | None,
        typer.Option(help="LAMBADA: folder that riffle lambada prepare made.", show_default="data/lambada"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="LAMBADA: steps of each run.", min=1, show_default="as riffle lambada train")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small models and short lengths: seconds on a CPU.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="results/NAME, runs/NAME with --quick")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure an experiment of the paper anew: results.json, a figure drawn from it, and what of the claims holds."""
    import torch

    from riffle.experiments.kind import Settings
    from riffle.experiments.run import draw, results_path, run
    from riffle.train.loop import Interrupted, NonFiniteLoss

    experiment = get_experiment(name)
    place = torch.device(choose_device(device))
    folder = out or Path("runs" if quick else "results") / name
    settings = Settings(quick=quick, memory=memory, budget=budget, corpus=corpus, steps=steps, runs=Path("runs") / name)
    with progress_bar() as bar:
        job = bar.add_task(name, total=len(experiment.configs(quick=quick)))

        def on_line(found: dict[str, Any]) -> None:
            if found.get("stopped"):
                said = f"{found['model']}, {found['work']}: {found['stopped']}"
                bar.console.print(said, highlight=False, markup=False)

        try:
            results = run(
                name,
                experiment,
                folder,
                place,
                settings,
                on_progress=lambda what, done: bar.update(job, completed=done, description=what),
                on_line=on_line,
            )
        except NonFiniteLoss as error:
            raise ValueError(str(error)) from error
        except Interrupted as stop:
            bar.console.print(f"{stop}. The same command goes on from there", markup=False, soft_wrap=True)
            raise typer.Exit(128 + stop.signal_number) from None
    if json:
        print_json(results)
    else:
        output.print(_table(results, experiment.KIND.rows(results)))
        for claim in results["claims"]:
            verdict = {True: "[green]holds[/]", False: "[red]does not hold[/]", None: "[yellow]open[/]"}[claim["holds"]]
            output.print(f"{verdict}: {escape(claim['statement'])}: {escape(claim['evidence'])}", highlight=False)
    path = results_path(folder, memory)
    drawn = ", ".join(map(str, draw(experiment, path)))
    errors.print(f"numbers: {path}   figure: {drawn}", markup=False, soft_wrap=True)


def _table(results: dict[str, Any], rows: list[list[str]]) -> Table:
    first, *others = rows[0]
    table = Table(
        first, title=f"{results['experiment']}: {results['device']}", title_justify="left", header_style="bold"
    )
    for column in others:
        table.add_column(column, justify="right")
    for row in rows[1:]:
        table.add_row(*row)
    return table
