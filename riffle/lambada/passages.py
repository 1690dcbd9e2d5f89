"""Passages, whose last word is the answer, read from files: LAMBADA's own have one passage a line."""

# T = tokens of a stream, E = examples
from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from riffle.files import read_stream
from riffle.lambada.tokens import tokenise

Ints = NDArray[np.int64]
TokenisedPassages = list[list[str]]
"""Passages as tokens, the answer last."""
EXAMPLE_DTYPE = np.dtype([("start", "<i8"), ("length", "<i4"), ("target", "<i4")])
"""A passage in a stream of tokens: its first token, its number of tokens including the answer, and the offset of the
target sentence, which ends with the answer."""
EVALUATION_SPLITS = {
    "lambada_development_plain_text": "development",
    "lambada_test_plain_text": "test",
    "lambada_control_test_data_plain_text": "control",
}
"""The splits of LAMBADA's passage files, by the stem of the file."""
READ_ERRORS = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error)
"""What a truncated or damaged compressed file raises."""


def decompressed(raw: IO[bytes], name: str) -> IO[bytes]:
    """The content of an open file, decompressed if its name says that it is compressed."""
    if name.endswith(".xz"):
        return cast("IO[bytes]", lzma.open(raw))
    if name.endswith((".gz", ".tgz")):
        return cast("IO[bytes]", gzip.open(raw))
    return raw


def damaged_file(name: object, error: Exception) -> ValueError:
    """The error to raise for a file whose reading ended in ``error``."""
    return ValueError(f"{name} is cut short or damaged ({error}); get it again")


def read_text(open_file: Callable[[], Any], name: str) -> str:
    """The text of a file, plain or compressed; raises ``ValueError`` if it is damaged, absurdly large or not UTF-8."""
    try:
        with open_file() as raw:
            return read_stream(decompressed(raw, name), name)
    except READ_ERRORS as error:
        raise damaged_file(name, error) from None


def file_stem(name: str) -> str:
    """The name of a file without folders and suffixes."""
    return PurePosixPath(name).name.split(".", 1)[0]


def split_passages(content: str, name: str) -> TokenisedPassages:
    """The passages of a text, one a line; a text without a capital letter is taken as already tokenised."""
    split = str.split if content == content.lower() else tokenise
    passages = [split(line) for line in content.split("\n") if line.strip()]
    if not passages:
        raise ValueError(f"{name} holds no passage: one a line is expected")
    for number, passage in enumerate(passages, 1):
        if len(passage) < 2:
            raise ValueError(f"passage {number} of {name} is one word: an answer needs words before it")
    return passages


def evaluation_splits(texts: Iterable[tuple[str, str]]) -> dict[str, TokenisedPassages]:
    """Passages by split, from names and texts: LAMBADA's files are the split of their name, others one of their own."""
    splits: dict[str, TokenisedPassages] = {}
    for name, text in texts:
        split = EVALUATION_SPLITS.get(file_stem(name), file_stem(name))
        if split in splits or split in ("train", "validation", "within"):
            raise ValueError(f"{name} would be a second split {split!r}: rename the file or leave it out")
        splits[split] = split_passages(text, name)
    return splits


def read_evaluation(paths: Iterable[Path]) -> dict[str, TokenisedPassages]:
    """The passages of some files, plain or compressed, by split."""
    return evaluation_splits((path.name, read_text(partial(path.open, "rb"), path.name)) for path in paths)


def index_passages(passages: Sequence[Sequence[str]]) -> tuple[list[str], Ints, NDArray[np.void]]:
    """Passages as their distinct words, one stream of indices into these, and examples that start in that stream.

    Their target sentence is taken to be the whole passage.
    """
    indices: dict[str, int] = {}
    tokens_T = np.array([indices.setdefault(word, len(indices)) for word in chain(*passages)], dtype=np.int64)
    examples = np.empty(len(passages), dtype=EXAMPLE_DTYPE)
    examples["length"] = [len(passage) for passage in passages]
    examples["start"] = np.cumsum(examples["length"], dtype=np.int64) - examples["length"]
    examples["target"] = 0
    return list(indices), tokens_T, examples
