"""The command line: ``riffle train``, ``eval``, ``solve``, ``route``, ``inspect``, ``demo`` and others.

A command's module is imported when the command runs or its help is shown, and none imports torch before it runs.
"""

from __future__ import annotations

import functools
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple, Union

import typer
from rich.markup import escape
from typer.core import TyperGroup

from riffle import __version__
from riffle.cli.display import EXTRAS, errors, missing, program
from riffle.quantities import quote, shorten
from riffle.registry import NeedsResearch

SUMMARY = "Neural shuffle-exchange networks: they learn algorithms from examples and run them on far longer sequences."


class Command(NamedTuple):
    """A function of a module, under a heading of the help."""

    module: str
    function: str
    heading: str | None = None


class Group(NamedTuple):
    """Commands that share their first word."""

    summary: str
    commands: Mapping[str, Any]
    heading: str | None = None


Commands = Mapping[str, Union[Command, Group]]  # noqa: UP007 (Python adds tuples' types with | from 3.14 on)
LAMBADA = Group(
    "LAMBADA: read a passage and point at its last word.",
    {
        "train": Command("riffle.cli.lambada", "train"),
        "eval": Command("riffle.cli.lambada", "evaluate"),
        "solve": Command("riffle.cli.lambada", "solve"),
    },
    "Train",
)
COMMANDS: Commands = {
    "solve": Command("riffle.cli.solve", "solve", "Use"),
    "tasks": Command("riffle.cli.info", "tasks", "Use"),
    "write": Command("riffle.cli.write", "write", "Use"),
    "export": Command("riffle.cli.export", "export", "Use"),
    "info": Command("riffle.cli.info", "info", "Use"),
    "train": Command("riffle.cli.train", "train", "Train"),
    "lambada": LAMBADA,
    "eval": Command("riffle.cli.evaluate", "evaluate", "Measure"),
    "demo": Command("riffle.cli.info", "demo", "Look"),
    "inspect": Command("riffle.cli.inspect", "inspect", "Look"),
    "route": Command("riffle.cli.route", "route", "Look"),
}
"""What the wheel has, in the order of the help; ``python -m research`` adds to it."""
IN_A_CLONE = ("reproduce", "bench", "plan", "lambada prepare", "lambada ship")
"""What only ``python -m research`` has."""
EPILOG = (
    "A first session: [bold]riffle train reverse --recipe small[/], then [bold]riffle eval runs/reverse[/] and "
    "[bold]riffle solve reverse --run runs/reverse 7 3 9 1[/]."
)
OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class CommandGroup(TyperGroup):
    """The commands of a table; a mistake of usage repeats no more than the beginning and the end of what was typed."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that typer makes of an entry; None for an unknown name."""
        entry: Any = self.commands.get(cmd_name)
        name = cmd_name if ctx.parent is None else f"{self.name} {cmd_name}"
        if entry is None and name in IN_A_CLONE:
            raise ValueError(f"riffle {name} needs a clone of the repository: there it is python -m research {name}")
        if isinstance(entry, Group):
            app = typer.Typer(name=cmd_name, help=entry.summary, cls=CommandGroup, **OPTIONS)
            return _filled(typer.main.get_group(app), entry)
        return entry and _command(cmd_name, entry)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _short_message():
            return super().make_context(*arguments, **options)

    def invoke(self, *arguments: Any) -> Any:
        with _short_message():
            return super().invoke(*arguments)


@contextmanager
def _short_message() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = shorten(message)  # type: ignore[attr-defined]
        raise


def _filled(group: Any, entry: Group) -> Any:
    group.commands, group.rich_help_panel = dict(entry.commands), entry.heading
    return group


@functools.cache
def _command(name: str, entry: Command) -> Any:
    app = typer.Typer(add_completion=False, **OPTIONS)
    function = getattr(import_module(entry.module), entry.function)
    app.command(name, rich_help_panel=entry.heading)(_bounded(function))
    return typer.main.get_command(app)


def _bounded(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose numbers all are finite and below 2^62, so that none overflows."""

    @functools.wraps(function)
    def run(**options: Any) -> None:
        for name, value in options.items():
            if isinstance(value, int | float) and not abs(value) < 2**62:
                raise ValueError(f"--{name.replace('_', '-')} must be a number below 2^62, got {quote(value)}")
        function(**options)

    return run


def build(commands: Commands = COMMANDS) -> Any:
    """The program that has the commands of a table."""
    app = typer.Typer(name="riffle", help=SUMMARY, epilog=EPILOG, cls=CommandGroup, **OPTIONS)
    app.callback()(_options)
    return _filled(typer.main.get_command(app), Group(SUMMARY, commands))


_debug = False


def _print_version(asked: bool) -> None:
    if asked:
        print(f"riffle {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands."""
    global _debug
    _debug = debug


def main(commands: Commands = COMMANDS) -> None:
    """Run the command line; an error of the user or of the machine is printed as one sentence, not as a traceback."""
    threading.excepthook = _report_thread_failure
    try:
        build(commands)(prog_name=program())
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
    if isinstance(error, NeedsResearch):
        return f"{error} {shlex.join(sys.argv[1:])}"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return missing(error.name)
    return str(error)


def _report_thread_failure(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard's writer thread raises an error again at its next use, which reports it; once is enough.
    if _debug or not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)
