"""Use of trained runs: solve an input, with a run that comes with the package if need be; ship a run; model cards."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from riffle.config import differences
from riffle.environment import read_environment
from riffle.files import read_json, write_atomically
from riffle.quantities import format_percent
from riffle.recipes import paper
from riffle.tasks import get_task
from riffle.train.checkpoint import add_prefix, quantize, quantized_bits, read_checkpoint, write_checkpoint
from riffle.train.evaluate import predict, strip
from riffle.train.run import Run, find_run

SHIPPED = Path(__file__).parent.parent / "weights"
"""The folder of the run folders in the package, one for each task that has trained weights there."""
Predictor = Callable[[nn.Module, list[int]], list[int]]
"""Computes a model's output symbols for the symbols of one input."""


@dataclass(frozen=True)
class Solution:
    """A trained network's answer and the correct one, as text."""

    task: str
    input: str
    output: str
    """The network's answer."""
    expected: str
    """The correct answer."""
    correct: bool
    """Whether the two have the same symbols."""
    model: str
    """The folder of the trained run."""


def load_trained(task: str, device: str | torch.device = "cpu") -> Any:
    """The trained network of a task that comes with the package, in evaluation mode.

    Its input are symbols, ``[batch, length]``, and its output logits; the task's ``parse`` and ``render`` convert
    between symbols and text.

    >>> model, task = load_trained("sort"), get_task("sort")
    >>> logits = model(torch.tensor([task.parse(["7", "3", "9", "1", "4", "4", "2", "8"])]))
    >>> task.render(logits[0].argmax(-1).tolist())
    '1 2 3 4 4 7 8 9'
    """
    run = find_run(task, SHIPPED)
    if run is None:
        raise ValueError(f"no trained network of {get_task(task).name!r} comes with the package")
    return run.model(device)


def find_trained_run(task: str, runs: Path | None = None) -> Run:
    """The newest run of a task below ``runs``; where no folder is named, the shipped one, or else the newest here."""
    get_task(task)
    folders = (SHIPPED, Path("runs")) if runs is None else (runs, SHIPPED)
    run = next(filter(None, (find_run(task, folder) for folder in folders)), None)
    if run is None:
        raise ValueError(
            f"no run of {task!r} below {runs or 'runs'}: train one with `riffle train {task} --recipe small`, "
            "or name one by --run"
        )
    return run


def solve(
    task_name: str, words: Sequence[str], run: Run, *, device: str = "cpu", predictor: Predictor = predict
) -> Solution:
    """Solve one input, as text split at spaces, with a trained run; numbers to add are filled up with leading zeros.

    Raises:
        ValueError: The input is invalid, or the run is of another task.
    """
    task = get_task(task_name)
    symbols = task.parse(words)
    if run.config.task != task_name:
        raise ValueError(f"{run.folder} was trained to {run.config.task!r}, not to {task_name!r}")
    output = strip(task.unfill(predictor(run.model(device), run.padded(symbols)), symbols))
    expected = task.solve(symbols)
    return Solution(
        task=task_name,
        input=" ".join(words),
        output=task.render(output),
        expected=task.render(expected),
        correct=output == expected,
        model=str(run.folder),
    )


def ship_run(run: Run, folder: Path, bits: int = 8) -> None:
    """Write a run as a small folder: weights of a few bits, configuration, evaluation and a model card."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = quantize(add_prefix(run.model().state_dict(), "model."), bits)
    steps = {"step": torch.tensor(run.saved_step())}
    if run.config.train.keep == "best":
        steps["best.step"] = torch.tensor(run.weights_step())
    write_checkpoint(folder / run.checkpoint.name, weights | steps)
    for name in ("config.json", "environment.json", "evaluation.json"):
        if (run.folder / name).exists():
            write_atomically(folder / name, (run.folder / name).read_bytes())
    write_atomically(folder / "README.md", model_card(Run(folder)).encode())


def model_card(run: Run) -> str:
    """The model card of a run: its training and its accuracy, from the files in its folder."""
    config, longest = run.config, run.config.data.longest_input
    lines = [
        f"# {config.task}",
        "",
        f"Weights of a network that learned the task `{config.task}` from examples of length ≤ "
        f"{longest}: {config.model.features} feature maps, {config.model.blocks} Beneš "
        f"block{'s' if config.model.blocks > 1 else ''}, {run.saved_step()} steps, "
        f"matrices rounded to int{_bits(run)}.",
        *_best_weights(run),
        "",
        "What differs from the recipe `paper`:",
        "",
        *(f"- `{name}={new}`" for name, (_, new) in differences(paper(config.task), config).items()),
    ]
    environment = read_environment(run.folder)
    if environment:
        lines += ["", f"Trained on: {environment['device']}, torch {environment['versions']['torch']}."]
        lines += [f"Commit: {environment['commit']}."] if environment["commit"] else []
        lines += [f"Command: `{shlex.join(environment['command'])}`."]
        lines += [environment["note"]] if "note" in environment else []
    evaluation = read_json(run.folder / "evaluation.json")
    if evaluation:
        lines += ["", "Accuracy of these weights on fresh examples:", "", "| length | examples | symbols | sequences |"]
        lines += ["|---:|---:|---:|---:|"]
        lines += [
            f"| {score['length']} | {score['examples']} | {format_percent(score['symbol_accuracy'])} | "
            f"{format_percent(score['sequence_accuracy'])} |"
            for score in evaluation["scores"]
            if score["split"] == "uniform"
        ]
        worst = [
            f"- {score['split']}: {format_percent(score['symbol_accuracy'])} of symbols, "
            f"{format_percent(score['sequence_accuracy'])} of sequences"
            for score in evaluation["scores"]
            if score["split"] != "uniform" and score["length"] == longest
        ]
        if worst:
            lines += ["", f"Worst cases at length {longest}, where uniform examples say too much:", "", *worst]
    return "\n".join(lines) + "\n"


def _bits(run: Run) -> int:
    """The bits that the matrices of a shipped run were rounded to."""
    return quantized_bits(read_checkpoint(run.checkpoint, "model."))


def _best_weights(run: Run) -> list[str]:
    """The step of the weights, if it is not the last one."""
    settings = run.config.train
    if settings.keep == "last":
        return []
    where = f"by accuracy at length {settings.evaluate_lengths[0]}" if settings.evaluate_lengths else "as evaluated"
    return [f"They are those after step {run.weights_step()}, the best {where}."]
