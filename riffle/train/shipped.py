"""Trained runs that come with the package, so that ``riffle solve`` works without training; their model cards."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import torch

from riffle.config import differences
from riffle.files import read_json, write_atomically
from riffle.quantities import format_percent
from riffle.recipes import paper
from riffle.train.checkpoint import add_prefix, quantize, write_checkpoint
from riffle.train.run import Run

SHIPPED = Path(__file__).parent.parent / "weights"
"""The folder of the run folders in the package, one for each task that has trained weights there."""


def ship_run(run: Run, folder: Path) -> None:
    """Write a run as a small folder: weights in int8, configuration, evaluation and a model card."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = quantize(add_prefix(run.model().state_dict(), "model."))
    steps = {"step": torch.tensor(run.saved_step())}
    if run.config.train.keep == "best":
        steps["best.step"] = torch.tensor(run.weights_step())
    write_checkpoint(folder / run.checkpoint.name, weights | steps)
    for name in ("config.json", "environment.json", "evaluation.json"):
        if (run.folder / name).exists():
            shutil.copyfile(run.folder / name, folder / name)
    write_atomically(folder / "README.md", model_card(run).encode())


def model_card(run: Run) -> str:
    """The model card of a run: its training and its accuracy, from the files in its folder."""
    config, longest = run.config, max(run.config.data.bins)
    lines = [
        f"# {config.task}",
        "",
        f"Weights of a network that learned the task `{config.task}` from examples of length ≤ "
        f"{longest}: {config.model.features} feature maps, {config.model.blocks} Beneš "
        f"block{'s' if config.model.blocks > 1 else ''}, {run.saved_step()} steps, matrices rounded to int8.",
        *_best_weights(run),
        "",
        "What differs from the recipe `paper`:",
        "",
        *(f"- `{name}={new}`" for name, (_, new) in differences(paper(config.task), config).items()),
    ]
    environment = read_json(run.folder / "environment.json")
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


def _best_weights(run: Run) -> list[str]:
    """The step of the weights, if it is not the last one."""
    settings = run.config.train
    if settings.keep == "last":
        return []
    where = f"by accuracy at length {settings.evaluate_lengths[0]}" if settings.evaluate_lengths else "as evaluated"
    return [f"They are those after step {run.weights_step()}, the best {where}."]
