"""``riffle reproduce``: measure a figure of the paper again, and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Json, errors
from riffle.reproduce import FIGURES, LEARNING, TIMING

PAGE = Path("docs/reproduction.md")


def _described(experiments: dict[str, str]) -> str:
    return "; ".join(f"[bold]{name}[/]: {what}" for name, what in experiments.items())


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"What takes time: {_described(TIMING)}. What is learned: {_described(LEARNING)}.", metavar="NAME"
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help=f"Measure nothing: write {PAGE} from all results there are.")
    ] = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Measure nothing: draw the figure and judge the claims from the results.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny models: a minute or so on a CPU, no result.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="A part of it: series or runs with one of these texts in their name, separated by commas; "
            "what timing has measured of the others stays.",
            metavar="TEXTS",
            show_default="all",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of all results; these go to OUT/NAME.", show_default="results, runs/quick if quick"),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            "--devices",
            help="cpu, cuda, cuda:1, ...; auto takes a GPU where there is one. Learning spreads over cuda:0,cuda:1.",
        ),
    ] = "auto",
    commit: Annotated[
        str | None, typer.Option(help="Commit to note in the results.", show_default="what git says")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="Timing: gigabytes of the GPU that may be used; the paper's had 11.", min=1, show_default="all"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Timing: seconds that one call may take; longer lengths are left out.", min=0.01)
    ] = 10.0,
    runs: Annotated[
        int | None, typer.Option(help="Learning: seeds of each run.", min=1, show_default="1 to 5, as the paper has")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Learning: change a field of all runs, e.g. --set train.steps=5000.", metavar="KEY=VALUE"
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            help="Learning: runs at the same time on each device.", min=1, show_default="6 on a GPU, all cores of a CPU"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Learning: when to save every run and stop; the same command goes on.", min=0.01),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Learning: folder of the run folders.", show_default="runs/reproduce, runs/quick if quick"),
    ] = None,
    json: Json = False,
) -> None:
    """Measure an experiment of the paper anew: results, a figure drawn from them, and what of the claims holds.

    Learning trains several runs at once, each in a process and a run folder of its own, and leaves a JSON file of
    each. Whatever stops it, the same command goes on: finished runs are skipped, begun ones resumed. On a GPU it
    starts NVIDIA's MPS where that is installed, so that runs share the GPU at the same moment.
    """
    root = out or Path("runs/quick" if quick else "results")
    if report:
        from riffle.reproduce.report import report as written

        PAGE.write_text(written(root))
        errors.print(f"written: {PAGE}", markup=False)
    elif name is None:
        raise ValueError(f"which experiment? Give one of {', '.join(FIGURES)}, or --report")
    elif name in LEARNING:
        from riffle.cli import reproduce_learning as learning

        wishes = learning.ReproduceOptions(
            quick=quick,
            runs=runs,
            only=split(only),
            changes=tuple(change or ()),
            devices=split(device),
            at_once=at_once,
            minutes=minutes,
            results=root,
            work=work or Path("runs/quick" if quick else "runs/reproduce"),
            commit=commit,
        )
        outcome = learning.Outcome() if draw else learning.learn(name, wishes)
        learning.show(name, root, json=json)
        raise typer.Exit(outcome.status)
    else:
        from riffle.cli import reproduce_timing as timing

        if not draw:
            timing.measure(name, root, split(only), device, memory=memory, budget=budget, quick=quick, commit=commit)
        timing.show(name, root, memory, json=json)


def split(text: str | None) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
