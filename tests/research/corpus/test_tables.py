"""Tables of word vectors: every format, folding to lower case, and wrong rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from research.lambada import tables
from research.lambada.tables import read_table
from riffle.lambada.vectors import WordVectors

ROWS = "the 1 2 3\nParis -0.5 .25 1e-3\ncafé 4 5 6\n"
TABLE = np.array([[1, 2, 3], [-0.5, 0.25, 1e-3], [4, 5, 6]], dtype=np.float16)


def check(vectors: WordVectors) -> None:
    assert vectors.words == ["the", "paris", "café"]
    np.testing.assert_array_equal(vectors.table, TABLE)


def save_int8(path: Path, words: str = "the\nParis\ncafé\n", rows: int = 3) -> Path:
    q = np.arange(rows * 2, dtype=np.int8).reshape(rows, 2)
    scale = np.array([1, 0.5, 2][:rows], dtype=np.float32)
    np.savez(path, words=np.frombuffer(words.encode(), dtype=np.uint8), q=q, scale=scale)
    return path


@pytest.mark.parametrize("block", [1, 1 << 24])
def test_texts(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", block)
    (tmp_path / "glove.txt").write_text(ROWS, encoding="utf-8")
    (tmp_path / "fast.vec").write_text("3 3\n" + ROWS.replace("\n", " \n"), encoding="utf-8")
    (tmp_path / "fast.vec.gz").write_bytes(gzip.compress(b"3 3\n" + ROWS.encode()))
    for path in tmp_path.iterdir():
        check(read_table(path))


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 20)
    (tmp_path / "a.txt").write_text(ROWS, encoding="utf-8")
    check(read_table(tmp_path / "a.txt", workers=2))
    (tmp_path / "a.txt").write_text(ROWS + "bad 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 4 "):
        read_table(tmp_path / "a.txt", workers=2)


def test_words_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The 1 1\nthe 2 2\nTHE 3 3\nRowan 4 4\nROWAN 5 5\n. . . 6 6\n")
    vectors = read_table(tmp_path / "a.txt")
    assert vectors.words == ["the", "rowan", ". . ."], "lower case comes first, a word may have blanks"
    assert vectors.table[:, 0].tolist() == [2, 4, 6]
    whole = read_table(save_int8(tmp_path / "a.npz"))
    assert whole.words == ["the", "paris", "café"]
    assert whole.table.tolist() == [[0, 1], [1, 1.5], [8, 10]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("bad 1 2", "line 4 .*a word and 3 numbers"),
        ("bad 1 x 2", "line 4 "),
        ("bad 1 nan 2", "line 4 .*not finite"),
        ("bad 1 7e4 2", "line 4 .*16 bits"),
    ],
)
def test_a_wrong_row(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{ROWS}{row}\nend 1 1 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.txt")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    save_int8(tmp_path / "whole.npz")
    save_int8(tmp_path / "rows.npz", rows=2)
    np.savez(tmp_path / "other.npz", q=np.zeros(1))
    for name, content, message in (
        ("a.bin", b"", r"\.vec, \.txt"),
        ("a.txt", b"", "holds no vectors"),
        ("b.txt", b"the\nof\n", "a word and its numbers"),
        ("other.npz", None, "needs words, q and scale"),
        ("rows.npz", None, "has 3 words"),
        ("cut.npz", (tmp_path / "whole.npz").read_bytes()[:100], "cut short or damaged"),
        ("e.vec.gz", gzip.compress(ROWS.encode())[:20], "cut short or damaged"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name)
