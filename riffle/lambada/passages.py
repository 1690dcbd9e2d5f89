"""Ready-made passages, one a line, whose last word is the answer: LAMBADA's own files and others of their form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.sentences import CLOSING_MARKS, END_MARKS, EXAMPLE
from riffle.lambada.sources import EVALUATION, Text, evaluation, texts
from riffle.lambada.tokens import tokenise

Passages = list[list[str]]


def read_passages(text: Text) -> Passages:
    """The passages of a file; empty lines are passed over.

    A file in which every line is lower case was tokenised before and is taken word for word, other text is tokenised.
    """
    content = text.read()
    cut = str.split if content == content.lower() else tokenise
    passages = [cut(line) for line in content.split("\n") if line.strip()]
    if not passages:
        raise ValueError(f"{text.name} holds no passage: one a line is expected")
    for number, passage in enumerate(passages, 1):
        if len(passage) < 2:
            raise ValueError(f"passage {number} of {text.name} is one word: an answer needs words before it")
    return passages


def read_evaluation(paths: Iterable[Path]) -> dict[str, Passages]:
    """Passages by split. LAMBADA's file names say which split they are, any other file is named by itself."""
    splits: dict[str, Passages] = {}
    for path in paths:
        found = list(_named(path))
        if not found:
            raise ValueError(f"{path} holds none of LAMBADA's files {', '.join(f'{name}.txt' for name in EVALUATION)}")
        for split, passages in found:
            if split in splits or split in ("train", "validation", "within"):
                raise ValueError(f"{path} would be a second split {split!r}: rename the file or leave it out")
            splits[split] = passages
    return splits


def _named(path: Path) -> Iterable[tuple[str, Passages]]:
    whole = path.is_dir() or ".tar" in path.name or path.name.endswith(".tgz")
    for text in evaluation(path) if whole else texts(path):
        yield EVALUATION.get(text.stem, text.stem), read_passages(text)


def index(passages: Sequence[Sequence[str]], begin: int) -> NDArray[np.void]:
    """The examples of passages that lie one behind the other from token ``begin`` of a stream on."""
    examples = np.empty(len(passages), dtype=EXAMPLE)
    examples["length"] = [len(passage) for passage in passages]
    examples["start"] = begin + np.cumsum(examples["length"], dtype=np.int64) - examples["length"]
    examples["target"] = [target_start(passage) for passage in passages]
    return examples


def target_start(passage: Sequence[str]) -> int:
    """Where the last sentence of a passage begins, as far as one can tell without capitals: after any end mark.

    >>> target_start("he ran . she saw him".split()), target_start("`` no ! '' he said".split())
    (3, 4)
    """
    marks = END_MARKS | CLOSING_MARKS
    last = len(passage) - 1
    while last > 0 and passage[last] in marks:
        last -= 1
    for at in range(last, 0, -1):
        before = at - 1
        while before > 0 and passage[before] in CLOSING_MARKS:
            before -= 1
        if passage[before] in END_MARKS and passage[at] not in CLOSING_MARKS and passage[at] not in END_MARKS:
            return at
    return 0
