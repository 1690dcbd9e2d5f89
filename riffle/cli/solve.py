"""``riffle solve``: use a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from riffle.cli.display import Json, errors, output, print_json


def solve(
    task: Annotated[str, typer.Argument(help="What to solve; [bold]riffle tasks[/] lists the tasks.", metavar="TASK")],
    symbols: Annotated[list[str], typer.Argument(help="The input, as a person would write it.", metavar="SYMBOLS...")],
    run: Annotated[
        Path | None, typer.Option(help="The trained run.", show_default="the newest of the task in --runs")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where to look for trained runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Solve one example with a trained network, and say whether it is right.

    riffle solve add 1011 110  ·  riffle solve sort 7 3 9 1  ·  riffle solve dyck "([])"
    """
    from riffle.tasks import get_task
    from riffle.train.evaluate import predict
    from riffle.train.run import Run, find_run

    the_task = get_task(task)
    inputs = the_task.parse(symbols)
    trained = Run(run) if run else find_run(task, runs)
    if trained is None:
        raise ValueError(
            f"no run of {task!r} below {runs}: train one with `riffle train {task} --recipe small`, "
            "or name one by --run"
        )
    if trained.experiment.task != task:
        raise ValueError(f"{trained.folder} was trained to {trained.experiment.task!r}, not to {task!r}")
    got, right = predict(trained.model(), inputs), the_task.solve(inputs)
    result = {
        "task": task,
        "input": " ".join(symbols),
        "output": the_task.render(got),
        "expected": the_task.render(right),
        "correct": got == right,
        "model": str(trained.folder),
    }
    if json:
        print_json(result)
        return
    output.print(result["output"], highlight=False, markup=False, soft_wrap=True)
    verdict = (
        "[green]right[/]" if result["correct"] else f"[red]wrong[/], the answer is {escape(str(result['expected']))}"
    )
    by = escape(f"(by {trained.folder}, step {trained.saved_step()})")
    errors.print(f"{verdict} {by}", highlight=False, soft_wrap=True)
