"""``riffle train``: learn a task from examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from riffle.cli.display import Device, Json, choose_device
from riffle.cli.learning import (
    Features,
    Graph,
    PrecisionName,
    Resume,
    Seed,
    Show,
    Steps,
    Timeout,
    TrainMessages,
    learn,
    names,
    show_configuration,
)
from riffle.recipes import BASELINES

if TYPE_CHECKING:
    from riffle.config import RunConfig


def train(
    task: Annotated[str, typer.Argument(help="What to learn; [bold]riffle tasks[/] lists the tasks.", metavar="TASK")],
    recipe: Annotated[
        str,
        typer.Option(
            help="[bold]paper[/]: 192 maps, lengths to 64, for a GPU; [bold]released[/]: the same by the optimiser of "
            "the paper's code; [bold]long[/]: at a high, steady rate, runs far beyond its lengths; "
            "[bold]small[/]: two CPU minutes."
        ),
    ] = "paper",
    model: Annotated[
        str | None,
        typer.Option(
            help="What learns it: [bold]shuffle-exchange[/], or with settings of its own " + names(BASELINES) + ".",
            show_default="shuffle-exchange",
            metavar="NAME",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="runs/TASK, runs/TASK-NAME with --model")
    ] = None,
    steps: Steps = None,
    features: Features = None,
    seed: Seed = None,
    precision: PrecisionName = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change any field of the recipe, e.g. --set model.blocks=2; see --show.", metavar="KEY=VALUE"
        ),
    ] = None,
    show: Show = False,
    resume: Resume = False,
    device: Device = "auto",
    graph: Graph = True,
    timeout: Timeout = 600,
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
    config = _experiment(task, recipe, model, changes, folder if resume else None)
    if show:
        show_configuration(config, json)
        return
    telling = TrainMessages(
        command=f"riffle train {task}",
        accuracy="symbols right on held-out examples",
        where="{} at {}",
        then="See how far it generalises: riffle eval",
    )
    learn(
        config,
        folder,
        telling,
        resume=resume,
        device_name=choose_device(device),
        graph=graph,
        timeout=timeout,
        json=json,
    )


def _experiment(task: str, recipe: str, model: str | None, changes: list[str], resumed: Path | None) -> RunConfig:
    from dataclasses import replace

    from riffle.config import override
    from riffle.recipes import RECIPES, with_model
    from riffle.train.run import Run

    if resumed is not None:
        kind = [f"model.kind={model}"] if model else []
        return override(replace(Run(resumed).config, task=task), kind + changes)
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    config = RECIPES[recipe](task)
    return override(with_model(config, model) if model else config, changes)
