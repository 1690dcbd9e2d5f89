"""Batches of placed passages, the pointer's loss and its predictions, restated in plain Python; the breakdown."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn.golden import assert_near, load
from torch import Tensor, nn

from riffle import SequenceModel
from riffle.lambada import Vocabulary, pointing, vocabulary
from riffle.lambada.evaluate import breakdown
from riffle.lambada.passages import EXAMPLE_DTYPE, index_passages
from riffle.lambada.pointing import (
    NO_WORD,
    Label,
    PassageBatch,
    PassageDataset,
    Predictions,
    context_probabilities,
    pointer_loss,
    predict_answers,
)
from riffle.lambada.vocabulary import BLANK, MASK, nearest_words

KNOWN = ["the", "met", "."]
POSITIONS = 8
WORDS = Vocabulary(KNOWN, oov_ids=POSITIONS)
CORPUS = [*KNOWN, "zyx", "qux", "vam", "tor"]
passages = st.lists(st.lists(st.sampled_from(CORPUS), min_size=2, max_size=14), min_size=1, max_size=4)


def numbers(texts: list[list[str]]) -> dict[str, int]:
    """The numbers that words get in the stream of some passages: in the order in which they come."""
    return {word: number for number, word in enumerate(dict.fromkeys(word for text in texts for word in text))}


def expected(text: list[str], before: int, number: dict[str, int]) -> tuple[list[int], list[int], int, int]:
    """One row of :class:`PassageBatch` in plain Python."""
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
    assert batch.pointable.tolist() == [[word != NO_WORD for word in words] for _, words, _, _ in rows(batch)]
    assert batch.is_answer.tolist() == [[word == answer for word in words] for _, words, answer, _ in rows(batch)]


def test_in_training_passages_lie_everywhere() -> None:
    texts = [["the", "zyx", "met", "zyx"], [*CORPUS, *CORPUS]]
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
def test_words_are_renamed_or_forgotten_throughout_their_passage(texts: list[list[str]], seed: int) -> None:
    kept = 2
    words, stream, index = index_passages(texts)
    similar_VS = torch.arange(len(WORDS))[:, None].repeat(1, 3) + torch.tensor([100, 200, 300])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pointing, "NEVER_FORGOTTEN", kept)
        lookup = WORDS.lookup(words)
        examples = PassageDataset(torch.from_numpy(stream), index, WORDS, lookup, POSITIONS, similar_VS=similar_VS)
        batch = examples.sample(6, forget=0.2, rename=0.5, generator=torch.Generator().manual_seed(seed))
    known = {number: WORDS.encode([word])[0] for number, word in enumerate(words) if word in KNOWN}
    for ids, passage, _, _ in rows(batch):
        pairs = {(word, number) for word, number in zip(passage, ids, strict=True) if word != NO_WORD}
        assert len(pairs) == len({word for word, _ in pairs}), "one id for every word"
        for word, number in pairs:
            assert number == known.get(word) or word >= kept or word not in known, "the most common words stay"
            if number >= len(WORDS):
                assert number - known[word] in (100, 200, 300)
            else:
                assert number < WORDS.first_known or number == known[word]


def test_the_nearest_words_are_those_at_the_smallest_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROWS_AT_ONCE", 7)
    vectors = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)).half()
    for word, near in enumerate(nearest_words(vectors, 4).tolist()):
        cosine = torch.cosine_similarity(vectors[word].float(), vectors.float(), dim=1)
        others = sorted((other for other in range(20) if other != word), key=lambda other: -float(cosine[other]))
        assert near == others[:4]
    assert nearest_words(vectors[:3], 4).shape == (3, 2), "there are no more other words"


@pytest.mark.parametrize("flatten", [0.0, 0.5, 1.0])
def test_how_often_answers_are_drawn(flatten: float) -> None:
    draw = random.Random(0)
    answers = draw.choices(range(4), weights=[60, 25, 10, 5], k=200)
    stream = torch.tensor([token for answer in answers for token in (4, answer)])
    index = np.zeros(len(answers), dtype=EXAMPLE_DTYPE)
    index["start"], index["length"] = 2 * np.arange(len(answers)), 2
    examples = PassageDataset(stream, index, WORDS, WORDS.lookup(CORPUS), POSITIONS, flatten=flatten)
    drawn = examples.sample(20_000, generator=torch.Generator().manual_seed(1)).answers
    weight = {answer: answers.count(answer) ** (1 - flatten) for answer in range(4)}
    for answer in range(4):
        share = (drawn == answer).double().mean().item()
        assert share == pytest.approx(weight[answer] / sum(weight.values()), abs=0.015)


class Scores(nn.Module):
    """Scores that depend on the place and on the word there, the same for the same row."""

    def forward(self, ids_BN: Tensor) -> Tensor:
        return torch.sin(ids_BN * 1.7 + torch.arange(ids_BN.shape[1]) * 0.9) * 3


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


@given(passages, st.sampled_from([0.0, 0.1]), st.sampled_from(["even", "sum"]), st.integers(0, 9))
def test_the_loss(texts: list[list[str]], smoothing: float, label: Label, seed: int) -> None:
    batch = PassageDataset.from_tokens(texts, WORDS, POSITIONS).sample(3, generator=torch.Generator().manual_seed(seed))
    score_BN = Scores()(batch.ids)
    losses = pointer_loss(score_BN, batch, smoothing, label).tolist()
    rows = zip(losses, score_BN.tolist(), batch.words.tolist(), batch.answers.tolist(), strict=True)
    for found, scores, words, answer in rows:
        inside = [at for at, word in enumerate(words) if word != NO_WORD]
        right = [at for at in inside if words[at] == answer]
        probability = dict(zip(inside, softmax([scores[at] for at in inside]), strict=True))
        if right:
            if label == "even":
                loss = -sum(math.log(probability[at]) for at in right) / len(right)
            else:
                loss = -math.log(sum(probability[at] for at in right))
            smooth = -sum(math.log(probability[at]) for at in inside) / len(inside)
            assert found == pytest.approx((1 - smoothing) * loss + smoothing * smooth, abs=1e-5)


@given(passages, st.integers(1, 3))
def test_what_is_chosen(texts: list[list[str]], placements: int) -> None:
    examples, model = PassageDataset.from_tokens(texts, WORDS, POSITIONS), Scores()
    pointed = predict_answers(model, examples, placements=placements, batch=2)
    number = numbers(texts)
    for row, text in enumerate(texts):
        context, answer = text[:-1][-(POSITIONS - 1) :], text[-1]
        own = [0.0] * len(context)
        for place in range(placements):
            before = int((POSITIONS - 1 - len(context)) * (place + 0.5) / placements)
            scores = model(examples.batch(torch.tensor([row]), (place + 0.5) / placements).ids)[0].tolist()
            for at, share in enumerate(softmax(scores[before : before + len(context)])):
                own[at] += share / placements
        by_word = {word: sum(own[at] for at, each in enumerate(context) if each == word) for word in context}
        _, by_position_BN, by_word_BN, _ = context_probabilities(model, examples, torch.tensor([row]), placements)
        assert by_position_BN[0].tolist()[: len(context)] == pytest.approx(own[::-1], abs=1e-5)
        assert by_word_BN[0].tolist()[: len(context)] == pytest.approx([by_word[w] for w in context[::-1]], abs=1e-5)
        # Floats that are equal in one order of adding may not be in another: the choice has to be one of the best.
        assert own[max(range(len(own)), key=own.__getitem__)] == pytest.approx(
            max(own[at] for at, word in enumerate(context) if number[word] == pointed.by_position[row]), abs=1e-5
        )
        names = {at: word for word, at in number.items()}
        assert by_word[names[int(pointed.by_word[row])]] == pytest.approx(max(by_word.values()), abs=1e-5)
        assert float(pointed.probability[row]) == pytest.approx(by_word.get(answer, 0.0), abs=1e-5)
        mentions = [at for at, word in enumerate(context) if word == answer]
        assert int(pointed.distance[row]) == (len(context) - mentions[-1] if mentions else 0)


def test_the_parts_of_a_breakdown() -> None:
    answers = torch.arange(6)
    right = torch.tensor([0, 1, -1, 3, -1, -1])
    distance = torch.tensor([1, 10, 11, 51, 0, 25])
    rank = torch.tensor([0, 99, 100, -1, 10_000, 999])
    found = breakdown(Predictions(answers, right, answers, torch.ones(6), distance), rank)

    def counts(part: str) -> dict[str, tuple[float, float]]:
        return {label: (score["passages"], score["position"]) for label, score in found[part].items()}

    assert counts("passages") == {"all": (6, 0.5), "answer in passage": (5, 3 / 5)}
    assert counts("rank") == {"1-100": (2, 1), "101-1,000": (2, 0), "10,001-100,000": (1, 0), "unknown": (1, 1)}
    assert counts("distance") == {"1-10": (2, 1), "11-25": (2, 0), "51 and more": (1, 1)}
    assert all(score["word"] == 1 for part in found.values() for score in part.values())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_released_code(smoothing: float) -> None:
    golden = load("model_lambada_L16_m12_b2_B4")
    score_BN = SequenceModel.from_official(golden.under("var/")).eval()(torch.from_numpy(golden["x"]))[..., 2]
    # There every position can be pointed at, blanks too; class 2 marks the answer.
    words_BN = (torch.from_numpy(golden["y"]) == 2).long()
    batch = PassageBatch(torch.empty(0), words_BN, torch.ones(len(words_BN), dtype=torch.long), torch.empty(0))
    assert batch.pointable.all()
    assert_near("loss", pointer_loss(score_BN, batch, smoothing).mean(), golden[f"cost_ls{smoothing:g}"], 1e-5)
    right_B = batch.is_answer.gather(1, score_BN.argmax(dim=1, keepdim=True))[:, 0]
    assert_near("accuracy", right_B.double().mean(), golden["accuracy"], 1e-5)
