"""Word tables: every form, folding to lower case, the cache, and wrong rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from riffle.lambada import vectors as module
from riffle.lambada.vectors import WordVectors, load_vectors, write_vectors

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
    monkeypatch.setattr(module, "_BLOCK_BYTES", block)
    (tmp_path / "glove.txt").write_text(ROWS, encoding="utf-8")
    (tmp_path / "fast.vec").write_text("3 3\n" + ROWS.replace("\n", " \n"), encoding="utf-8")
    (tmp_path / "fast.vec.gz").write_bytes(gzip.compress(b"3 3\n" + ROWS.encode()))
    for path in tmp_path.iterdir():
        check(load_vectors(path))


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 20)
    (tmp_path / "a.txt").write_text(ROWS, encoding="utf-8")
    check(load_vectors(tmp_path / "a.txt", workers=2))
    (tmp_path / "a.txt").write_text(ROWS + "bad 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 4 "):
        load_vectors(tmp_path / "a.txt", workers=2)


def test_int8(tmp_path: Path) -> None:
    vectors = load_vectors(save_int8(tmp_path / "a.npz"))
    assert vectors.words == ["the", "paris", "café"]
    np.testing.assert_array_equal(vectors.table, np.array([[0, 1], [1, 1.5], [8, 10]], dtype=np.float16))


def test_lower_case_words_come_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The 1 1\nthe 2 2\nTHE 3 3\nRowan 4 4\nROWAN 5 5\n")
    vectors = load_vectors(tmp_path / "a.txt")
    assert vectors.words == ["the", "rowan"]
    assert vectors.table[:, 0].tolist() == [2, 4]


def test_words_with_blanks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the 1 2\n. . . 3 4\n")
    vectors = load_vectors(tmp_path / "a.txt")
    assert vectors.words == ["the", ". . ."]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]


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
        load_vectors(tmp_path / "a.txt")


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tmp_path / "a.txt", tmp_path / "a.safetensors"
    path.write_text(ROWS, encoding="utf-8")
    check(load_vectors(path, cache))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_read_text", lambda *_: pytest.fail("the cache was not used"))
        check(load_vectors(path, cache))
        check(load_vectors(cache))
    path.write_text("other 1 2 3\n")
    assert load_vectors(path, cache).words == ["other"]
    assert load_vectors(cache).words == ["other"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.safetensors", "a.txt"]


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    with pytest.raises(ValueError, match=r"\.vec, \.txt"):
        load_vectors(tmp_path / "a.bin")
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="holds no vectors"):
        load_vectors(tmp_path / "a.txt")
    (tmp_path / "a.safetensors").write_bytes(b"12345678")
    with pytest.raises(ValueError, match="damaged"):
        load_vectors(tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", q=np.zeros(1))
    with pytest.raises(ValueError, match="needs words, q and scale"):
        load_vectors(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="has 3 words"):
        load_vectors(save_int8(tmp_path / "c.npz", rows=2))
    (tmp_path / "d.npz").write_bytes(save_int8(tmp_path / "c.npz").read_bytes()[:100])
    with pytest.raises(ValueError, match="cut short or damaged"):
        load_vectors(tmp_path / "d.npz")
    (tmp_path / "f.txt").write_text("the\nof\n")
    with pytest.raises(ValueError, match="a word and its numbers"):
        load_vectors(tmp_path / "f.txt")
    (tmp_path / "e.vec.gz").write_bytes(gzip.compress(ROWS.encode())[:20])
    with pytest.raises(ValueError, match="cut short or damaged"):
        load_vectors(tmp_path / "e.vec.gz")


def test_quantized_tables(tmp_path: Path) -> None:
    path, table = tmp_path / "a.safetensors", np.random.default_rng(0).normal(size=(5, 8)).astype(np.float16)
    table[3] = 0
    write_vectors(path, WordVectors(list("abcde"), table), quantize_for=np.eye(8, dtype=np.float32))
    back = load_vectors(path)
    assert back.words == list("abcde")
    assert back.table.dtype == np.float16
    step = np.abs(table).max(axis=1, keepdims=True).astype(np.float32) / 7
    exact = table.astype(np.float32)
    errors = [np.square(q - exact).sum(axis=1) for q in (back.table, np.rint(exact / (step + 1e-9)) * step)]
    assert (errors[0] <= errors[1] + 1e-4).all(), "no worse than rounding without clipping"
    assert not back.table[3].any()
    ones = WordVectors(["a"] * 100, np.ones((100, 300), np.float16))
    write_vectors(path, ones, quantize_for=np.eye(300, dtype=np.float32))
    assert path.stat().st_size < 100 * (300 // 2 + 10)
    assert (load_vectors(path).table == 1).all()
    with pytest.raises(ValueError, match="vectors of 3 numbers cannot be kept in 4 bits"):
        write_vectors(path, WordVectors(["a"], np.ones((1, 3), np.float16)), quantize_for=np.eye(3, dtype=np.float32))


def test_the_error_is_small_in_the_output_of_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 64)  # so that there are several blocks
    random = np.random.default_rng(0)
    vectors = WordVectors([f"w{number}" for number in range(200)], random.normal(size=(200, 20)).astype(np.float16))
    weight_OD = random.normal(size=(8, 20)).astype(np.float32)  # it ignores most directions
    errors = []
    for known_OD in (weight_OD, np.eye(20, dtype=np.float32)):
        write_vectors(tmp_path / "a.safetensors", vectors, quantize_for=known_OD)
        quantized = load_vectors(tmp_path / "a.safetensors")
        assert quantized.words == vectors.words
        difference_VD = quantized.table.astype(np.float32) - vectors.table
        errors.append(np.square(difference_VD @ weight_OD.T).sum())
        assert np.abs(difference_VD).max() < 2, "a vector is not far from what it was"
    assert errors[0] < errors[1] / 3


HALF = np.ones((2, 4), np.float16)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"table": HALF[:1]}, r"2 words and vectors float16 \(1, 4\)"),
        ({"table": HALF[0]}, r"\(4,\)"),
        ({"table": HALF.astype(np.float32)}, "float32"),
        ({"table": HALF * np.float16("inf")}, "'a' is not finite"),
        ({"q4": np.ones((2, 2), np.uint8), "scale": np.ones((), np.float32)}, r"scales float32 \(\)"),
        ({"q4": np.ones((2, 2), np.int8), "scale": np.ones(2, np.float32)}, "numbers int8"),
        ({"q4": np.ones((2, 2), np.uint8), "scale": np.array([1, 1e6], np.float32)}, "'b' is not finite or beyond 16"),
        ({"q4": np.ones((2, 2), np.uint8), "scale": np.array([np.nan, 1], np.float32)}, "'a' is not finite"),
        ({"q4": np.ones((2, 2), np.uint8)}, "damaged"),
    ],
)
def test_tables_that_were_changed(tensors: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    words = np.frombuffer(b"a\nb", dtype=np.uint8)
    save_file({"words": words, **tensors}, tmp_path / "a.safetensors", {"format": module.FORMAT})
    with pytest.raises(ValueError, match=message):
        load_vectors(tmp_path / "a.safetensors")
