"""Trained runs on LAMBADA: their accuracy on passages, and their answer to one passage."""

# E = examples, V = distinct words of a dataset
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from riffle.config import Count, LambadaRunConfig, Share
from riffle.lambada.corpus import RANK_CLASSES, Corpus
from riffle.lambada.passages import TokenisedPassages, read_evaluation
from riffle.lambada.pointing import OnProgress, Predictions, predict_answers
from riffle.lambada.tokens import is_word, tokenise
from riffle.lambada.train import make_lambada_objective
from riffle.train.run import Run, find_run
from riffle.train.shipped import SHIPPED

DISTANCE_CLASSES = {"1-10": 10, "11-25": 25, "26-50": 50, "51 and more": 1 << 62}
"""Classes of the distance in words from the last occurrence of the answer to the end of the passage."""
_BLANK_AT_END = re.compile(r"(?<!\S)_{2,}\W*$")
_BLANK = re.compile(r"(?<!\S)_{2,}(?!\w)")


class PassageScore(TypedDict):
    """The number of passages, and the accuracy on them by position and by word."""

    passages: Count
    position: Share
    word: Share


def breakdown(predictions: Predictions, rank_E: Tensor) -> dict[str, dict[str, PassageScore]]:
    """Accuracy on all passages, and on those whose answer is of a class of rank (-1 if unknown) or of distance."""
    in_passage_E = predictions.distance > 0
    parts = {
        "passages": {"all": torch.ones_like(in_passage_E), "answer in passage": in_passage_E},
        "rank": {**_classify(rank_E, RANK_CLASSES), "unknown": rank_E < 0},
        "distance": _classify(predictions.distance - 1, DISTANCE_CLASSES),
    }
    return {
        name: {label: _score(predictions, class_E) for label, class_E in classes.items() if class_E.any()}
        for name, classes in parts.items()
    }


def _classify(number_E: Tensor, limits: Mapping[str, int]) -> dict[str, Tensor]:
    """Which numbers belong to each class, given the upper limits of the classes; negative ones belong to none."""
    class_E = torch.bucketize(number_E, torch.tensor(list(limits.values())), right=True)
    return {label: (class_E == index) & (number_E >= 0) for index, label in enumerate(limits)}


def _score(predictions: Predictions, class_E: Tensor) -> PassageScore:
    selected = Predictions(*(column[class_E] for column in predictions))
    accuracy = selected.accuracy
    return {"passages": len(selected.answers), "position": accuracy["position"], "word": accuracy["word"]}


class Candidate(NamedTuple):
    """A possible last word of a passage."""

    word: str
    probability: float
    """The sum over all its occurrences."""
    positions: list[int]
    """Its indices among the tokens of the passage."""


def read_question(text: str) -> list[str]:
    """The tokens of a passage without its last word, which may be written as a blank such as ``___``.

    >>> read_question("Zoe met Tim. Then Tim left ___.")
    ['zoe', 'met', 'tim', '.', 'then', 'tim', 'left']
    """
    known = _BLANK_AT_END.sub("", text)
    if _BLANK.search(known):
        raise ValueError("the passage has a blank before its end: only a last word can be found, so end it there")
    tokens = tokenise(known)
    if not tokens:
        raise ValueError("the passage is empty: give the words before the one to be found")
    if not any(map(is_word, tokens)):
        raise ValueError(f"the passage has no words to choose from, only the marks {' '.join(tokens)}: give some words")
    return tokens


def candidates(tokens: Sequence[str], probabilities: Mapping[str, float], most: int) -> list[Candidate]:
    """At most ``most`` of the most probable words after the tokens of a passage, punctuation left out."""
    best = sorted(filter(is_word, probabilities), key=lambda word: -probabilities[word])[:most]
    positions = {word: [index for index, token in enumerate(tokens) if token == word] for word in best}
    return [Candidate(word, probabilities[word], positions[word]) for word in best]


class TrainedReader:
    """The trained model of a run on LAMBADA; refuses one of another task or with another vocabulary."""

    def __init__(self, run: Run, device: Any = "cpu") -> None:
        if not isinstance(run.config, LambadaRunConfig):
            raise ValueError(
                f"{run.folder} was trained to {run.config.task!r}, not to read passages: "
                "train one with riffle lambada train"
            )
        self.run, self.model = run, run.model(device)
        self.objective = make_lambada_objective(run.config, run.folder, device)

    def evaluate(
        self, passages: TokenisedPassages, placements: int = 1, on_progress: OnProgress = lambda passages: None
    ) -> dict[str, dict[str, PassageScore]]:
        """Accuracy on passages whose last word is the answer, averaged over placements, see :func:`breakdown`."""
        objective, dataset = self.objective, self.objective.dataset_from_tokens(passages)
        predictions = predict_answers(self.model, dataset, objective.predict_rows, placements, on_progress=on_progress)
        rank_V = dataset.lookup_V.cpu() - objective.vocabulary.first_known
        return breakdown(predictions, rank_V[predictions.answers])

    def next_word_probabilities(self, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """The probability of each word to follow the tokens of a passage."""
        return self.objective.next_word_probabilities(self.model, tokens, placements)


def find_reader(folder: Path | None) -> Run:
    """The run in a folder, or else the shipped one, or else the newest LAMBADA run below ``runs``."""
    task = LambadaRunConfig().task
    if folder is None and (SHIPPED / task).is_dir():
        folder = SHIPPED / task  # find_run would read all of it, to see whether it can be used
    run = Run(folder) if folder else find_run(task, Path("runs"))
    if run is None:
        raise ValueError("no run below runs reads passages: train one with riffle lambada train, or name one by --run")
    return run


def read_splits(names: Sequence[str], corpus: Path) -> dict[str, TokenisedPassages]:
    """The passages of files and of splits of a prepared corpus, by name; without names, of all held-out splits."""
    passages = read_evaluation(Path(name) for name in names if Path(name).exists())
    splits = [name for name in names if not Path(name).exists()]
    if names and not splits:
        return passages
    try:
        prepared = Corpus(corpus)
    except ValueError as error:
        asked = f"{', '.join(splits)} is no file" if splits else "no passages were named"
        raise ValueError(f"{asked}, and {error}; or give a file of passages with --split") from None
    for name in splits or prepared.held_out:
        examples = [prepared.passage(example) for example in prepared.examples(name)]
        if name in passages or not examples:
            raise ValueError(f"{name!r} {'is the name of a file as well' if name in passages else 'has no passages'}")
        passages[name] = [[*context, answer] for context, answer in examples]
    return passages
