"""Training behind a progress bar: what ``riffle train`` and ``riffle lambada train`` have in common."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TextColumn
from rich.table import Table

from riffle.cli.display import errors, output, print_json, progress_bar
from riffle.quantities import format_percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from riffle.config import RunConfig
    from riffle.train.distributed import World
    from riffle.train.run import Run


Steps = Annotated[int | None, typer.Option(help="Same as --set train.steps=N.")]
Features = Annotated[int | None, typer.Option(help="Feature maps; same as --set model.features=N.")]
Seed = Annotated[int | None, typer.Option(help="Same as --set train.seed=N.")]
PrecisionName = Annotated[str | None, typer.Option(help="fp32, tf32 or bf16; same as --set train.precision=P.")]
Show = Annotated[bool, typer.Option("--show", help="Print the configuration with its meaning, and stop.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder where it stopped.")]
Graph = Annotated[bool, typer.Option(help="On a GPU, replay each step as one CUDA graph.")]
Timeout = Annotated[
    float, typer.Option(help="Under torchrun: how long a process waits for another.", metavar="SECONDS", min=1)
]


@dataclass(frozen=True)
class TrainMessages:
    """How a command speaks of its runs."""

    command: str
    """The command without its options."""
    accuracy: str
    """What an evaluation measures."""
    where: str
    """How an accuracy and what it belongs to are written."""
    then: str
    """What to do with a finished run; its folder follows."""


def learn(
    config: RunConfig,
    folder: Path,
    telling: TrainMessages,
    *,
    resume: bool,
    device_name: str,
    graph: bool,
    timeout: float,
    json: bool,
) -> None:
    """Train a run, new or continued, and say how to go on."""
    import torch

    from riffle.kernels import resolve
    from riffle.train.distributed import RankLost, World, local_device
    from riffle.train.run import Run, read_metrics

    device = local_device(device_name)
    resolve(config.model.backend, torch.empty(0, device=device))  # refuses before a folder is made
    world = World.from_environment(device, timeout=timeout)
    try:
        world.rank0_first(lambda: Run.resume(folder, config) if resume else Run.create(folder, config))
        _watch(Run(folder), world, device, graph, telling)
        world.close()
    except RankLost as lost:
        raise RankLost(f"{lost}. Continue with: {_again(telling, folder, world)}") from lost
    if json and world.is_rank0:
        metrics = read_metrics(folder)[-2:]
        print_json({"task": config.task, "run": str(folder), "device": device_name, "metrics": metrics})
    elif world.is_rank0:
        kept = f" Kept are the weights after step {Run(folder).kept_step()}." if config.train.keep == "best" else ""
        errors.print(f"The run is in {folder}.{kept} {telling.then} {folder}", markup=False, soft_wrap=True)


def show_configuration(config: RunConfig, json: bool) -> None:
    """Print every field with its value and meaning."""
    from dataclasses import asdict

    from riffle.config import fields

    if json:
        print_json(asdict(config))
        return
    table = Table("field", "value", "meaning", header_style="bold")
    for name, (value, meaning) in fields(config).items():
        table.add_row(name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value), meaning)
    output.print(table)


def names(choices: Iterable[str]) -> str:
    """Names for a sentence of the help."""
    *first, last = (f"[bold]{name}[/]" for name in choices)
    return f"{', '.join(first)} or {last}"


def _watch(run: Run, world: World, device: torch.device, graph: bool, telling: TrainMessages) -> None:
    """Train behind a progress bar; of several processes, rank 0 speaks for all."""
    from riffle.train.distributed import RankLost
    from riffle.train.loop import Interrupted, NonFiniteLoss
    from riffle.train.loop import train as run_training

    bar = progress_bar(
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[rate]:.0f} steps/s"),
    )
    bar.disable = not world.is_rank0

    def on_log(step: int, values: dict[str, float]) -> None:
        accuracy = format_percent(values["accuracy"])
        bar.update(job, completed=step, loss=values["loss"], accuracy=accuracy, rate=values["steps_per_second"])

    def on_evaluation(step: int, accuracy: dict[str, float]) -> None:
        told = ", ".join(telling.where.format(format_percent(value), where) for where, value in accuracy.items())
        bar.console.print(f"step {step}: {telling.accuracy}: {told}", highlight=False)

    try:
        with bar:
            job = bar.add_task(
                run.config.task,
                total=run.config.train.steps,
                completed=run.saved_step(),
                loss=float("nan"),
                accuracy="-",
                rate=0.0,
            )
            try:
                run_training(run, device=device, graph=graph, world=world, on_log=on_log, on_evaluation=on_evaluation)
            except RankLost:
                # torchrun now ends the other processes: its signal must not cut off what this one has to say.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                raise
    except NonFiniteLoss as error:
        world.exit_after_rank0()
        raise ValueError(str(error)) from error
    except Interrupted as stop:
        world.exit_after_rank0()
        errors.print(f"{stop}. Continue with: {_again(telling, run.folder, world)}", markup=False, soft_wrap=True)
        raise typer.Exit(128 + stop.signal_number) from None


def _again(telling: TrainMessages, folder: Path, world: World) -> str:
    """The command that continues a run."""
    launcher = f"torchrun --nproc-per-node {world.size} -m " if world.size > 1 else ""
    return f"{launcher}{telling.command} --resume --out {folder}"
