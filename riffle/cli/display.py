"""What the commands share: the two consoles, options, the choice of a device, JSON, tables, progress bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

output = Console()
"""Results, on standard output."""
errors = Console(stderr=True)
"""Progress bars, notes and errors, on standard error, where they do not disturb ``--json``."""
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.")]
Precision = Annotated[str, typer.Option(help="fp32, tf32 or bf16; auto: bf16 on a GPU that has it, else fp32.")]


EXTRAS = {"matplotlib": "train", "tensorboard": "train", "gradio": "demo", "pooch": "lambada", "onnxscript": "export"}
"""Modules that a plain installation lacks, and the extra that brings each."""


def program() -> str:
    """How this program was started, ``riffle`` or ``python -m PACKAGE``: messages name further commands by it."""
    path = Path(sys.argv[0])
    return f"python -m {path.parent.name}" if path.name == "__main__.py" else "riffle"


def require(*modules: str) -> None:
    """Raise if a module is not installed, before any work that would need it."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(missing(module), name=module)


def have(module: str, what: str) -> bool:
    """Whether a module is installed; without it, a note says what is left out."""
    if find_spec(module) is not None:
        return True
    errors.print(f"no {what}, since {module} is not installed: pip install 'riffle-nn[{EXTRAS[module]}]'", markup=False)
    return False


def missing(module: str) -> str:
    """What to do about a module that is not installed."""
    return f"this needs {module}, which is not installed: pip install 'riffle-nn[{EXTRAS[module]}]'"


def print_json(value: object) -> None:
    """Print a result for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def choose_device(name: str) -> str:
    """The device that a name means; refuses one that this machine does not have."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if gpus else "cpu"
    device = re.fullmatch(r"(cpu)(?::0)?|(cuda)(?::([0-9]{1,3}))?", name)
    if device is None:
        raise ValueError(f"unknown device {name!r}: use cpu, cuda, cuda:0 or auto")
    if device[2] and int(device[3] or 0) >= gpus:
        seen = f"{gpus} GPUs here" if gpus else "no GPU here: use --device cpu"
        raise ValueError(f"device {name!r} was asked for, but torch sees {seen}")
    return name


def print_outcome(said: str, then: str, also: str = "") -> None:
    """Say what a run has learned and what to do next."""
    errors.print(said, markup=False, highlight=False, soft_wrap=True)
    print_next(f"{then}, or {also}" if also else then)


def titled_table(title: str, *columns: str, left: Sequence[str] = ()) -> Table:
    """An empty table of numbers, aligned to the right but for the columns named in ``left``."""
    aligned = (Column(name, justify="left" if name in left else "right") for name in columns)
    return Table(*aligned, title=title, title_justify="left", header_style="bold")


def progress_bar(*columns: TextColumn, counted: bool = True) -> Progress:
    """A progress bar on standard error: how many of how many, or the share where nobody counts, such as of cells."""
    first = (TextColumn("{task.description}"), BarColumn(bar_width=None))
    done = MofNCompleteColumn() if counted else TaskProgressColumn()
    # The rate is that of the last hour, so the time left neither jumps nor vanishes during one long step.
    return Progress(
        *first, done, *columns, TimeRemainingColumn(), console=errors, expand=True, speed_estimate_period=3600
    )


def print_next(text: str) -> None:
    """Say what to do with what a command has made."""
    errors.print(f"Next: {text}", markup=False, highlight=False, soft_wrap=True)
