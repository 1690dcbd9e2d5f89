"""``riffle solve``: answer one input with a trained network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from riffle.cli.display import Device, Json, Precision, choose_device, errors, output, print_json, progress_bar

if TYPE_CHECKING:
    from torch import nn


MAX_SHOWN = 200
"""Characters of the right answer that are shown beside a wrong one."""


def solve(
    task: Annotated[str, typer.Argument(help="Task to solve; [bold]riffle tasks[/] lists them.", metavar="TASK")],
    symbols: Annotated[
        list[str] | None,
        typer.Argument(help="The input, as a person would write it.", metavar="SYMBOLS...", show_default=False),
    ] = None,
    input: Annotated[
        Path | None, typer.Option(help="Read the input from this file instead; - for standard input.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Move the input through the device part by part: any length fits.")
    ] = False,
    part: Annotated[
        str | None, typer.Option(help="Cells on the device at once with --stream, a power of two.", show_default="2^20")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Folder for the cells with --stream.", show_default="the system's temporary one"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the output to this file instead of printing it.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="The trained run.", show_default="the shipped one, else the newest in runs"),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Take the newest run of the task in this folder, if there is one.")
    ] = None,
    device: Device = "cpu",
    precision: Precision = "auto",
    json: Json = False,
) -> None:
    """Solve one example with a trained network, and check the answer.

    riffle solve add 1011 110  ·  riffle solve sort 7 3 9 1  ·  riffle solve dyck "([])"

    riffle solve sort --input numbers.txt --stream --out sorted.txt
    """
    from dataclasses import asdict
    from functools import partial

    import torch

    from riffle.files import check_writable, write_atomically
    from riffle.quantities import parse_count
    from riffle.train.objective import in_precision
    from riffle.train.run import Run
    from riffle.train.shipped import find_trained_run, predict
    from riffle.train.shipped import solve as solve_with

    if (part is not None or scratch is not None) and not stream:
        raise ValueError("--part and --scratch are for --stream, which was not given")
    if run is not None and runs is not None:
        raise ValueError("--run names the run, and --runs where to look for one: give one of them")
    if runs is not None and not runs.is_dir():
        raise ValueError(f"there is no folder {runs}")
    words = _input_words(symbols, input)
    if out is not None:
        check_writable(out)
    trained = Run(run) if run else find_trained_run(task, runs)
    predictor = partial(_predict_streamed, part=parse_count(part or "2^20"), scratch=scratch) if stream else predict
    device = choose_device(device)
    with in_precision(precision, torch.device(device)):
        solution = solve_with(task, words, trained, device=device, predictor=predictor)
    if out is not None:
        write_atomically(out, f"{solution.output}\n".encode())
    if json:
        return print_json(asdict(solution))
    if out is None:
        output.print(solution.output, highlight=False, markup=False, soft_wrap=True)
    expected = solution.expected if len(solution.expected) <= MAX_SHOWN else f"{solution.expected[:MAX_SHOWN]}…"
    verdict = "[green]right[/]" if solution.correct else f"[red]wrong[/], the answer is {escape(expected)}"
    source = f"(by {escape(solution.model)}, step {trained.saved_step()})"
    errors.print(f"{verdict} {source}", highlight=False, soft_wrap=True)
    if beyond := solution.beyond_tests():
        errors.print(beyond, highlight=False, soft_wrap=True)


def _input_words(symbols: list[str] | None, path: Path | None) -> list[str]:
    """The input, typed or from a file."""
    if path is None:
        if not symbols:
            raise ValueError("there is nothing to solve: type SYMBOLS, or name a file with --input")
        return symbols
    if symbols:
        raise ValueError(f"the input is typed as well as in {path}: give SYMBOLS or --input, not both")
    from riffle.files import read_stream, read_text

    words = (read_stream(sys.stdin.buffer, "standard input") if path == Path("-") else read_text(path)).split()
    if not words:
        raise ValueError(f"{path} is empty: write the symbols into it as they would be typed")
    return words


def _predict_streamed(model: nn.Module, symbols: list[int], *, part: int, scratch: Path | None) -> list[int]:
    """The output of a model, computed part by part behind a progress bar."""
    from riffle.models.sequence import predict_streamed

    with progress_bar() as bar:
        job = bar.add_task("parts", total=None)

        def on_progress(done: int, parts: int) -> None:
            bar.update(job, completed=done, total=parts)

        return predict_streamed(model, symbols, part=part, scratch=scratch, on_progress=on_progress)
