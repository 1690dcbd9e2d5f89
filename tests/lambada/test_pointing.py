"""The pointer's loss and what it chooses, restated in plain Python; what a breakdown counts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn.golden import assert_near, load
from torch import Tensor, nn

from riffle import SequenceModel
from riffle.lambada import Vocabulary
from riffle.lambada.evaluate import breakdown
from riffle.lambada.pointing import (
    NO_WORD,
    Label,
    PassageBatch,
    PassageDataset,
    Predictions,
    context_probabilities,
    pointer_loss,
    predict,
)

POSITIONS = 8
WORDS = Vocabulary(["the", "met", "."], oov_ids=POSITIONS)
VOCABULARY = ["the", "met", ".", "zyx", "qux"]
passages = st.lists(st.lists(st.sampled_from(VOCABULARY), min_size=2, max_size=12), min_size=1, max_size=4)


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
    pointed = predict(model, examples, placements=placements, batch=2)
    number = {word: at for at, word in enumerate(dict.fromkeys(word for text in texts for word in text))}
    for row, text in enumerate(texts):
        context, answer = text[:-1][-(POSITIONS - 1) :], text[-1]
        own = [0.0] * len(context)
        for place in range(placements):
            before = int((POSITIONS - 1 - len(context)) * (place + 0.5) / placements)
            scores = model(examples.batch(torch.tensor([row]), (place + 0.5) / placements).ids)[0].tolist()
            for at, share in enumerate(softmax(scores[before : before + len(context)])):
                own[at] += share / placements
        by_word = {word: sum(own[at] for at, each in enumerate(context) if each == word) for word in context}
        found = context_probabilities(model, examples, torch.tensor([row]), placements)
        assert found.own[0].tolist()[: len(context)] == pytest.approx(own[::-1], abs=1e-5)
        assert found.by_word[0].tolist()[: len(context)] == pytest.approx([by_word[w] for w in context[::-1]], abs=1e-5)
        # Floats that are equal in one order of adding may not be in another: the choice has to be one of the best.
        assert own[max(range(len(own)), key=own.__getitem__)] == pytest.approx(
            max(own[at] for at, word in enumerate(context) if number[word] == pointed.by_position[row]), abs=1e-5
        )
        names = {at: word for word, at in number.items()}
        assert by_word[names[int(pointed.by_word[row])]] == pytest.approx(max(by_word.values()), abs=1e-5)
        assert float(pointed.probability[row]) == pytest.approx(by_word.get(answer, 0.0), abs=1e-5)
        mentions = [at for at, word in enumerate(context) if word == answer]
        assert int(pointed.distance[row]) == (len(context) - mentions[-1] if mentions else 0)


def test_accuracy_counts_every_passage() -> None:
    three = torch.tensor([7, 8, 9])
    pointed = Predictions(
        three, torch.tensor([7, 1, 1]), torch.tensor([7, 8, 1]), torch.ones(3), torch.tensor([3, 1, 0])
    )
    assert pointed.accuracy == {"position": pytest.approx(1 / 3), "word": pytest.approx(2 / 3)}


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
