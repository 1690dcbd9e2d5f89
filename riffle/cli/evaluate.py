"""``riffle eval``: accuracy over length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import (
    Device,
    Json,
    choose_device,
    errors,
    output,
    plot_scores,
    print_json,
    progress_bar,
    score_table,
    worst_case_table,
)


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run, as riffle train made it.", metavar="RUN")],
    lengths: Annotated[
        str, typer.Option(help="Input lengths, separated by commas.")
    ] = "8,16,32,64,128,256,512,1024,2048,4096",
    examples: Annotated[int, typer.Option(help="Examples for each length and split.", min=1)] = 256,
    worst_case: Annotated[
        bool, typer.Option(help="Also score the task's worst cases, such as the longest carry.")
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="Where to save the plot.", show_default="RUN/accuracy.png")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Run also what is estimated to take over an hour.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a run on fresh examples of many lengths: a table, a plot and RUN/evaluation.json.

    Symbols: the share of right symbols where target or output is not blank, the paper's metric. Sequences: the share
    of outputs without one wrong symbol. Up to the trained length, examples are ones that training left out.
    """
    from dataclasses import asdict

    import torch

    from riffle.environment import environment
    from riffle.files import write_json
    from riffle.tasks import get_task
    from riffle.train.evaluate import evaluate as score
    from riffle.train.evaluate import refuse_too_heavy
    from riffle.train.run import Run

    sizes = _lengths(lengths)
    trained = Run(run)
    task = get_task(trained.config.task)
    splits = ["uniform", *(task.splits if worst_case else ())]
    longest = max(trained.config.data.bins)
    model = trained.model(choose_device(device))
    if not force:
        refuse_too_heavy(model, sizes, examples)
    with progress_bar() as bar:
        job = bar.add_task(f"evaluating {task.name}", total=len(sizes) * len(splits) * examples)
        scores = score(
            model,
            task,
            sizes,
            splits=splits,
            examples=examples,
            trained_length=longest,
            seed=seed,
            on_progress=lambda count: bar.advance(job, count),
        )
    result = {
        "task": task.name,
        "run": str(run),
        "step": trained.saved_step(),
        "trained_length": longest,
        "scores": [asdict(each) for each in scores],
        "environment": environment(torch.device(choose_device(device))),
    }
    write_json(run / "evaluation.json", result)
    picture = plot or run / "accuracy.png"
    plot_scores(picture, f"{task.name}: trained on length ≤ {longest}", scores, longest)
    if json:
        print_json(result)
        return
    uniform = [each for each in scores if each.split == "uniform"]
    output.print(score_table(f"{task.name}, trained on length ≤ {longest}", uniform, longest))
    worst = [each for each in scores if each.split != "uniform"]
    if worst:
        output.print(worst_case_table(worst))
    errors.print(f"plot: {picture}   numbers: {run / 'evaluation.json'}", markup=False, soft_wrap=True)


def _lengths(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--lengths takes whole numbers separated by commas, got {text!r}") from None
    if min(sizes) < 1:
        raise ValueError(f"--lengths must be at least 1, got {min(sizes)}")
    return sizes
