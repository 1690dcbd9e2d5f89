"""``riffle train``: learn a task from examples; :func:`train_run` is what ``riffle lambada train`` shares with it."""

from __future__ import annotations

import inspect
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.progress import TextColumn
from rich.table import Table

from riffle.cli.display import (
    Device,
    Json,
    choose_device,
    errors,
    have,
    output,
    print_json,
    print_outcome,
    program,
    progress_bar,
)
from riffle.config import RunConfig
from riffle.quantities import format_percent, format_wait

if TYPE_CHECKING:
    import torch

    from riffle.train.distributed import RankGroup
    from riffle.train.run import Run


MEASURED_STEPS, MEASURED_SECONDS = 3, 1.0
"""At least so many steps, and so long, tell on a CPU how long a run will take."""
LONG_SECONDS = 3600.0
"""From here on the smaller recipe is named."""


class TrainMessages(NamedTuple):
    """The wording of a command's messages about its run."""

    command: str  # without program and options
    metric: str  # what an evaluation measures
    score: str  # format of an accuracy and of the length or split that it belongs to
    next_step: Callable[[Run], None]  # says what to do with a finished run
    recipe: str = ""  # that of a new run, if it has one

    def resume_command(self, folder: Path, ranks: RankGroup) -> str:
        """The command that continues a run."""
        start = program()
        if ranks.size > 1:
            start = f"torchrun --nproc-per-node {ranks.size} -m {start.removeprefix('python -m ')}"
        return f"{start} {self.command} --resume --out {folder}"


def train_run(
    make: Callable[[], RunConfig],
    name: str,
    own: dict[str, Any],
    messages: TrainMessages,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Kind of network; [bold]python -m research[/] in a clone has the paper's rivals.",
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
    precision: Annotated[
        str | None, typer.Option(help="auto, fp32, tf32 or bf16; same as --set train.precision=P.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change any field of the recipe, e.g. --set model.blocks=2; see --show.", metavar="KEY=VALUE"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the configuration with its meaning, and stop.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the folder from its last checkpoint.")
    ] = False,
    device: Device = "auto",
    graph: Annotated[bool, typer.Option(help="On a GPU, replay each step as one CUDA graph.")] = True,
    timeout: Annotated[
        float,
        typer.Option(help="Under torchrun: how long a process waits for another.", metavar="SECONDS", min=1, max=1e9),
    ] = 600,
    json: Json = False,
) -> None:
    """Train a run, new or resumed, behind a progress bar, and print where it is; or only show its configuration.

    A new run has the configuration that ``make`` gives; ``own`` are the fields that the command's own options set.
    """
    import torch

    from riffle.config import fields, override
    from riffle.kernels import resolve
    from riffle.recipes import with_model
    from riffle.train.distributed import RankGroup, RankLost, local_device
    from riffle.train.run import Run, read_metrics

    folder = out or Path("runs") / (f"{name}-{model}" if model else name)
    named = {**own, "model.kind": model, "model.features": features}
    named |= {"train.steps": steps, "train.seed": seed, "train.precision": precision}
    changes = [f"{field}={value}" for field, value in named.items() if value is not None] + (change or [])
    config = override(Run(folder).config if resume else with_model(make(), model), changes)
    if show and json:
        return print_json(asdict(config))
    if show:
        table = Table("field", "value", "meaning", header_style="bold")
        for name, (value, meaning) in fields(config).items():
            table.add_row(name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value), meaning)
        return output.print(table)
    have("tensorboard", "TensorBoard curves")
    device = choose_device(device)
    local = local_device(device)
    resolve(getattr(config.model, "backend", "auto"), torch.empty(0, device=local))  # refuses before a folder is made
    ranks = RankGroup.from_environment(local, timeout=timeout)
    try:
        run = ranks.rank0_first(lambda: Run.resume(folder, config) if resume else Run.create(folder, config))
        if run and resume and not run.checkpoint.exists():
            dropped = len(read_metrics(folder))
            lines = f", and the {dropped} lines of metrics.jsonl are dropped" if dropped else ""
            note = f"{folder} has no checkpoint: it starts at step 0{lines}"
            errors.print(note, markup=False, highlight=False, soft_wrap=True)
        _train_with_bar(run or Run(folder), ranks, local, graph, messages)
        ranks.close()
    except RankLost as lost:
        raise RankLost(f"{lost}. Continue with: {messages.resume_command(folder, ranks)}") from lost
    if json and ranks.is_rank0:
        metrics = read_metrics(folder)[-2:]
        print_json({"task": config.task, "run": str(folder), "device": device, "metrics": metrics})
    elif ranks.is_rank0:
        kept = f" Kept are the weights after step {Run(folder).weights_step()}." if config.train.keep == "best" else ""
        errors.print(f"The run is in {folder}.{kept}", markup=False, soft_wrap=True)
        messages.next_step(Run(folder))


def with_training_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of :func:`train_run` in place of its own ``**options``."""
    own, shared = (inspect.signature(each, eval_str=True).parameters.values() for each in (command, train_run))
    options = [each for each in shared if each.kind is each.KEYWORD_ONLY]
    command.__signature__ = inspect.Signature([*own][:-1] + options)  # type: ignore[attr-defined]
    return command


@with_training_options
def train(
    task: Annotated[str, typer.Argument(help="Task to learn; [bold]riffle tasks[/] lists them.", metavar="TASK")],
    recipe: Annotated[
        str,
        typer.Option(
            help="[bold]default[/]: inputs of every structure, for a GPU; [bold]small[/]: two CPU minutes; "
            "[bold]paper[/]: the paper's network and training."
        ),
    ] = "default",
    data: Annotated[
        Path | None, typer.Option(help="The file of text that TASK [bold]text[/] learns to continue.", metavar="FILE")
    ] = None,
    **options: Any,
) -> None:
    """Train a network on examples of a task, or on a text, and write a run folder.

    The folder holds config.json, environment.json, metrics.jsonl, checkpoint.safetensors and TensorBoard curves.
    Ctrl-C saves a checkpoint and stops; [bold]--resume[/] continues from it, to the same result.

    With several GPUs: [bold]torchrun --nproc-per-node 8 -m riffle train TASK[/].
    Each process takes data.batch examples of every bin, so a step has 8 times as many.
    """
    from riffle.recipes import RECIPES, text
    from riffle.tasks import get_task

    if task == "text":
        if not options["resume"] and not options["show"] and not (data and data.is_file()):
            raise ValueError(f"riffle train text needs a file of text, --data FILE, got {data or 'none'}")
        messages = TrainMessages("train text", "bytes right", "{} in {}", _print_bits)
        return train_run(text, "text", {"data.file": data}, messages, **options)
    if data:
        raise ValueError(f"--data is for riffle train text, not for {task!r}, whose examples are drawn")
    messages = TrainMessages(
        command=f"train {task}",
        metric="symbols / whole sequences right on held-out examples",
        score="{} at {}",
        next_step=_print_outcome,
        recipe="" if options["resume"] else recipe,
    )
    name, make = get_task(task).name, RECIPES[recipe]
    train_run(lambda: make(task), name, {"task": task}, messages, **options)


def _print_outcome(run: Run) -> None:
    from riffle.train.outcome import describe, training_scores

    said, then = describe(run, scores := training_scores(run), program())
    print_outcome(said, then, f"see how far it generalises: {program()} eval {run.folder}" if scores else "")


def _print_bits(run: Run) -> None:
    from riffle.train.objective import make_objective

    device = choose_device("auto")
    objective: Any = make_objective(run.config, run.folder, device)
    bits = objective.bits_per_byte(run.model(device))
    print_outcome(f"{bits:.3f} bits a byte at the end of the text.", f'{program()} write "…" --run {run.folder}', "")


def _start_line(run: Run, device: torch.device, recipe: str, wait: float) -> str:
    """What begins: where, in which precision, how many steps, and on a CPU how long that takes."""
    from riffle.environment import device_name

    precision = {"bf16": "bfloat16", "tf32": "TF32"}.get(run.precision(device), "float32")
    by = f"recipe {recipe}, " if recipe else ""
    line = f"{run.config.task}: {by}on {device_name(device)} in {precision}: {run.config.train.steps:,} steps"
    line += f", about {format_wait(wait)}" if wait else ""
    return f"{line}; --recipe small takes minutes" if wait >= LONG_SECONDS and recipe not in ("", "small") else line


def _accuracies(accuracy: Mapping[str, float]) -> dict[str, str]:
    """An evaluation as ``99% / 95%`` by length or split: symbols, and whole sequences where they were counted."""
    names = {name: (name, f"sequences/{name}") for name in accuracy if not name.startswith(("score", "sequences/"))}
    return {
        name: " / ".join(format_percent(accuracy[each]) for each in both if each in accuracy)
        for name, both in names.items()
    }


def _train_with_bar(run: Run, ranks: RankGroup, device: torch.device, graph: bool, messages: TrainMessages) -> None:
    """Train; of several processes, only rank 0 shows the progress bar and the evaluations."""
    from riffle.train.distributed import RankLost
    from riffle.train.loop import EvaluationFailed, Interrupted, NonFiniteLoss
    from riffle.train.loop import train as run_training

    bar = progress_bar(
        TextColumn("loss {task.fields[loss]}"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[rate]} steps/s"),
    )
    bar.disable = not ranks.is_rank0
    task, steps = run.config.task, run.config.train.steps
    job = bar.add_task(task, total=steps, completed=run.saved_step(), loss="-", accuracy="-", rate="-")

    begun, clock = run.saved_step(), list[float]()
    measuring = ranks.is_rank0 and device.type == "cpu"

    def announce(wait: float = 0.0) -> None:
        if ranks.is_rank0:
            line = _start_line(run, device, messages.recipe, wait)
            bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def on_step(step: int) -> None:
        nonlocal measuring
        if measuring:
            clock.append(time.perf_counter())
            measuring = step < steps and (len(clock) <= MEASURED_STEPS or clock[-1] < clock[0] + MEASURED_SECONDS)
            if not measuring:
                announce((steps - begun) * median([after - before for before, after in pairwise(clock)] or [0.0]))

    def on_log(step: int, values: dict[str, float]) -> None:
        loss, rate = f"{values['loss']:.4f}", f"{values['steps_per_second']:.0f}"
        bar.update(job, completed=step, loss=loss, accuracy=format_percent(values["accuracy"]), rate=rate)

    def on_evaluation(step: int, accuracy: dict[str, float]) -> None:
        scores = ", ".join(messages.score.format(value, where) for where, value in _accuracies(accuracy).items())
        bar.console.print(f"step {step}: {messages.metric}: {scores}", highlight=False)

    try:
        with bar:
            try:
                if device.type != "cpu":
                    announce()
                calls = {"on_step": on_step, "on_log": on_log, "on_evaluation": on_evaluation}
                run_training(run, device=device, graph=graph, ranks=ranks, **calls)  # type: ignore[arg-type]
            except RankLost:
                # torchrun now ends the other processes: its signal must not cut off this one's message.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                raise
    except (NonFiniteLoss, EvaluationFailed) as error:
        ranks.exit_after_rank0()
        raise ValueError(str(error)) from error
    except Interrupted as stop:
        ranks.exit_after_rank0()
        again = messages.resume_command(run.folder, ranks)
        errors.print(f"{stop}. Continue with: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(128 + stop.signal_number) from None
