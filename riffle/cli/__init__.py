"""The command line: ``riffle train``, ``eval``, ``solve``, ``route``, ``inspect``, ``demo`` and others.

One file for each command. Nothing here imports torch before a command runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import sys
import threading
from typing import Annotated

import typer

from riffle.cli.bench import bench
from riffle.cli.demo import demo
from riffle.cli.display import errors
from riffle.cli.evaluate import evaluate
from riffle.cli.export import export
from riffle.cli.info import info
from riffle.cli.inspect import inspect
from riffle.cli.lambada import app as lambada
from riffle.cli.plan import plan
from riffle.cli.reproduce import reproduce
from riffle.cli.route import route
from riffle.cli.solve import solve
from riffle.cli.tasks import tasks
from riffle.cli.train import train

app = typer.Typer(
    name="riffle",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Neural shuffle-exchange networks: they learn algorithms from examples and run them on far longer sequences.",
    epilog="A first session: [bold]riffle train reverse --recipe small[/], then [bold]riffle eval runs/reverse[/] and "
    "[bold]riffle solve reverse 7 3 9 1[/].",
)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """Neural shuffle-exchange networks: they learn algorithms from examples and run them on far longer sequences."""
    global _debug
    _debug = debug


_debug = False
app.command("train")(train)
app.command("eval")(evaluate)
app.command("solve")(solve)
app.command("tasks")(tasks)
app.command("info")(info)
app.command("export")(export)
app.command("bench")(bench)
app.command("reproduce")(reproduce)
app.command("demo")(demo)
app.command("inspect")(inspect)
app.command("route")(route)
app.add_typer(lambada)
app.command("plan")(plan)


def main() -> None:
    """Run the command line; a mistake of the user or of the machine ends in one sentence, not in a traceback."""
    threading.excepthook = _thread_failed
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        if _debug:
            raise
        errors.print(f"[bold red]error:[/] {_sentence(error)}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except RuntimeError as error:
        # torch has no class of its own for a CPU that runs out of memory
        if _debug or "memory" not in str(error):
            raise
        known = str(error).startswith("out of GPU memory")  # then it says what would fit
        said = _sentence(error) if known else "out of memory: choose shorter lengths or a smaller batch"
        errors.print(f"[bold red]error:[/] {said}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard writes from a thread and raises what went wrong there again at its next use, so once is enough.
    if _debug or not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _sentence(error: Exception) -> str:
    from rich.markup import escape

    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return escape(f"{error.strerror}{where}")
    return escape(str(error))
