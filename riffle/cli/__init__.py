"""The command line: ``riffle train``, ``eval``, ``solve``, ``route``, ``inspect``, ``demo`` and others.

Nothing here imports torch before a command runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from riffle import __version__
from riffle.cli.display import EXTRAS, errors, missing
from riffle.cli.evaluate import evaluate
from riffle.cli.export import export
from riffle.cli.info import demo, info, tasks
from riffle.cli.inspect import inspect
from riffle.cli.lambada import app as lambada
from riffle.cli.route import route
from riffle.cli.solve import solve
from riffle.cli.train import train
from riffle.quantities import quote, shorten

SUMMARY = "Neural shuffle-exchange networks: they learn algorithms from examples and run them on far longer sequences."


class CommandGroup(TyperGroup):
    """The commands; a mistake of usage repeats no more than the beginning and the end of what was typed."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _short_message():
            return super().make_context(*arguments, **options)

    def invoke(self, *arguments: Any) -> Any:
        with _short_message():
            return super().invoke(*arguments)


def _bounded(command: Callable[..., None] | None) -> Callable[..., None]:
    """A command whose numbers all are finite and below 2^62, so that none overflows."""
    assert command is not None

    @functools.wraps(command)
    def run(**options: Any) -> None:
        for name, value in options.items():
            if isinstance(value, int | float) and not abs(value) < 2**62:
                raise ValueError(f"--{name.replace('_', '-')} must be a number below 2^62, got {quote(value)}")
        command(**options)

    return run


@contextmanager
def _short_message() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = shorten(message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="riffle",
    cls=CommandGroup,
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
    "Measure": (evaluate,),
    "Look": (demo, inspect, route),
}
"""The commands under the headings of ``riffle --help``."""
for group, commands in GROUPS.items():
    for command in commands:
        app.command("eval" if command is evaluate else command.__name__, rich_help_panel=group)(command)
app.add_typer(lambada, rich_help_panel="Train")
for registered in (*app.registered_commands, *lambada.registered_commands):
    registered.callback = _bounded(registered.callback)
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
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
        message = _sentence(error)
        if _debug or message is None:
            raise
        errors.print(f"[bold red]error:[/] {escape(shorten(message))}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _sentence(error: Exception) -> str | None:
    """What an error says to the user; None for an error of the program."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, RuntimeError | MemoryError) and not str(error).startswith("out of GPU memory"):
        from riffle.environment import is_out_of_memory

        return "out of memory: choose shorter lengths or a smaller batch" if is_out_of_memory(error) else None
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return missing(error.name)
    return str(error)


def _report_thread_failure(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard's writer thread raises an error again at its next use, which reports it; once is enough.
    if _debug or not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)
