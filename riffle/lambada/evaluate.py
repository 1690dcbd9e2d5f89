"""What others reached on LAMBADA.

Which passages a model answers: all of them, those it could answer, common and rare answers, near and far ones.

A passage as a person types it, and the words a model would end it with.

A trained run that reads passages: how many it answers, and what it answers to one.
"""

# E = examples
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.config import LambadaRunConfig
from riffle.environment import environment
from riffle.lambada.corpus import RANK_CLASSES, Corpus
from riffle.lambada.pointing import Predictions
from riffle.lambada.prepare import TokenisedPassages, read_evaluation
from riffle.lambada.tokens import is_word, tokenise
from riffle.train.objective import make_lambada_objective
from riffle.train.run import Run, find_run
from riffle.train.shipped import SHIPPED


class Published(NamedTuple):
    """A published accuracy on LAMBADA's test set."""

    model: str
    accuracy: float
    """Share of right answers."""


PUBLISHED = (
    Published("random word of the passage", 0.016),
    Published("Gated-Attention Reader", 0.490),
    Published("Universal Transformer, 6 fixed steps", 0.5216),
    Published("Shuffle-Exchange, the paper", 0.5228),
    Published("Residual Shuffle-Exchange, 2021", 0.5434),
    Published("Dhingra et al., 2018", 0.5569),
    Published("Universal Transformer, dynamic halting", 0.5625),
    Published("bound of choosing a word from the passage", 0.81),
    Published("human", 0.860),
)
"""All of them on the test set, the lowest first."""
DISTANCES = {"1-10": 10, "11-25": 25, "26-50": 50, "51 and more": None}
"""Classes of how many words before its end a passage last mentions the answer."""
PassageScore = dict[str, float]
"""How many ``passages``, and the share of right answers among them by ``position`` and by ``word``."""


def breakdown(pointed: Predictions, rank_E: Tensor) -> dict[str, dict[str, PassageScore]]:
    """Accuracy over all passages and over parts of them; a part without passages is left out.

    Args:
        pointed: What a model answered.
        rank_E: The place of every answer in the model's list of words, most common first, from 0 on; negative for a
            word that it does not know.
    """
    answerable_E = pointed.distance > 0
    parts = {
        "passages": {"all": torch.ones_like(answerable_E), "answer in passage": answerable_E},
        "rank": {**_classes(rank_E, RANK_CLASSES), "unknown": rank_E < 0},
        "distance": _classes(pointed.distance - 1, DISTANCES),
    }
    return {
        name: {label: _score(pointed, part_E) for label, part_E in some.items() if part_E.any()}
        for name, some in parts.items()
    }


def _classes(number_E: Tensor, limits: Mapping[str, int | None]) -> dict[str, Tensor]:
    """For every class of numbers from 0 on, which are below its limit and in no class before; negative ones in none."""
    borders = torch.tensor([limit for limit in limits.values() if limit is not None], device=number_E.device)
    class_E = torch.bucketize(number_E, borders, right=True).masked_fill(number_E < 0, -1)
    return {label: class_E == place for place, label in enumerate(limits)}


def _score(pointed: Predictions, part_E: Tensor) -> PassageScore:
    some = Predictions(*(column[part_E] for column in pointed))
    return {"passages": len(some.answers), **some.accuracy}


_LAST_BLANK = re.compile(r"(?<!\S)_{2,}\W*$")
_BLANK = re.compile(r"(?<!\S)_{2,}(?!\w)")


class Candidate(NamedTuple):
    """A word that may be missing."""

    word: str
    probability: float
    """Of all its occurrences together."""
    positions: list[int]
    """Where it stands among the tokens of the passage."""


def read_question(text: str) -> list[str]:
    """The tokens of a passage without its last word, in place of which it may have a blank such as ``___``.

    >>> read_question("Zoe met Tim. Then Tim left ___.")
    ['zoe', 'met', 'tim', '.', 'then', 'tim', 'left']
    """
    known = _LAST_BLANK.sub("", text)
    if _BLANK.search(known):
        raise ValueError("the passage has a blank before its end: only a last word can be found, so end it there")
    tokens = tokenise(known)
    if not tokens:
        raise ValueError("the passage is empty: give the words before the one to be found")
    if not any(map(is_word, tokens)):
        raise ValueError(f"the passage has no words to choose from, only the marks {' '.join(tokens)}: give some words")
    return tokens


def candidates(tokens: Sequence[str], likely: Mapping[str, float], most: int) -> list[Candidate]:
    """The most likely words, marks left out.

    Args:
        tokens: The passage.
        likely: Words and how likely they are.
        most: How many words, at most.
    """
    words = [word for word in likely if is_word(word)]
    best = sorted(words, key=lambda word: -likely[word])[:most]
    return [Candidate(word, likely[word], [at for at, token in enumerate(tokens) if token == word]) for word in best]


TASK = LambadaRunConfig().task
RUNS = Path("runs")
"""Where runs are looked for."""


class TrainedReader:
    """A run of ``riffle lambada train``, ready to be used.

    Args:
        run: The run.
        device: Where it reads.

    Raises:
        ValueError: The run learned something else, or its words are not those its weights were trained with.
    """

    def __init__(self, run: Run, device: Any = "cpu") -> None:
        if not isinstance(run.config, LambadaRunConfig):
            raise ValueError(
                f"{run.folder} was trained to {run.config.task!r}, not to read passages: "
                "train one with riffle lambada train"
            )
        self.run = run
        self.model = run.model(device)
        self.objective = make_lambada_objective(run.config, run.folder, device)

    def evaluate(
        self,
        passages: TokenisedPassages,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> dict[str, dict[str, PassageScore]]:
        """Accuracy on passages whose last word is the answer, see :func:`riffle.lambada.evaluate.breakdown`.

        Args:
            passages: The passages; of one longer than the network's positions the last words are read.
            placements: Places among the positions over which probabilities are averaged.
            on_progress: Called with the number of passages just answered.
        """
        examples = self.objective.examples_of(passages)
        pointed = self.objective.point(self.model, examples, placements=placements, on_progress=on_progress)
        known_V = examples.lookup_V.cpu() - self.objective.words.first_known
        return breakdown(pointed, known_V[pointed.answers])

    def report(
        self,
        splits: Mapping[str, TokenisedPassages],
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> dict[str, Any]:
        """What evaluation.json holds: the accuracy on every split, and by what it was measured."""
        scores = {
            name: self.evaluate(passages, placements=placements, on_progress=on_progress)
            for name, passages in splits.items()
        }
        return {
            "task": self.run.config.task,
            "run": str(self.run.folder),
            "step": self.run.saved_step(),
            "positions": self.objective.positions,
            "placements": placements,
            "splits": scores,
            "environment": environment(self.objective.device),
        }

    def likely(self, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely words are to follow the tokens of a passage."""
        return self.objective.likely(self.model, tokens, placements)


def find_reader(folder: Path | None) -> Run:
    """The run of a folder, else the newest one below :data:`RUNS` that reads, else the one in the package."""
    run = Run(folder) if folder else find_run(TASK, RUNS) or find_run(TASK, SHIPPED)
    if run is None:
        raise ValueError(
            f"no run below {RUNS} reads passages: train one with riffle lambada train, or name one by --run"
        )
    return run


def read_splits(names: Sequence[str], corpus: Path) -> dict[str, TokenisedPassages]:
    """The passages of files, and of splits of a prepared corpus, by name.

    Args:
        names: Files of passages, one a line, the answer last, and names of splits; without any, all splits of the
            corpus that are not trained on.
        corpus: The corpus that names without a file belong to.
    """
    files = [Path(name) for name in names if Path(name).exists()]
    splits = [name for name in names if not Path(name).exists()]
    found = read_evaluation(files)
    if splits or not names:
        prepared = _corpus(corpus, splits)
        for name in splits or prepared.held_out:
            passages = [prepared.passage(example) for example in prepared.examples(name)]
            if name in found or not passages:
                raise ValueError(f"{name!r} {'is the name of a file as well' if name in found else 'has no passages'}")
            found[name] = [[*context, answer] for context, answer in passages]
    return found


def _corpus(folder: Path, splits: Sequence[str]) -> Corpus:
    try:
        return Corpus(folder)
    except ValueError as error:
        asked = f"{', '.join(splits)} is no file" if splits else "no passages were named"
        raise ValueError(f"{asked}, and {error}; or give a file of passages with --split") from None
