"""Which id a word gets; unknown words keep their identity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle.lambada import FrozenWords, Vocabulary, WordVectors
from riffle.lambada.vocabulary import BLANK, FIRST_OOV, MASK

CORPUS = ["the", "met", "zyx", "qux", "vam", "."]


def test_an_unknown_name_can_be_pointed_at() -> None:
    words = Vocabulary(["the", "met", "and"])
    ids = words.encode(["zyx", "met", "qux", "and", "zyx"])
    assert ids[0] == ids[4]
    assert len({ids[0], ids[2], ids[1], ids[3]}) == 4
    # in another passage the same ids are free for other names
    assert words.encode(["vam", "met", "zyx"])[0] == ids[0]


@given(st.lists(st.lists(st.integers(-1, 5), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 4))
def test_whole_batches_get_the_same_ids(rows: list[list[int]], unknowns: int) -> None:
    words = Vocabulary(["the", ".", "met"], oov_ids=unknowns)
    batch = words.encode_tokens(torch.tensor(rows, dtype=torch.int32), words.lookup(CORPUS))
    for row, ids in zip(rows, batch.tolist(), strict=True):
        assert [number for number in ids if number != BLANK] == words.encode([CORPUS[t] for t in row if t >= 0])
        assert [number == BLANK for number in ids] == [token < 0 for token in row]


def test_an_empty_batch() -> None:
    words = Vocabulary(["the"])
    lookup = words.lookup(CORPUS)
    assert words.encode_tokens(torch.empty(0, 5, dtype=torch.int32), lookup).shape == (0, 5)
    assert words.encode_tokens(torch.empty(2, 0, dtype=torch.int32), lookup).shape == (2, 0)


def test_marks_are_found_under_their_plain_names() -> None:
    words = Vocabulary(['"', "(", "``"], oov_ids=1)
    assert words.encode(["``", "''", "-lrb-", "-rrb-"]) == [5, 3, 4, FIRST_OOV]


def test_words_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="1 of the known words are there twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match="at least 1"):
        Vocabulary(["a"], oov_ids=0)


@pytest.fixture
def vectors() -> WordVectors:
    table = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float16)
    return WordVectors(["a", "b", "c", "d"], table)


def test_frozen_words(vectors: WordVectors) -> None:
    words = Vocabulary(vectors.words, oov_ids=8)
    embed = FrozenWords(words, vectors, features=5)
    ids = torch.tensor([[BLANK, MASK, *words.encode(["a", "zyx", "qux", "zyx", "d"])]])
    out = embed(ids)[0]
    assert out.shape == (7, 5)
    assert out[0].eq(0).all()
    assert out[3].equal(out[5])
    assert not out[3].allclose(out[4])
    expected = torch.tanh(embed.map(torch.from_numpy(vectors.table[3]).float()))
    torch.testing.assert_close(out[6], expected)
    out.sum().backward()
    assert embed.mask.grad is not None
    assert embed.mask.grad.ne(0).any()
    assert {name for name, _ in embed.named_parameters()} == {"mask", "map.weight", "map.bias"}
    assert "table" not in embed.state_dict()
    assert FrozenWords(words, vectors, features=5).table.equal(embed.table), "whatever the global seed"


def test_a_table_of_other_words(vectors: WordVectors) -> None:
    with pytest.raises(ValueError, match="not the first of the table's 4"):
        FrozenWords(Vocabulary(["b", "a"]), vectors, features=5)
    assert len(FrozenWords(Vocabulary(["a", "b"], oov_ids=3), vectors, features=5).table) == 7  # a part of the table


def test_a_table_without_numbers(vectors: WordVectors) -> None:
    with pytest.raises(ValueError, match="vectors without numbers"):
        FrozenWords(Vocabulary(vectors.words), WordVectors(vectors.words, vectors.table[:, :0]), 5)
