"""What the commands share: the two consoles, options, the choice of a device, JSON, progress bars, claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from riffle.reproduce.claims import Claim


output = Console()
"""Results, on standard output."""
errors = Console(stderr=True)
"""Progress bars, notes and errors, on standard error, where they do not disturb ``--json``."""
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run, as riffle train made it.", metavar="RUN")]


def print_json(value: object) -> None:
    """Print a result for programs."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def choose_device(name: str) -> str:
    """The device that a name means; refuses one that this machine does not have."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: use cpu, cuda, cuda:0 or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but torch sees no GPU here: use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r} was asked for, but torch sees {torch.cuda.device_count()} GPUs here")
    return name


def progress_bar(*columns: TextColumn) -> Progress:
    """A progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        *columns,
        TimeRemainingColumn(),
        console=errors,
        expand=True,
    )


def print_claims(claims: Sequence[Claim]) -> None:
    """Print whether each of the paper's claims holds, and why."""
    colours = {True: "green", False: "red", None: "yellow"}
    for claim in claims:
        verdict = f"[{colours[claim.holds]}]{claim.verdict}[/]"
        output.print(f"{verdict}: {escape(claim.statement)}: {escape(claim.evidence)}", highlight=False, soft_wrap=True)
