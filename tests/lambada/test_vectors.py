"""Files of word vectors: what is written is read, and what was changed is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from riffle.lambada.vectors import FORMAT, WordVectors, load_vectors, write_vectors

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
    save_file({"words": words, **tensors}, tmp_path / "a.safetensors", {"format": FORMAT})
    with pytest.raises(ValueError, match=message):
        load_vectors(tmp_path / "a.safetensors")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for words in (["the", "café"], ["other", ". . ."]):
        write_vectors(path, WordVectors(words, HALF))
        assert load_vectors(path).words == words
        np.testing.assert_array_equal(load_vectors(path).table, HALF)
    path.write_bytes(b"12345678")
    with pytest.raises(ValueError, match="damaged"):
        load_vectors(path)
