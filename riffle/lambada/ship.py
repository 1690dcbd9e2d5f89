"""A run that reads passages as a small folder: weights in int8, words in 4 bits, a configuration, a card."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from riffle.config import LambadaRunConfig, PassageDataConfig
from riffle.files import read_json, write_json
from riffle.lambada.evaluate import TrainedReader
from riffle.lambada.train import WORD_CLASSIFIERS, WORDS
from riffle.lambada.vectors import WordVectors, write_vectors
from riffle.lambada.vocabulary import Vocabulary
from riffle.quantities import format_percent
from riffle.train.checkpoint import quantize, write_checkpoint
from riffle.train.run import Run


def ship_reader(run: Run, folder: Path, words: int | None = None) -> Run:
    """Write a run as a small folder that can be used like it, but for its accuracy and its card.

    Args:
        run: The run, with pretrained vectors; its model points.
        folder: The folder to make.
        words: The words to keep, the most common ones, or all; others become unknown ones, which can be pointed at too.
    """
    reader = TrainedReader(run)
    config, objective = reader.objective.config, reader.objective
    if config.data.table != "frozen" or config.model.kind in WORD_CLASSIFIERS:
        raise ValueError(
            f"{run.folder} has weights for each of its words: only runs on frozen vectors that point can be shipped"
        )
    kept = WordVectors(objective.vectors.words[:words], objective.vectors.table[:words])
    known = Vocabulary(kept.words, oov_ids=objective.positions)
    weights = {f"model.{name}": tensor for name, tensor in reader.model.state_dict().items()}
    weights["model.words.fingerprint"] = torch.tensor(known.fingerprint())
    # Where the corpus lay means nothing elsewhere.
    data = replace(config.data, words=len(kept.words), corpus=PassageDataConfig().corpus)
    folder.mkdir(parents=True, exist_ok=True)
    write_vectors(folder / WORDS, kept, bits=4, reader_OD=weights["model.words.map.weight"].cpu().numpy())
    write_checkpoint(folder / run.checkpoint.name, {**quantize(weights), "step": torch.tensor(run.saved_step())})
    write_json(folder / run.config_path.name, asdict(replace(config, data=data)))
    if (run.folder / "environment.json").exists():
        shutil.copyfile(run.folder / "environment.json", folder / "environment.json")
    return Run(folder)


def reader_card(run: Run) -> str:
    """What someone should know before using a reader's weights, from the files in its folder."""
    config = run.config
    assert isinstance(config, LambadaRunConfig)
    model, data = config.model, config.data
    lines = [
        f"# {config.task}",
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
        f"{format_percent(data.within)} of the examples end inside a sentence.",
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
        f"| {name} | {score['passages']} | {format_percent(score['position'])} | {format_percent(score['word'])} |"
        for name, parts in evaluation["splits"].items()
        for score in [parts["passages"]["all"]]
    ]
    return [*head, "| set | passages | by position | by word |", "|---|---:|---:|---:|", *rows]
