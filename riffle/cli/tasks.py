"""``riffle tasks``: what can be learned."""

from __future__ import annotations

from rich.table import Table

from riffle.cli.display import Json, output, print_json


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
