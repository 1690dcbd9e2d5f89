"""Files of passages: their splits, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from riffle.lambada.passages import read_evaluation


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "a.txt holds no passage"),
        (b"a b\nc\n", "passage 2 of a.txt is one word"),
        (b"caf\xe9", r"a.txt is no text in UTF-8: .* at byte 3; convert it"),
    ],
)
def test_passages_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_evaluation([tmp_path / "a.txt"])


def test_passages_are_tokenised_unless_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('I don\'t know. "Anna," said Anna\n')
    (tmp_path / "lambada_test_plain_text.txt.gz").write_bytes(gzip.compress(b"he wo n't say `` we ''\n"))
    found = read_evaluation(tmp_path.iterdir())
    assert found == {
        "a": [["i", "do", "n't", "know", ".", "``", "anna", ",", "''", "said", "anna"]],
        "test": [["he", "wo", "n't", "say", "``", "we", "''"]],
    }
    with pytest.raises(ValueError, match="second split 'a'"):
        read_evaluation([tmp_path / "a.txt", tmp_path / "a.txt"])


def test_a_compressed_file_cut_short(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"he saw the sea\n" * 100)[:-20])
    with pytest.raises(ValueError, match="cut short or damaged"):
        read_evaluation([tmp_path / "a.txt.gz"])
