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
        Path | None,
        typer.Option(help="The trained run.", show_default="the newest in --runs, else the shipped one"),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where to look for trained runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Solve one example with a trained network, and say whether it is right.

    riffle solve add 1011 110  ·  riffle solve sort 7 3 9 1  ·  riffle solve dyck "([])"
    """
    from dataclasses import asdict

    from riffle.solving import find_trained
    from riffle.solving import solve as solve_with
    from riffle.train.run import Run

    trained = Run(run) if run else find_trained(task, runs)
    solution = solve_with(task, symbols, trained)
    if json:
        print_json(asdict(solution))
        return
    output.print(solution.output, highlight=False, markup=False, soft_wrap=True)
    verdict = "[green]right[/]" if solution.correct else f"[red]wrong[/], the answer is {escape(solution.expected)}"
    errors.print(
        f"{verdict} (by {escape(solution.model)}, step {trained.saved_step()})", highlight=False, soft_wrap=True
    )
