"""A run that reads passages as a small folder: weights in int8, words in 4 bits, a configuration, a card."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from riffle.config import PassageConfig, Reading
from riffle.lambada.table import Vectors, write_vectors
from riffle.lambada.words import Words
from riffle.train.checkpoint import read_json, write_checkpoint, write_json
from riffle.train.int8 import shrink
from riffle.train.naming import NAMING
from riffle.train.reader import TrainedReader
from riffle.train.reading import WORDS
from riffle.train.run import Run
from riffle.wording import percent


def ship_reader(run: Run, folder: Path, words: int | None = None) -> Run:
    """Write a run as a small folder that can be used like it, but for its accuracy and its card.

    Args:
        run: The run, with pretrained vectors; its model points.
        folder: The folder to make.
        words: The words to keep, the most common ones, or all; others become unknown ones, which can be pointed at too.
    """
    reader = TrainedReader(run)
    experiment, subject = reader.subject.experiment, reader.subject
    if experiment.data.table != "frozen" or experiment.model.kind in NAMING:
        raise ValueError(
            f"{run.folder} has weights for each of its words: only runs on frozen vectors that point can be shipped"
        )
    kept = Vectors(subject.vectors.words[:words], subject.vectors.table[:words])
    known = Words(kept.words, unknowns=subject.positions)
    weights = {f"model.{name}": tensor for name, tensor in reader.model.state_dict().items()}
    weights["model.words.fingerprint"] = torch.tensor(known.fingerprint())
    # Where the corpus lay means nothing elsewhere.
    data = replace(experiment.data, words=len(kept.words), corpus=PassageConfig().corpus)
    folder.mkdir(parents=True, exist_ok=True)
    write_vectors(folder / WORDS, kept, bits=4, reader_OD=weights["model.words.map.weight"].cpu().numpy())
    write_checkpoint(folder / run.checkpoint.name, {**shrink(weights), "step": torch.tensor(run.saved_step())})
    write_json(folder / run.config.name, asdict(replace(experiment, data=data)))
    if (run.folder / "environment.json").exists():
        shutil.copyfile(run.folder / "environment.json", folder / "environment.json")
    return Run(folder)


def reader_card(run: Run) -> str:
    """What someone should know before using a reader's weights, from the files in its folder."""
    experiment = run.experiment
    assert isinstance(experiment, Reading)
    model, data = experiment.model, experiment.data
    lines = [
        f"# {experiment.task}",
        "",
        f"Weights of a network ({model.kind}) that finds the last word of a passage by pointing at an earlier "
        f"occurrence of it: {model.features} feature maps, {model.blocks} Beneš "
        f"{'blocks' if model.blocks > 1 else 'block'}, {data.bins[0]} positions, "
        f"{run.saved_step()} steps of {data.batch} passages. Matrices are rounded to int8, the "
        f"vectors of the {data.words:,} most common words to 4 bits.",
    ]
    environment = read_json(run.folder / "environment.json")
    if environment:
        lines += ["", f"Trained on: {environment['device']}, torch {environment['versions']['torch']}."]
        lines += [f"Commit: {environment['commit']}."] if environment["commit"] else []
        lines += ["", "Training command:", "", "```", shlex.join(environment["command"]), "```"]
    lines += [
        "",
        "Data: passages of English novels and pretrained word vectors, as riffle lambada prepare made them; "
        f"{percent(data.within)} of the examples end inside a sentence.",
        *_accuracy(read_json(run.folder / "evaluation.json")),
        "",
        "Limits:",
        "",
        "- Only a word of the passage can be found, among its last "
        f"{data.bins[0] - 1} tokens; about a fifth of LAMBADA's passages end with another.",
        "- English novels are all it has seen, in lower case: names are told from words by nothing but their context.",
        "- Words beyond the known ones are told apart within a passage, but nothing else is known about them.",
    ]
    return "\n".join(lines) + "\n"


def _accuracy(evaluation: Any) -> list[str]:
    """The table of an evaluation, if there is one."""
    if not evaluation:
        return []
    head = ["", "Accuracy of these files, over all passages of each set:", ""]
    rows = [
        f"| {name} | {score['passages']} | {percent(score['position'])} | {percent(score['word'])} |"
        for name, parts in evaluation["splits"].items()
        for score in [parts["passages"]["all"]]
    ]
    return [*head, "| set | passages | by position | by word |", "|---|---:|---:|---:|", *rows]
