"""``riffle bench``: how fast this machine runs the networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from riffle.bench.record import outcome, worst_error
from riffle.bench.workloads import FORMS, row_names
from riffle.cli.display import Device, Json, choose_device, errors, output, print_json
from riffle.quantities import format_bytes, format_length, format_milliseconds, format_share

if TYPE_CHECKING:
    from riffle.bench.timing import Ceilings
    from riffle.bench.workloads import Measurement


def bench(
    rows: Annotated[
        str | None,
        typer.Option(
            help=f"What to measure, separated by commas: {', '.join(row_names('cuda'))}; on a CPU "
            f"{', '.join(row_names('cpu'))}.",
            show_default="all",
            metavar="NAMES",
        ),
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            help="How to run the rows: " + "; ".join(f"[bold]{form}[/], {what}" for form, what in FORMS.items()) + ".",
            show_default="all; eager on a CPU",
            metavar="NAMES",
        ),
    ] = None,
    attention: Annotated[bool, typer.Option(help="Also compare with an encoder on FlashAttention.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Take fewer repeats.")] = False,
    device: Device = "auto",
    out: Annotated[
        Path, typer.Option(help="The JSON file; the plot goes beside it as .png and .svg. Later runs add to it.")
    ] = Path("bench.json"),
    commit: Annotated[
        str | None, typer.Option(help="Commit to note in the file.", show_default="what git says")
    ] = None,
    json: Json = False,
) -> None:
    """Measure speed and memory of inference and training, beside what the device's matrix products would allow.

    First the rate of a large matrix product and of a copy, then every row in every form. Each result is compared with
    the definition in float32 before it is timed; a wrong one gets no time, and the command ends with status 1. The
    file is written after every measurement.
    """
    import torch

    from riffle.bench.plot import draw
    from riffle.bench.record import Record
    from riffle.bench.run import run_bench
    from riffle.bench.workloads import plan

    place = torch.device(choose_device(device))
    steps = plan(place.type, _names(rows), _names(forms), attention=attention)
    record = Record(out, place, commit)
    out.parent.mkdir(parents=True, exist_ok=True)
    bar = Progress(TextColumn("{task.completed}/{task.total} {task.description}"), TimeElapsedColumn(), console=errors)
    start = perf_counter()

    def say(text: str) -> None:
        bar.console.print(f"{perf_counter() - start:5.0f} s  {text}", highlight=False, soft_wrap=True)

    def on_ceilings(ceilings: Ceilings) -> None:
        say(_ceilings(ceilings._asdict()))

    def on_start(step: Measurement) -> None:
        bar.update(job, description=f"{step.row.title}: {step.form}")

    def on_entry(step: Measurement, entry: Mapping[str, Any]) -> None:
        of_floor = "" if "failed" in entry else f", {format_share(entry['fraction_of_floor'])} of the floor"
        say(f"{step.row.title}: {step.form} [bold]{escape(outcome(entry))}[/]{of_floor}, error {worst_error(entry)}")
        bar.advance(job)

    with bar:
        job = bar.add_task("a matrix product and a copy", total=len(steps))
        well = run_bench(
            steps, record, place, quick=quick, on_ceilings=on_ceilings, on_start=on_start, on_entry=on_entry
        )
    drawn = draw(record.content, out.with_suffix(".png"), out.with_suffix(".svg"))
    if json:
        print_json(record.content)
    else:
        _print(record.content)
    plots = f", the plot in {out.with_suffix('.png')} and {out.with_suffix('.svg')}" if drawn else ""
    errors.print(f"The measurements are in {out}{plots}.", markup=False, highlight=False, soft_wrap=True)
    if not well:
        errors.print("[bold red]error:[/] not every result was right: those have no time", soft_wrap=True)
        raise typer.Exit(1)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _ceilings(ceilings: Mapping[str, Any]) -> str:
    product, copy = ceilings["product"] / 1e12, ceilings["copy"] / 1e12
    return f"{product:.3g} TFLOP/s, {copy:.3g} TB/s ({ceilings['description']})"


def _print(record: Mapping[str, Any]) -> None:
    output.print(f"{record['device']}: {_ceilings(record['runs'][-1]['ceilings'])}", highlight=False, soft_wrap=True)
    for section, table in (("rows", _rows), ("curve", _curve), ("attention", _attention)):
        if record[section]:
            output.print(table(record[section]))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in ("row", "form") else "right")
    return table


def _rows(rows: Mapping[str, Any]) -> Table:
    table = _table("speed", "row", "form", "time", "memory", "of the floor", "error")
    for name, row in rows.items():
        for index, (form, entry) in enumerate(row["forms"].items()):
            numbers = ["", ""]
            if "failed" not in entry:
                numbers = [format_bytes(entry["peak_bytes"]), format_share(entry["fraction_of_floor"])]
            table.add_row(name if index == 0 else "", form, escape(outcome(entry)), *numbers, worst_error(entry))
        table.add_section()
    return table


def _curve(rows: Mapping[str, Any]) -> Table:
    row = next(iter(rows.values()))
    table = _table(f"over length: {row['features']} maps, {row['blocks']} block", "cells", "time", "floor", "error")
    for row in rows.values():
        for entry in row["forms"].values():
            floor = format_milliseconds(entry["floor_milliseconds"]) if "floor_milliseconds" in entry else ""
            table.add_row(format_length(row["lengths"][0]), escape(outcome(entry)), floor, worst_error(entry))
    return table


def _attention(rows: Mapping[str, Any]) -> Table:
    """This network and the encoder, length by length."""
    by_length: dict[int, dict[str, Mapping[str, Any]]] = {}
    for name, row in rows.items():
        for entry in row["forms"].values():
            by_length.setdefault(row["lengths"][0], {})[name.partition("-")[0]] = entry
    row = next(iter(rows.values()))
    table = _table(f"against attention: {row['features']} maps", "cells", "this network", "encoder", "times as fast")
    for length, both in by_length.items():
        cells = [escape(outcome(both[name])) if name in both else "" for name in ("ours", "encoder")]
        times = [both[name]["milliseconds"] for name in ("ours", "encoder") if "milliseconds" in both.get(name, {})]
        table.add_row(format_length(length), *cells, f"{times[1] / times[0]:.2g}" if len(times) == 2 else "")
    return table
