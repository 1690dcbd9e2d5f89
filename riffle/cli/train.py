"""``riffle train``: learn a task from examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TextColumn
from rich.table import Table

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, progress_bar
from riffle.config import RIVALS
from riffle.wording import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from riffle.config import Experiment
    from riffle.train.distributed import World
    from riffle.train.run import Run


def _names(choices: Iterable[str]) -> str:
    """Names for a sentence of the help."""
    *first, last = (f"[bold]{name}[/]" for name in choices)
    return f"{', '.join(first)} or {last}"


def train(
    task: Annotated[str, typer.Argument(help="What to learn; [bold]riffle tasks[/] lists the tasks.", metavar="TASK")],
    recipe: Annotated[
        str,
        typer.Option(
            help="[bold]paper[/]: 192 maps, lengths to 64, for a GPU; [bold]long[/]: the same with strong decay, which "
            "generalises further; [bold]small[/]: two CPU minutes."
        ),
    ] = "paper",
    model: Annotated[
        str | None,
        typer.Option(
            help="What learns it: [bold]shuffle-exchange[/], or with settings of its own " + _names(RIVALS) + ".",
            show_default="shuffle-exchange",
            metavar="NAME",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="runs/TASK, runs/TASK-NAME with --model")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Same as --set train.steps=N.")] = None,
    features: Annotated[int | None, typer.Option(help="Feature maps; same as --set model.features=N.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set train.seed=N.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32 or bf16; same as --set train.precision=P.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change any field of the recipe, e.g. --set model.blocks=2; see --show.", metavar="KEY=VALUE"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the configuration with its meaning, and stop.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder where it stopped.")] = False,
    device: Device = "auto",
    graph: Annotated[bool, typer.Option(help="On a GPU, replay each step as one CUDA graph.")] = True,
    timeout: Annotated[
        float, typer.Option(help="Under torchrun: how long a process waits for another.", metavar="SECONDS", min=1)
    ] = 600,
    json: Json = False,
) -> None:
    """Learn a task from examples and leave a run folder behind.

    The folder holds config.json, environment.json, metrics.jsonl, checkpoint.safetensors and TensorBoard curves.
    Ctrl-C saves and stops; [bold]--resume[/] goes on from there, to the same result.

    With several GPUs: [bold]torchrun --nproc-per-node 8 -m riffle train TASK[/].
    Each process takes data.batch examples of every bin, a step 8 times as many.
    """
    from riffle.tasks import get_task

    get_task(task)
    folder = out or Path("runs") / (f"{task}-{model}" if model else task)
    named = {"train.steps": steps, "model.features": features, "train.seed": seed, "train.precision": precision}
    changes = [f"{name}={value}" for name, value in named.items() if value is not None] + (change or [])
    experiment = _experiment(task, recipe, model, changes, folder if resume else None)
    if show:
        _show(experiment, json)
        return
    _train(experiment, folder, resume, choose_device(device), graph, timeout, json)


def _experiment(task: str, recipe: str, model: str | None, changes: list[str], resumed: Path | None) -> Experiment:
    from dataclasses import replace

    from riffle.config import RECIPES, with_model
    from riffle.overrides import override
    from riffle.train.run import Run

    if resumed is not None:
        kind = [f"model.kind={model}"] if model else []
        return override(replace(Run(resumed).experiment, task=task), kind + changes)
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    experiment = RECIPES[recipe](task)
    return override(with_model(experiment, model) if model else experiment, changes)


def _show(experiment: Experiment, json: bool) -> None:
    from dataclasses import asdict

    from riffle.overrides import fields

    if json:
        print_json(asdict(experiment))
        return
    table = Table("field", "value", "meaning", header_style="bold")
    for name, (value, meaning) in fields(experiment).items():
        table.add_row(name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value), meaning)
    output.print(table)


def _train(
    experiment: Experiment, folder: Path, resume: bool, device_name: str, graph: bool, timeout: float, json: bool
) -> None:
    import torch

    from riffle.kernels import resolve
    from riffle.train.distributed import RankLost, World, local_device
    from riffle.train.record import read_metrics
    from riffle.train.run import Run

    device = local_device(device_name)
    resolve(experiment.model.backend, torch.empty(0, device=device))  # refuses before a folder is made
    world = World.from_environment(device, timeout=timeout)
    try:
        world.first(lambda: Run.resume(folder, experiment) if resume else Run.create(folder, experiment))
        _watch(Run(folder), world, device, graph)
        world.leave()
    except RankLost as lost:
        raise RankLost(f"{lost}. Continue with: {_again(experiment.task, folder, world)}") from lost
    if json and world.leads:
        print_json(
            {"task": experiment.task, "run": str(folder), "device": device_name, "metrics": read_metrics(folder)[-2:]}
        )
    elif world.leads:
        errors.print(
            f"The run is in {folder}. See how far it generalises: riffle eval {folder}", markup=False, soft_wrap=True
        )


def _watch(run: Run, world: World, device: torch.device, graph: bool) -> None:
    """Train behind a progress bar; of several processes, rank 0 speaks for all."""
    from riffle.train.loop import Interrupted, NonFiniteLoss
    from riffle.train.loop import train as run_training

    bar = progress_bar(
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[rate]:.0f} steps/s"),
    )
    bar.disable = not world.leads

    def on_log(step: int, values: dict[str, float]) -> None:
        accuracy = percent(values["accuracy"])
        bar.update(job, completed=step, loss=values["loss"], accuracy=accuracy, rate=values["steps_per_second"])

    def on_evaluation(step: int, accuracy: dict[int, float]) -> None:
        held_out = ", ".join(f"{percent(value)} at {length}" for length, value in accuracy.items())
        bar.console.print(f"step {step}: symbols right on held-out examples: {held_out}", highlight=False)

    try:
        with bar:
            job = bar.add_task(
                run.experiment.task,
                total=run.experiment.train.steps,
                completed=run.saved_step(),
                loss=float("nan"),
                accuracy="-",
                rate=0.0,
            )
            run_training(run, device=device, graph=graph, world=world, on_log=on_log, on_evaluation=on_evaluation)
    except NonFiniteLoss as error:
        world.follow()
        raise ValueError(str(error)) from error
    except Interrupted as stop:
        world.follow()
        errors.print(
            f"{stop}. Continue with: {_again(run.experiment.task, run.folder, world)}", markup=False, soft_wrap=True
        )
        raise typer.Exit(128 + stop.signal_number) from None


def _again(task: str, folder: Path, world: World) -> str:
    """The command that continues a run."""
    launcher = f"torchrun --nproc-per-node {world.size} -m " if world.size > 1 else ""
    return f"{launcher}riffle train {task} --resume --out {folder}"
