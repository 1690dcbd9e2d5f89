"""``riffle info`` and ``riffle tasks``: what this installation has."""

from __future__ import annotations

from rich.table import Table

from riffle.cli.display import Json, output, print_json


def info(json: Json = False) -> None:
    """Show versions and devices, and which backend would run on each."""
    import torch

    from riffle.environment import device_name, environment
    from riffle.kernels import resolve

    devices = [
        {
            "device": name,
            "name": device_name(torch.device(name)),
            "backend": resolve("auto", torch.empty(0, device=name, dtype=torch.bfloat16)),
        }
        for name in ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())))
    ]
    facts = environment(torch.device("cpu"))
    if json:
        print_json({**{key: facts[key] for key in ("versions", "platform", "threads")}, "devices": devices})
        return
    table = Table(show_header=False)
    for package, version in facts["versions"].items():
        table.add_row(package, version)
    table.add_row("platform", f"{facts['platform']}, {facts['threads']} threads")
    for device in devices:
        table.add_row(device["device"], f"{device['name']}: backend {device['backend']}")
    output.print(table)


def tasks(json: Json = False) -> None:
    """List the tasks with an example of each."""
    from riffle.tasks import TASKS

    rows = [
        {
            "task": task.name,
            "summary": task.summary,
            "example": " ".join(task.example),
            "answer": task.render(task.solve(task.parse(task.example))),
            "symbols": task.symbols,
            "classes": task.classes,
            "splits": ["uniform", *task.splits],
        }
        for task in TASKS.values()
    ]
    if json:
        print_json(rows)
        return
    table = Table("task", "what it does", "riffle solve TASK ...", "answer", header_style="bold")
    for row in rows:
        table.add_row(f"[bold]{row['task']}[/]", str(row["summary"]), str(row["example"]), str(row["answer"]))
    output.print(table)
