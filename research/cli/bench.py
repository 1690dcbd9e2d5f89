"""``python -m research bench``: how fast this machine runs the networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from research.bench.record import Record, format_error, format_time
from research.quantities import format_share
from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, require, titled_table
from riffle.files import check_writable
from riffle.quantities import format_bytes

TITLES = {"rows": "speed", "attention": "against attention", "own-loop": "in one's own loop"}


def bench(
    rows: Annotated[
        str | None,
        typer.Option(
            help="What to measure, separated by commas, such as latency,step; an unknown name lists those that exist.",
            show_default="all",
            metavar="NAMES",
        ),
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            help="How to run the rows: [bold]eager[/], the reference backend in float32, [bold]fused[/], the kernels "
            "in bfloat16, [bold]riffle[/], as a module in one's own loop, and others, listed as those of --rows.",
            show_default="all; on a CPU eager, riffle, encoder",
            metavar="NAMES",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take fewer repeats.")] = False,
    device: Device = "auto",
    out: Annotated[
        Path, typer.Option(help="The JSON file; the plot goes beside it as .png and .svg. Later runs add to it.")
    ] = Path("bench.json"),
    commit: Annotated[
        str | None, typer.Option(help="Commit to record in the file.", show_default="what git says")
    ] = None,
    json: Json = False,
) -> None:
    """Measure speed and memory of inference and training, beside what the device's matrix products would allow.

    First the rate of a large matrix product and of a copy, then every row in every form. Each result is compared with
    the definition in float32 before it is timed; a wrong one gets no time, and the command ends with status 1. The
    file is written after every measurement.
    """
    import torch

    from research.bench.measure import NOT_INSTALLED, OUT_OF_MEMORY, Measurer
    from research.bench.plots import draw_bench
    from research.bench.workloads import select_cases

    require("matplotlib")
    from riffle.plots import check_figures

    torch_device = torch.device(choose_device(device))
    cases = select_cases(torch_device.type, _names(rows), _names(forms))
    record = Record(out, torch_device, commit)
    out.parent.mkdir(parents=True, exist_ok=True)
    plots = out.with_suffix(".png"), out.with_suffix(".svg")
    if out in plots:
        raise ValueError(f"--out {out} is the JSON file, and plots go beside it as .png and .svg: end it with .json")
    check_figures(*plots)
    check_writable(out)
    start, right = perf_counter(), True

    def log(text: str) -> None:
        errors.print(f"{perf_counter() - start:5.0f} s  {text}", highlight=False, soft_wrap=True)

    columns = TextColumn("{task.completed}/{task.total} {task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=errors) as bar:
        progress = bar.add_task("a matrix product and a copy", total=len(cases))
        measurer = Measurer(torch_device, quick=quick)
        record.begin(measurer.rates)
        log(_rates(record.content))
        for case in cases:
            title = f"{case.workload.title}: {case.form}"
            bar.update(progress, description=title)
            entry = measurer(case)
            record.put(case, entry)
            share = entry.get("fraction_of_floor")
            of_floor = "" if share is None else f", {format_share(share)} of the floor"
            log(f"{title} [bold]{escape(format_time(entry))}[/]{of_floor}, error {format_error(entry)}")
            right = right and entry.get("failed") in (None, OUT_OF_MEMORY, NOT_INSTALLED)
            bar.advance(progress)
    drawn = draw_bench(record.content, *plots)
    if json:
        print_json(record.content)
    else:
        output.print(f"{record.content['device']}: {_rates(record.content)}", highlight=False, soft_wrap=True)
        for section, title in TITLES.items():
            if record.content[section]:
                output.print(_table(record.content[section], title))
    where = f"{out}, the plot in {plots[0]} and {plots[1]}" if drawn else f"{out}"
    errors.print(f"The measurements are in {where}.", markup=False, highlight=False, soft_wrap=True)
    if not right:
        raise ValueError("not every result was right: those have no time")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _rates(record: Mapping[str, Any]) -> str:
    rates = record["runs"][-1]["ceilings"]
    return f"{rates['product'] / 1e12:.3g} TFLOP/s, {rates['copy'] / 1e12:.3g} TB/s ({rates['description']})"


def _table(rows: Mapping[str, Any], title: str) -> Table:
    table = titled_table(title, "row", "form", "time", "memory", "of the floor", "error", left=("row", "form"))
    for name, row in rows.items():
        for index, (form, entry) in enumerate(row["forms"].items()):
            size = format_bytes(entry["peak_bytes"]) if "peak_bytes" in entry else ""
            reached = format_share(entry["fraction_of_floor"]) if "fraction_of_floor" in entry else ""
            table.add_row("" if index else name, form, escape(format_time(entry)), size, reached, format_error(entry))
        table.add_section()
    return table
