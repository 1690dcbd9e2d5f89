"""``riffle info``, ``riffle tasks`` and ``riffle demo``: what this installation has, and its web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from riffle.cli.display import Json, errors, output, print_json, require
from riffle.quantities import DASH

RUNS = Path("runs")
TRIED = ("2.8", "2.11", "2.13", "2.15")
"""Versions of torch with which the tests were run: the oldest supported, that of the GPU, the pinned and the newest."""


def info(
    json: Json = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the kernels of every GPU with float64.")] = False,
) -> None:
    """Show versions and devices, and which backend would run on each.

    riffle info  ·  riffle info --verify
    """
    import torch

    from riffle.environment import device_name, environment
    from riffle.kernels import OLDEST_TRITON, resolve
    from riffle.kernels.graphs import SHARE, SIGHTS
    from riffle.kernels.plan import SMALL_WORK

    devices: list[dict[str, Any]] = [
        {
            "device": name,
            "name": device_name(torch.device(name)),
            "backend": (backend := resolve("auto", torch.empty(0, device=name, dtype=torch.bfloat16))),
            "graphs": backend == "fused",
        }
        for name in ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())))
    ]
    graphs = {"numbers": SMALL_WORK, "calls": SIGHTS, "memory_share": 1 / SHARE}
    facts = environment(torch.device("cpu"))
    tried = facts["versions"]["torch"].rpartition(".")[0] in TRIED
    if json:
        shown = {key: facts[key] for key in ("versions", "platform", "threads")}
        return print_json({**shown, "tried": tried, "devices": devices, "graphs": graphs})
    table = Table(show_header=False)
    for package, version in facts["versions"].items():
        table.add_row(package, version)
    table.add_row("platform", f"{facts['platform']}, {facts['threads']} threads")
    for device in devices:
        graphed = ", small calls by CUDA graphs" if device["graphs"] else ""
        table.add_row(device["device"], f"{device['name']}: backend {device['backend']}{graphed}")
    triton = ".".join(map(str, OLDEST_TRITON))
    limits = f"up to {SMALL_WORK:,} numbers, from the {SIGHTS}rd call of a shape on, in 1/{SHARE} of a GPU's memory"
    table.add_row("CUDA graphs", f"of {limits}; net.graphs.counts has how many calls were replayed")
    table.add_row("fused needs", f"a GPU of compute capability 8.0 or later, Triton {triton} or later")
    output.print(table)
    if verify:
        _verify([device["device"] for device in devices if device["backend"] == "fused"])
    if not tried:
        errors.print(f"The tests were run with torch {', '.join(TRIED)}, not with this one.", highlight=False)


def _verify(devices: list[str]) -> None:
    """Compare every form of the kernels that would run with the definition in float64; exit status 1 on a miss."""
    import torch

    from riffle.nn.verify import verify

    wrong = 0
    for name in devices:
        for check in verify(torch.device(name)):
            wrong += not check.right
            output.print(str(check), highlight=False, soft_wrap=True)
    if not devices:
        output.print("No fused kernels run here: every device uses the definition itself.")
    elif wrong:
        errors.print(f"{wrong} comparisons failed: use backend='reference', and report this output.")
        raise typer.Exit(1)


def tasks(json: Json = False) -> None:
    """List the tasks with an example of each."""
    from riffle.tasks import TASKS
    from riffle.train.evaluate import read_scores, right_up_to
    from riffle.train.run import Run
    from riffle.train.shipped import SHIPPED

    shipped = {task: SHIPPED / task for task in TASKS if (SHIPPED / task).is_dir()}
    reached = {task: right_up_to(TASKS[task], read_scores(Run(folder))) for task, folder in shipped.items()}
    rows = [
        {
            "task": task.name,
            "summary": task.summary,
            "example": " ".join(task.example),
            "answer": task.render(task.solve(task.parse(task.example))),
            "symbols": task.symbols,
            "classes": task.classes,
            "splits": ["uniform", *task.splits],
            "right_up_to": reached.get(task.name),
        }
        for task in TASKS.values()
    ]
    if json:
        return print_json(rows)
    right = Column("right up to", justify="right")
    table = Table(Column("task", no_wrap=True), "what it does", "example", "answer", right, header_style="bold")
    for row in rows:
        cells = (str(row[name]) for name in ("summary", "example", "answer"))
        limit = row["right_up_to"]
        table.add_row(f"[bold]{row['task']}[/]", *cells, f"{limit:,}" if limit else DASH)
    output.print(table)
    errors.print("Right up to: the length up to which 99% of whole answers of the package's network are right.")


def demo(
    runs: Annotated[Path, typer.Option(help="Where to look for trained runs, beside the shipped ones.")] = RUNS,
    host: Annotated[str, typer.Option(help="Address to serve at; 0.0.0.0 serves other machines too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 7860,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Serve a web page to solve inputs, measure accuracy, look at the switches, and route permutations.

    riffle demo  ·  riffle demo --runs runs --port 8000
    """
    require("gradio")
    if runs != RUNS and not runs.is_dir():
        raise ValueError(f"there is no folder {runs}")
    from riffle.demo.server import open_socket, serve
    from riffle.demo.solve import RunCatalogue

    catalogue = RunCatalogue(runs)
    with open_socket(host, port) as listening:
        shown = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        output.print(f"The page is at {escape(address)}", highlight=False, soft_wrap=True)
        errors.print(f"{len(catalogue.models)} trained models; Ctrl-C ends it", highlight=False)
        if not no_open:
            import webbrowser

            webbrowser.open(address)  # the request waits in the socket's queue until the server has started
        serve(catalogue, listening, host)
