"""A prepared corpus as a few compressed files, to be moved to where it is trained on.

    pack.json          the parts in order, with their sizes and SHA-256
    part-00.xz, ...    LZMA of a safetensors file each

The first part holds the words, the ready-made passages and the evaluation sets; word vectors in int8 follow, then the
novels, those whose words are most like the ready-made passages first. So the first parts alone are a corpus, too. A
token takes about one byte: an end-tagged dense code gives the 128 most common words one byte and others two or three,
and LZMA finds the repetitions.
"""

# T = tokens, E = examples, V = words, D = dimensions of a vector, K = bytes
from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from riffle.files import read_json, write_atomically, write_json
from riffle.lambada.books import map_in_order
from riffle.lambada.corpus import Corpus, atomic_folder, save_array, write_examples
from riffle.lambada.matching import LIKENESS_FILE, MATCH_FILE
from riffle.lambada.passages import EXAMPLE_DTYPE
from riffle.lambada.vectors import WordVectors, read_vectors, write_vectors
from riffle.lambada.vocabulary import PLAIN_MARKS
from riffle.schema import Range

FORMAT = "riffle-lambada-pack-1"
RECORD = "pack.json"
PART_BYTES = 12 << 20
"""Most bytes of a part."""
TOKEN_BYTES = 1.1
"""Bytes of a part for each of its tokens, examples included; measured for English novels: 1.0."""
VECTORS_FILE = "vectors.safetensors"
_LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26, "pb": 0}]
_DIGIT = 128
"""Bytes from here on are the last of their token."""
_FIELDS = ("start", "length", "target")
Arrays = dict[str, NDArray[Any]]
Span = tuple[int, int]
"""Where a text begins and ends in the stream."""


class PartRecord(TypedDict):
    """A part as pack.json lists it."""

    file: str
    bytes: Annotated[int, Range(ge=1)]
    sha256: str
    tokens: Annotated[int, Range(ge=0)]


class PackRecord(TypedDict):
    """The content of pack.json."""

    format: str
    about: dict[str, Any]
    """The corpus.json of the corpus."""
    match: dict[str, Any]
    """Its match.json, empty if it has none."""
    parts: list[PartRecord]


def encode_tokens(tokens_T: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Tokens in an end-tagged dense code: digits to base 128, the highest first, the last one plus 128.

    >>> encode_tokens(np.array([0, 127, 128, 300])).tolist()
    [128, 255, 0, 128, 1, 172]
    """
    # As in counting without a zero: 128 has two digits, 128 + 128 ** 2 three.
    lengths_T, value_T, least = np.ones(len(tokens_T), dtype=np.int64), tokens_T.astype(np.int64), _DIGIT
    for digits in (2, 3):
        longer_T = value_T >= least
        lengths_T[longer_T & (lengths_T == digits - 1)] = digits
        value_T = np.where(longer_T, value_T - least, value_T)
        least = _DIGIT**digits
    if len(value_T) and value_T.max() >= least:
        raise ValueError(f"the corpus has more than {least:,} words, too many for this code")
    end_T = np.cumsum(lengths_T) - 1
    code_K = np.empty(int(lengths_T.sum()), dtype=np.uint8)
    for digit in range(3):
        has_T = lengths_T > digit
        value = value_T[has_T] // _DIGIT**digit % _DIGIT
        code_K[end_T[has_T] - digit] = value + _DIGIT if digit == 0 else value
    return code_K


def decode_tokens(code_K: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The tokens of :func:`encode_tokens`.

    >>> decode_tokens(np.array([128, 255, 0, 128, 1, 172], dtype=np.uint8)).tolist()
    [0, 127, 128, 300]
    """
    end_T = np.flatnonzero(code_K >= _DIGIT)
    lengths_T = np.diff(end_T, prepend=-1)
    if len(code_K) and (code_K[-1] < _DIGIT or lengths_T.max() > 3):
        raise ValueError("the tokens of a part are damaged: get it again")
    tokens_T = code_K[end_T].astype(np.int32) - _DIGIT
    for digit, offset in ((1, _DIGIT), (2, _DIGIT**2)):
        at_T = np.flatnonzero(lengths_T > digit)
        tokens_T[at_T] += code_K[end_T[at_T] - digit].astype(np.int32) * _DIGIT**digit + offset
    return tokens_T


def encode_examples(examples: NDArray[np.void]) -> dict[str, NDArray[np.uint8]]:
    """Examples in the order of a stream as the bytes of their differences, by field, all lowest bytes first."""
    return {
        name: np.diff(examples[name].astype("<i4"), prepend=0).astype("<i4").view(np.uint8).reshape(-1, 4).T.copy()
        for name in _FIELDS
    }


def decode_examples(fields: dict[str, NDArray[np.uint8]]) -> NDArray[np.void]:
    """The examples of :func:`encode_examples`."""
    columns = {name: np.cumsum(np.ascontiguousarray(fields[name].T).view("<i4")[:, 0]) for name in _FIELDS}
    examples = np.empty(len(columns["start"]), dtype=EXAMPLE_DTYPE)
    for name, column_E in columns.items():
        examples[name] = column_E
    return examples


def pack(
    corpus: Corpus, out: Path, part_bytes: int = PART_BYTES, workers: int = 1, words: int | None = None
) -> PackRecord:
    """Write a corpus as parts into a new folder, and return what pack.json says of them.

    With ``words``, only that many of the most common words have vectors in it: enough for ``data.words`` up to it.
    """
    if out.exists():
        raise ValueError(f"{out} exists already: choose another folder")
    out.mkdir(parents=True)
    jobs = ((save(arrays), _count_tokens(arrays)) for arrays in _parts(corpus, part_bytes, words))
    parts: list[PartRecord] = []
    for content, tokens in map_in_order(_compress, jobs, workers):
        file = f"part-{len(parts):02}.xz"
        write_atomically(out / file, content)
        digest = hashlib.sha256(content).hexdigest()
        parts.append(PartRecord(file=file, bytes=len(content), sha256=digest, tokens=tokens))
    match = read_json(corpus.folder / MATCH_FILE, dict[str, Any], what="record of a match") or {}
    record = PackRecord(format=FORMAT, about=dict(corpus.about), match=match, parts=parts)
    write_json(out / RECORD, record)
    return record


def unpack(folder: Path, out: Path, *, overwrite: bool = False, workers: int = 1) -> Corpus:
    """Make a corpus of the parts that are there, from the first to the one before the first that is missing."""
    record = read_json(folder / RECORD, PackRecord, what="record of a packed corpus", remedy="pack the corpus again")
    if record is None or record["format"] != FORMAT:
        raise ValueError(f"{folder} holds no packed corpus: make one with riffle lambada pack")
    present = [(folder / part["file"]).exists() for part in record["parts"]]
    parts = record["parts"][: (*present, False).index(False)]
    if not parts:
        raise ValueError(f"{folder / record['parts'][0]['file']} is missing: a corpus begins with this part")
    jobs = ((folder / part["file"], part["sha256"]) for part in parts)
    head, *others = (load(content) for content in map_in_order(_decompress, jobs, workers))
    vectors, novels = ([each for each in others if (kind in each)] for kind in ("q", "tokens"))
    with atomic_folder(out, overwrite) as temporary:
        begin, splits, books = (
            0,
            {split: [np.empty(0, dtype=EXAMPLE_DTYPE)] for split in record["about"]["splits"]},
            [0],
        )
        streams = []
        for arrays in (*novels, head):  # what is no novel comes last
            streams.append(decode_tokens(arrays["tokens"]))
            for split, found in splits.items():
                examples = decode_examples({name: arrays[f"{split}.{name}"] for name in _FIELDS})
                examples["start"] += begin
                found.append(examples)
            books += (begin + np.cumsum(arrays["books"])).tolist()
            begin += len(streams[-1])
        save_array(temporary / "tokens.npy", np.concatenate(streams))
        save_array(temporary / "books.npy", np.array(books, dtype=np.int64))
        save_array(temporary / "counts.npy", head["counts"])
        write_atomically(temporary / "words.txt", head["words"].tobytes())
        if "likeness" in head:
            save_array(temporary / LIKENESS_FILE, head["likeness"])
        if record["match"]:
            write_json(temporary / MATCH_FILE, record["match"])
        if vectors:
            words = b"\n".join(each["words"].tobytes() for each in vectors).decode().split("\n")
            table_VD = np.concatenate([each["q"] * each["scale"][:, None] for each in vectors]).astype(np.float16)
            write_vectors(temporary / VECTORS_FILE, WordVectors(words, table_VD))
        about = {name: value for name, value in record["about"].items() if name not in ("format", "splits")}
        write_examples(temporary, {split: np.concatenate(found) for split, found in splits.items()}, about)
    return Corpus(out)


def _parts(corpus: Corpus, part_bytes: int, words: int | None) -> Iterator[Arrays]:
    """The arrays of every part."""
    examples = {split: corpus.examples(split) for split in corpus.splits}
    end = int(corpus.books[-1])
    head = _text_arrays(corpus, examples, [(end, len(corpus.tokens))]) | {"books": np.empty(0, dtype=np.int64)}
    lines = "".join(f"{word}\n" for word in corpus.words).encode()
    head |= {"words": np.frombuffer(lines, dtype=np.uint8), "counts": np.array(corpus.counts)}
    if corpus.likeness is not None:
        head["likeness"] = corpus.likeness
    yield head
    if (corpus.folder / VECTORS_FILE).exists():
        yield from _vector_arrays(corpus, part_bytes, words)
    books: list[Span] = list(zip(corpus.books[:-1].tolist(), corpus.books[1:].tolist(), strict=True))
    if corpus.likeness is not None:
        likeness_V = corpus.likeness
        books.sort(key=lambda span: -float(likeness_V[corpus.tokens[slice(*span)]].sum() / max(span[1] - span[0], 1)))
    group: list[Span] = []
    for book in books:
        if group and sum(end - begin for begin, end in (*group, book)) * TOKEN_BYTES > part_bytes:
            yield _text_arrays(corpus, examples, group)
            group = []
        group.append(book)
    if group:
        yield _text_arrays(corpus, examples, group)


def _text_arrays(corpus: Corpus, examples: dict[str, NDArray[np.void]], spans: Sequence[Span]) -> Arrays:
    """The tokens of some texts one after the other, and their examples."""
    tokens_T = np.concatenate([corpus.tokens[slice(*span)] for span in spans])
    arrays: Arrays = {
        "tokens": encode_tokens(tokens_T),
        "books": np.array([end - begin for begin, end in spans], dtype=np.int64),
    }
    for split, all_examples in examples.items():
        found, at = [np.empty(0, dtype=EXAMPLE_DTYPE)], 0
        for begin, end in spans:
            first, last = np.searchsorted(all_examples["start"], [begin, end])  # they are in the order of the stream
            found.append(all_examples[first:last].copy())
            found[-1]["start"] += at - begin
            at += end - begin
        arrays |= {f"{split}.{name}": rows for name, rows in encode_examples(np.concatenate(found)).items()}
    return arrays


def _vector_arrays(corpus: Corpus, part_bytes: int, words: int | None) -> Iterator[Arrays]:
    """The vectors of the corpus's words, the most common first: int8, and a scale for each word."""
    vectors, _ = read_vectors(corpus.folder / VECTORS_FILE)
    rows = {word: row for row, word in enumerate(vectors.words)}
    marks = list(PLAIN_MARKS.values())
    names = [name for name in dict.fromkeys([*marks, *corpus.words]) if name in rows]
    names = names if words is None else names[: words + len(marks)]  # the marks may be none of the corpus's words
    at_once = max(part_bytes // (vectors.table.shape[1] + 16), 1)
    for begin in range(0, len(names), at_once):
        some = names[begin : begin + at_once]
        table_VD = vectors.table[[rows[name] for name in some]].astype(np.float32)
        scale_V = np.maximum(np.abs(table_VD).max(axis=1, initial=0) / 127, np.finfo(np.float32).tiny)
        yield {
            "words": np.frombuffer("\n".join(some).encode(), dtype=np.uint8),
            "q": np.rint(table_VD / scale_V[:, None]).astype(np.int8),
            "scale": scale_V.astype(np.float32),
        }


def _count_tokens(arrays: Arrays) -> int:
    return int((arrays["tokens"] >= _DIGIT).sum()) if "tokens" in arrays else 0


def _compress(content: bytes, tokens: int) -> tuple[bytes, int]:
    return lzma.compress(content, format=lzma.FORMAT_XZ, filters=_LZMA), tokens


def _decompress(path: Path, sha256: str) -> bytes:
    """The content of a part; refuses one that is not what pack.json says."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path} is cut short or damaged, or of another pack: get it again")
    return lzma.decompress(content)
