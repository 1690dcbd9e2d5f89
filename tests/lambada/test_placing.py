"""Where passages lie among the positions, what stands for their words, and how often each is drawn."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle.lambada import Vocabulary
from riffle.lambada import pointing as placing
from riffle.lambada.passages import EXAMPLE_DTYPE
from riffle.lambada.pointing import NO_WORD, PassageBatch, PassageDataset
from riffle.lambada.vocabulary import BLANK, FIRST_OOV, MASK

KNOWN = ["the", "met", "."]
POSITIONS = 8
WORDS = Vocabulary(KNOWN, oov_ids=POSITIONS)
VOCABULARY = [*KNOWN, "zyx", "qux", "vam", "tor"]
passages = st.lists(st.lists(st.sampled_from(VOCABULARY), min_size=2, max_size=14), min_size=1, max_size=4)


def numbers(texts: list[list[str]]) -> dict[str, int]:
    """The numbers that words get in the stream of some passages: in the order in which they come."""
    return {word: number for number, word in enumerate(dict.fromkeys(word for text in texts for word in text))}


def expected(text: list[str], before: int, number: dict[str, int]) -> tuple[list[int], list[int], int, int]:
    """One row of :class:`Placed` in plain Python."""
    context = text[:-1][-(POSITIONS - 1) :]
    after = POSITIONS - before - len(context) - 1
    ids = [BLANK] * before + WORDS.encode(context) + [MASK] + [BLANK] * after
    words = [NO_WORD] * before + [number[word] for word in context] + [NO_WORD] * (after + 1)
    return ids, words, number[text[-1]], before + len(context)


def rows(batch: PassageBatch) -> list[tuple[list[int], list[int], int, int]]:
    return list(zip(*(column.tolist() for column in batch), strict=True))


@given(passages)
def test_at_test_passages_lie_in_the_middle(texts: list[list[str]]) -> None:
    examples = PassageDataset.from_tokens(texts, WORDS, POSITIONS)
    batch = examples.batch(torch.arange(len(texts)))
    number = numbers(texts)
    for text, row in zip(texts, rows(batch), strict=True):
        free = POSITIONS - 1 - min(len(text) - 1, POSITIONS - 1)
        assert row == expected(text, free // 2, number)


@given(passages, st.integers(0, 99))
def test_what_can_be_pointed_at_and_what_is_right(texts: list[list[str]], seed: int) -> None:
    batch = PassageDataset.from_tokens(texts, WORDS, POSITIONS).sample(5, generator=torch.Generator().manual_seed(seed))
    for ids, words, answer, mask in rows(batch):
        assert ids[mask] == MASK
        assert ids.count(MASK) == 1
        filled = [at for at, word in enumerate(words) if word != NO_WORD]
        assert filled == list(range(mask - len(filled), mask)), "the words stand together, the mask behind them"
        assert all((ids[at] == BLANK) == (at not in filled) for at in range(POSITIONS) if at != mask)
        assert answer in numbers(texts).values()
    assert batch.pointable.equal(batch.words != NO_WORD)
    right = [[word == answer for word in words] for _, words, answer, _ in rows(batch)]
    assert batch.is_answer.tolist() == right


def test_in_training_passages_lie_everywhere() -> None:
    texts = [["the", "zyx", "met", "zyx"], [*VOCABULARY, *VOCABULARY]]
    number = numbers(texts)
    drawn = rows(
        PassageDataset.from_tokens(texts, WORDS, POSITIONS).sample(2000, generator=torch.Generator().manual_seed(0))
    )
    possible = [expected(texts[0], before, number) for before in range(5)] + [expected(texts[1], 0, number)]
    counts = [sum(row == each for row in drawn) for each in possible]
    assert sum(counts) == len(drawn), "nothing else was drawn"
    assert all(0.7 * 200 < count < 1.3 * 200 for count in counts[:5]), "the five places of the short one alike"
    assert 0.9 * 1000 < counts[5] < 1.1 * 1000


@given(passages, st.integers(0, 99))
def test_a_forgotten_word_is_forgotten_throughout_its_passage(texts: list[list[str]], seed: int) -> None:
    common = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "COMMON", common)
        generator = torch.Generator().manual_seed(seed)
        batch = PassageDataset.from_tokens(texts, WORDS, POSITIONS).sample(6, forget=0.5, generator=generator)
    known = {number: WORDS.encode([word])[0] for word, number in numbers(texts).items() if word in WORDS}
    for ids, words, _, _ in rows(batch):
        pairs = {(word, number) for word, number in zip(words, ids, strict=True) if word != NO_WORD}
        assert len(pairs) == len({word for word, _ in pairs}), "one id for every word"
        assert len(pairs) == len({number for _, number in pairs}), "and one word for every id"
        for word, number in pairs:
            unknown = FIRST_OOV <= number < WORDS.first_known
            assert unknown or number == known[word]
            assert not (unknown and word in known and word < common), "the most common words are never forgotten"


def test_some_words_are_forgotten_and_some_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "COMMON", 0)
    examples = PassageDataset.from_tokens([["the", "met", "."]], WORDS, POSITIONS)
    ids = examples.sample(1000, forget=0.3, generator=torch.Generator().manual_seed(0)).ids
    forgotten = ((ids >= FIRST_OOV) & (ids < WORDS.first_known)).sum() / (2 * 1000)
    assert 0.25 < forgotten < 0.35


@pytest.mark.parametrize("flatten", [0.0, 0.5, 1.0])
def test_how_often_answers_are_drawn(flatten: float) -> None:
    draw = random.Random(0)
    answers = draw.choices(range(4), weights=[60, 25, 10, 5], k=200)
    stream = torch.tensor([token for answer in answers for token in (4, answer)])
    index = np.zeros(len(answers), dtype=EXAMPLE_DTYPE)
    index["start"], index["length"] = 2 * np.arange(len(answers)), 2
    examples = PassageDataset(stream, index, WORDS, WORDS.lookup(VOCABULARY), POSITIONS, flatten=flatten)
    drawn = examples.sample(20_000, generator=torch.Generator().manual_seed(1)).answers
    weight = {answer: answers.count(answer) ** (1 - flatten) for answer in range(4)}
    for answer in range(4):
        share = (drawn == answer).double().mean().item()
        assert share == pytest.approx(weight[answer] / sum(weight.values()), abs=0.015)
