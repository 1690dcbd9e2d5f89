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

    from riffle.config import Experiment


def names(choices: Iterable[str]) -> str:
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
            help="What learns it: [bold]shuffle-exchange[/], or with settings of its own " + names(RIVALS) + ".",
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
    json: Json = False,
) -> None:
    """Learn a task from examples and leave a run folder behind.

    The folder holds config.json, environment.json, metrics.jsonl, checkpoint.safetensors and TensorBoard curves.
    Ctrl-C saves and stops; [bold]--resume[/] goes on from there, to the same result.
    """
    from riffle.tasks import get_task

    get_task(task)
    folder = out or Path("runs") / (f"{task}-{model}" if model else task)
    named = {"train.steps": steps, "model.features": features, "train.seed": seed, "train.precision": precision}
    changes = [f"{name}={value}" for name, value in named.items() if value is not None] + (change or [])
    experiment = _experiment(task, recipe, model, changes, folder if resume else None)
    if show:
        show_configuration(experiment, json)
        return
    learn(
        experiment,
        folder,
        resume,
        choose_device(device),
        graph,
        json,
        shown="symbols right on held-out examples: {} at {}",
        command=f"riffle train {task}",
        then=f"See how far it generalises: riffle eval {folder}",
    )


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


def show_configuration(experiment: Experiment, json: bool) -> None:
    """Print every field with its value and meaning."""
    from dataclasses import asdict

    from riffle.overrides import fields

    if json:
        print_json(asdict(experiment))
        return
    table = Table("field", "value", "meaning", header_style="bold")
    for name, (value, meaning) in fields(experiment).items():
        table.add_row(name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value), meaning)
    output.print(table)


def learn(
    experiment: Experiment,
    folder: Path,
    resume: bool,
    device: str,
    graph: bool,
    json: bool,
    *,
    shown: str,
    command: str,
    then: str,
) -> None:
    """Train with a progress bar, and say how to go on.

    Args:
        experiment, folder, resume, device, graph, json: As on the command line.
        shown: How an evaluation is told: a head, a colon, and how an accuracy and what it belongs to are written.
        command: What was called, without its options.
        then: What to do with a finished run.
    """
    import torch

    from riffle.kernels import resolve
    from riffle.train.loop import Interrupted, NonFiniteLoss
    from riffle.train.loop import train as run_training
    from riffle.train.record import read_metrics
    from riffle.train.run import Run

    resolve(experiment.model.backend, torch.empty(0, device=device))  # refuses before a folder is made
    run = Run.resume(folder, experiment) if resume else Run.create(folder, experiment)
    bar = progress_bar(
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[rate]:.0f} steps/s"),
    )

    def on_log(step: int, values: dict[str, float]) -> None:
        accuracy = percent(values["accuracy"])
        bar.update(job, completed=step, loss=values["loss"], accuracy=accuracy, rate=values["steps_per_second"])

    def on_evaluation(step: int, accuracy: dict[str, float]) -> None:
        head, _, each = shown.partition(": ")
        told = ", ".join(each.format(percent(value), where) for where, value in accuracy.items())
        bar.console.print(f"step {step}: {head}: {told}", highlight=False)

    try:
        with bar:
            job = bar.add_task(
                experiment.task,
                total=experiment.train.steps,
                completed=run.saved_step(),
                loss=float("nan"),
                accuracy="-",
                rate=0.0,
            )
            run_training(run, device=device, graph=graph, on_log=on_log, on_evaluation=on_evaluation)
    except NonFiniteLoss as error:
        raise ValueError(str(error)) from error
    except Interrupted as stop:
        errors.print(f"{stop}. Continue with: {command} --resume --out {folder}", markup=False, soft_wrap=True)
        raise typer.Exit(128 + stop.signal_number) from None
    if json:
        print_json(
            {"task": experiment.task, "run": str(folder), "device": device, "metrics": read_metrics(folder)[-2:]}
        )
    else:
        errors.print(f"The run is in {folder}. {then}", markup=False, soft_wrap=True)
