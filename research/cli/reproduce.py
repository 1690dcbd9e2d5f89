"""``python -m research reproduce``: measure a figure of the paper again, draw it, and judge the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from research.cli.reproduce_runs import ReproduceOptions, measure_series, train_runs
from riffle.cli.display import Json, errors, output, print_json, print_next, require
from riffle.files import FolderLock, read_text, write_atomically

if TYPE_CHECKING:
    from research.reproduce.figure import LearningFigure, TimingFigure
    from research.reproduce.verdicts import Claim


RESULTS = Path("research/results")
"""Where a clone keeps the results; its README.md is the report."""


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="The experiment; without a name, all of them are listed.", metavar="NAME")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help=f"Measure nothing: write {RESULTS}/README.md from all results.")
    ] = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Measure nothing: draw the figure and judge the claims from the results.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny models: a minute or so on a CPU, no result.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Only series or runs with one of these texts in their name, separated by commas; other series in the "
            "file of a timing experiment are kept.",
            metavar="TEXTS",
            show_default="all",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of all results; these go to OUT/NAME.", show_default=f"{RESULTS}, runs/quick if quick"
        ),
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
        str | None, typer.Option(help="Commit to record in the results.", show_default="what git says")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="Timing: gigabytes of the GPU to use; the paper's had 11.", min=1, show_default="all"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Timing: seconds that one call may take; longer lengths are left out.", min=0.01, show_default="10"
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Learning: seeds of each run.", min=1, show_default="1 to 5, as the paper has")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Learning: change a field of all runs, e.g. train.steps=5000.", metavar="KEY=VALUE"),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            help="Learning: runs at once on each device.", min=1, show_default="6 on a GPU, all cores of a CPU"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Learning: time limit, at which every run is saved; the same command continues.", min=0.01),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Learning: folder of the run folders.", show_default="runs/reproduce, runs/quick if quick"),
    ] = None,
    json: Json = False,
) -> None:
    """Repeat an experiment of the paper: write the results, draw the figure, and judge the paper's claims.

    Learning trains several runs at once, each in a process and a run folder of its own, and writes a JSON file of
    each. Whatever stops it, the same command continues: finished runs are skipped, others resumed. On a GPU it starts
    NVIDIA's MPS where that is installed, so that the kernels of several runs share the GPU.
    """
    require("matplotlib")
    root = out or Path("runs/quick" if quick else RESULTS)
    if report:
        from research.reproduce.report import HEAD
        from research.reproduce.report import report as write_report

        if not root.is_dir():
            raise ValueError(f"--report reads the results in {root}: run it in a clone of the repository")
        page = root / "README.md"
        if page.exists() and not read_text(page).startswith(HEAD.partition("\n")[0]):
            raise ValueError(f"{page} is no report and would be overwritten: give the folder of the results with --out")
        write_atomically(page, write_report(root).encode())
        errors.print(f"written: {page}", markup=False)
        print_next("python -m research.tables.readme writes the tables of README and docs from the same results")
        return
    from research.reproduce import FIGURES, get_figure

    if name is None:
        table = Table("experiment", "kind", "what it measures", header_style="bold")
        for each, entry in FIGURES.items():
            table.add_row(each, entry.kind, entry.summary)
        return output.print(table)
    from research.reproduce.figure import LearningFigure

    figure = get_figure(name)
    learns, timing = isinstance(figure, LearningFigure), {"--memory": memory, "--budget": budget}
    learning = {"--runs": runs, "--set": change, "--at-once": at_once, "--minutes": minutes, "--work": work}
    if ignored := [option for option, value in (timing if learns else learning).items() if value]:
        kinds = ("learning", "timing") if learns else ("timing", "learning")
        raise ValueError(f"{name} is about {kinds[0]}, and {', '.join(ignored)} is for {kinds[1]}: leave it out")
    options = ReproduceOptions(
        quick=quick,
        only=_split(only),
        results=root,
        devices=_split(device),
        commit=commit,
        memory=memory,
        budget=budget or 10.0,
        runs=runs,
        changes=tuple(change or ()),
        at_once=at_once,
        minutes=minutes,
        work=work or Path("runs/quick" if quick else "runs/reproduce"),
    )
    with nullcontext() if draw else FolderLock(root / figure.name):
        if isinstance(figure, LearningFigure):
            status = 0 if draw else train_runs(figure, options)
            _show_learning(figure, root, json=json)
            raise typer.Exit(status)
        if not draw:
            measure_series(figure, options)
        _show_timing(figure, figure.results_path(root, memory), json=json)


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _show_learning(figure: LearningFigure, root: Path, *, json: bool) -> None:
    """Draw the figure from the results so far, and print the claims."""
    results = figure.read(root)
    names = dict.fromkeys([*figure.folders, *(spec.folder for spec in figure.base_specs)])
    drawn = figure.save(root) if results else ()
    shown = {"experiment": figure.name, "runs": [result["run"] for result in results]}
    where = f"numbers of {len(results)} runs: {', '.join(str(root / name) for name in names)}"
    _show(shown, figure.claims(results) if json or results else [], where, drawn, json=json)


def _show_timing(figure: TimingFigure, path: Path, *, json: bool) -> None:
    """Draw the figure of a result file, and print the claims."""
    from research.reproduce.figure import read_timing

    results = read_timing(path)
    _show(results, figure.claims(results), f"numbers: {path}", figure.save(path), json=json)


def _show(shown: dict[str, Any], claims: Sequence[Claim], where: str, drawn: Sequence[Path], *, json: bool) -> None:
    """Print the verdict on each of the paper's claims, and what was found, or all as JSON."""
    from research.reproduce.verdicts import judge

    judged = list(zip(claims, judge(claims), strict=True))
    if json:
        said = [claim._asdict() | {"verdict": verdict.word, "found": claim.found} for claim, verdict in judged]
        print_json({**shown, "claims": said})
    else:
        colours = {True: "green", False: "red", None: "yellow"}
        for claim, verdict in judged:
            text = f"[{colours[verdict.agrees]}]{verdict.word}[/]: {escape(claim.statement)}: {escape(claim.found)}"
            output.print(text, highlight=False, soft_wrap=True)
    pictures = f"figure: {', '.join(map(str, drawn))}" if drawn else "nothing to draw"
    errors.print(f"{where}   {pictures}", markup=False, soft_wrap=True)
    print_next("python -m research reproduce --report writes all results beside the paper's")
