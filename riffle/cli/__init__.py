"""The command line: ``riffle train``, ``eval``, ``solve``, ``route``, ``inspect``, ``demo`` and others.

Nothing here imports torch before a command runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import sys
import threading
from typing import Annotated

import typer
from rich.markup import escape

from riffle import __version__
from riffle.cli.bench import bench
from riffle.cli.display import EXTRAS, errors, missing
from riffle.cli.evaluate import evaluate
from riffle.cli.export import export
from riffle.cli.info import demo, info, tasks
from riffle.cli.inspect import inspect
from riffle.cli.lambada import app as lambada
from riffle.cli.plan import plan
from riffle.cli.reproduce import reproduce
from riffle.cli.route import route
from riffle.cli.solve import solve
from riffle.cli.train import train

SUMMARY = "Neural shuffle-exchange networks: they learn algorithms from examples and run them on far longer sequences."
app = typer.Typer(
    name="riffle",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=SUMMARY,
    epilog="A first session: [bold]riffle train reverse --recipe small[/], then [bold]riffle eval runs/reverse[/] and "
    "[bold]riffle solve reverse --run runs/reverse 7 3 9 1[/].",
)
GROUPS = {
    "Use": (solve, tasks, export, info),
    "Train": (train,),
    "Measure": (evaluate, bench, reproduce, plan),
    "Look": (demo, inspect, route),
}
"""The commands under the headings of ``riffle --help``."""
for group, commands in GROUPS.items():
    for command in commands:
        app.command("eval" if command is evaluate else command.__name__, rich_help_panel=group)(command)
app.add_typer(lambada, rich_help_panel="Train")
_debug = False


def _print_version(asked: bool) -> None:
    if asked:
        print(f"riffle {__version__}")
        raise typer.Exit


@app.callback(help=SUMMARY)
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands."""
    global _debug
    _debug = debug


def main() -> None:
    """Run the command line; an error of the user or of the machine is printed as one sentence, not as a traceback."""
    threading.excepthook = _report_thread_failure
    try:
        app()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        message = _sentence(error)
        if _debug or message is None:
            raise
        errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _sentence(error: Exception) -> str | None:
    """What an error says to the user; None for an error of the program."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, RuntimeError) and not str(error).startswith("out of GPU memory"):
        # torch has no class of its own for a CPU that runs out of memory
        return "out of memory: choose shorter lengths or a smaller batch" if "memory" in str(error) else None
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return missing(error.name)
    return str(error)


def _report_thread_failure(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard's writer thread raises an error again at its next use, which reports it; once is enough.
    if _debug or not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)
