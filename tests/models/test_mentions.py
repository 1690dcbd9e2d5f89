"""How often a word occurs before and after its place."""

from __future__ import annotations

import torch

from riffle.models.pointer import MOST_MENTIONS, MentionCounts


def test_earlier_and_later_mentions_are_counted() -> None:
    counts = MentionCounts(features=2)
    with torch.no_grad():
        for feature, table in enumerate((counts.earlier, counts.later)):
            table.weight[:, feature] = torch.arange(MOST_MENTIONS + 1)
    ids = [5, 7, 5, 0, 5, 0, 1]
    expected = [[ids[:at].count(id_), ids[at + 1 :].count(id_)] if id_ else [0, 0] for at, id_ in enumerate(ids)]
    assert counts(torch.tensor([ids]))[0].tolist() == expected
    many = counts(torch.full((1, 12), 9))[0]
    assert many[-1].tolist() == [MOST_MENTIONS, 0]


def test_before_training_nothing_is_added() -> None:
    assert not MentionCounts(features=3)(torch.tensor([[5, 5, 5]])).any()
