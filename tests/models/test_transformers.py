"""The transformer encoder: rotary positions, heads, any even width."""

from __future__ import annotations

import pytest
import torch

from riffle.models.baselines import Transformer
from riffle.models.baselines.transformers import Attention, apply_rotary, rotary_angles


def test_rotary_scores_depend_on_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, 8).double().expand(2, 1, 1, 10, 8)
    rotation = rotary_angles(10, 8, query.device)
    score_NN = (apply_rotary(query, rotation) @ apply_rotary(key, rotation).mT)[0, 0]
    torch.testing.assert_close(score_NN[1:, 1:], score_NN[:-1, :-1], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(score_NN[0, 1], score_NN[1, 0])


def test_attention_is_softmax_of_scaled_products() -> None:
    attention = Attention(8, 2).double()
    x_BND, memory_BMD = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    for_query, for_key, for_value = attention.query_key_value.weight.chunk(3)
    heads = []
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        q, k, v = x_BND @ for_query[part].T, memory_BMD @ for_key[part].T, memory_BMD @ for_value[part].T
        heads.append((q @ k.mT / 2).softmax(-1) @ v)
    expected = torch.cat(heads, -1) @ attention.output.weight.T
    torch.testing.assert_close(attention(x_BND, memory_BMD), expected)
    torch.testing.assert_close(attention(x_BND), attention(x_BND, x_BND))


@pytest.mark.parametrize("features", [2, 10, 96, 130])
def test_any_even_width(features: int) -> None:
    assert Transformer(5, 4, features)(torch.randint(0, 5, (2, 6))).shape == (2, 6, 4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Transformer(5, 4, 7), "even"),
        (lambda: Transformer(5, 4, 8, heads=8), "even number of features"),
        (lambda: Transformer(5, 4, 8, layers=0), "at least 1"),
    ],
)
def test_impossible_arguments(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
