"""A corpus in compressed parts and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli.riffle_command import riffle, succeed
from hypothesis import given
from hypothesis import strategies as st

from riffle.lambada import Corpus, load_vectors
from riffle.lambada.packing import decode_tokens, encode_tokens, pack, unpack
from riffle.lambada.passages import PassageFilters
from riffle.lambada.prepare import PrepareConfig, prepare
from riffle.lambada.vocabulary import choose_vocabulary

from .novels import write_novels

LIKE_GIVEN = "Grog grumbled at Blarg. Then Blarg shouted at Grog and threw turnips over the fence.\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("packing")
    write_novels(folder / "novels", books=5)
    (folder / "novels/book2.txt").write_text(LIKE_GIVEN * 60)
    given = "grog grumbled at blarg . then blarg shouted at grog and threw turnips over the fence and over grog\n"
    (folder / "given.txt").write_text(given * 40)
    (folder / "development.txt").write_text("osha walked slowly to the tower and waited . nobody there had seen osha\n")
    (folder / "vectors.txt").write_text('the 1 -2\nnobody 0.3 4\n" 0 0.5\nunseen 7 8\n')
    config = PrepareConfig(
        out=folder / "corpus",
        novels=[folder / "novels"],
        passages=[folder / "given.txt"],
        evaluation=[folder / "development.txt"],
        vectors=folder / "vectors.txt",
        filters=PassageFilters(context=20),
        validation=0.3,
        workers=1,
    )
    prepare(config)
    return Corpus(config.out)


@given(st.lists(st.integers(0, 2**20), max_size=50))
def test_tokens_come_back(tokens: list[int]) -> None:
    code = encode_tokens(np.array(tokens, dtype=np.int64))
    assert decode_tokens(code).tolist() == tokens
    assert len(code) == sum(1 + (token >= 128) + (token >= 128 + 128**2) for token in tokens)


def test_too_many_words() -> None:
    with pytest.raises(ValueError, match="too many"):
        encode_tokens(np.array([128**3 + 128**2 + 128]))


def passages(corpus: Corpus, split: str) -> list[tuple[list[str], str]]:
    return sorted(corpus.passage(example) for example in corpus.examples(split))


@pytest.mark.parametrize("part_bytes", [1 << 20, 3000])
def test_a_corpus_comes_back(corpus: Corpus, part_bytes: int, tmp_path: Path) -> None:
    parts = pack(corpus, tmp_path / "packed", part_bytes)["parts"]
    assert (len(parts) > 3) == (part_bytes < 1 << 20)
    again = unpack(tmp_path / "packed", tmp_path / "again")
    assert again.splits == corpus.splits
    assert sum(part["tokens"] for part in parts) == len(again.tokens) == len(corpus.tokens)
    for split in corpus.splits:
        assert passages(again, split) == passages(corpus, split)
    for name in ("words.txt", "counts.npy", "likeness.npy"):
        assert (again.folder / name).read_bytes() == (corpus.folder / name).read_bytes()
    spans = [np.split(each.tokens, each.books[1:]) for each in (corpus, again)]
    books = [{tuple(book.tolist()) for book in each[:-1]} for each in spans]
    assert books[0] == books[1]
    assert np.array_equal(spans[0][-1], spans[1][-1])
    # the third book is like the ready-made passages and comes first
    assert [index for index in range(5) if "turnips" in {again.words[token] for token in spans[1][index]}] == [0]
    vectors, original = (load_vectors(each.folder / "vectors.safetensors") for each in (again, corpus))
    assert sorted(vectors.words) == ['"', "nobody", "the"], "those of the corpus, and plain forms of its marks"
    for word, row in zip(vectors.words, vectors.table, strict=True):
        expected = original.table[original.words.index(word)].astype(np.float32)
        assert np.abs(row - expected).max() <= 0.5 * np.abs(expected).max() / 127 + 1e-3


def test_the_vectors_of_the_most_common_words_are_enough_for_a_vocabulary_of_them(
    synthetic_corpus: Path, tmp_path: Path
) -> None:
    original = Corpus(synthetic_corpus)
    pack(original, tmp_path / "packed", words=20)
    again = unpack(tmp_path / "packed", tmp_path / "again")
    assert len(load_vectors(again.folder / "vectors.safetensors").words) < 30
    expected, found = (choose_vocabulary(corpus, 20) for corpus in (original, again))
    assert found.words == expected.words
    error = np.abs(found.table.astype(np.float32) - expected.table.astype(np.float32))
    assert error.max() <= np.abs(expected.table).max() / 127


def test_the_first_parts_are_a_corpus_too(corpus: Corpus, tmp_path: Path) -> None:
    parts = pack(corpus, tmp_path / "packed", 3000)["parts"]
    (tmp_path / "packed" / parts[-2]["file"]).unlink()
    again = unpack(tmp_path / "packed", tmp_path / "again")
    assert len(again.tokens) == sum(part["tokens"] for part in parts[:-2])
    assert 0 < len(again.examples("train")) < len(corpus.examples("train"))
    assert passages(again, "development") == passages(corpus, "development")
    assert set(map(str, passages(again, "train"))) < set(map(str, passages(corpus, "train")))


def test_damaged_and_missing_parts_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    pack(corpus, packed)
    with pytest.raises(ValueError, match="exists already"):
        pack(corpus, packed)
    content = bytearray((packed / "part-00.xz").read_bytes())
    content[len(content) // 2] ^= 1
    (packed / "part-00.xz").write_bytes(content)
    with pytest.raises(ValueError, match=r"part-00.xz is cut short or damaged"):
        unpack(packed, tmp_path / "again")
    (packed / "part-00.xz").unlink()
    with pytest.raises(ValueError, match=r"part-00.xz is missing"):
        unpack(packed, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    shutil.rmtree(packed)
    with pytest.raises(ValueError, match="no packed corpus"):
        unpack(packed, tmp_path / "again")


def test_commands(synthetic_corpus: Path, tmp_path: Path) -> None:
    packed, again = tmp_path / "packed", tmp_path / "again"
    assert "parts" in succeed("lambada", "pack", synthetic_corpus, packed).out
    assert json.loads((packed / "pack.json").read_text())["parts"][0]["file"] == "part-00.xz"
    assert "tokens" in succeed("lambada", "unpack", packed, again, "--workers", 1).out
    assert "--overwrite" in riffle("lambada", "unpack", packed, again, "--workers", 1).err
    one_process = {path.name: path.read_bytes() for path in again.iterdir()}
    succeed("lambada", "unpack", packed, again, "--workers", 2, "--overwrite")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == one_process
