"""The transformer encoder: position codes, heads, batches of several lengths."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
import torch

from research.baselines.configs import TransformerConfig
from research.baselines.neural_gpu import NeuralGPU
from research.baselines.recurrent import GatedAttentionReader, Recurrent
from research.baselines.transformers import (
    MERGED_LENGTH,
    POSITIONS,
    Attention,
    Positions,
    Transformer,
    apply_rotary,
    position_code,
    rotary_angles,
)


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


def attention_weights(attention: Attention, x_ND: torch.Tensor) -> torch.Tensor:
    """Of a head with features of its own and values that tell positions apart, by the definition."""
    for_query, for_key, _ = attention.query_key_value.weight.chunk(3)
    query_ND, key_ND = x_ND @ for_query.T, x_ND @ for_key.T
    score_NN = torch.zeros(len(x_ND), len(x_ND)).double()
    for i in range(len(x_ND)):
        for j in range(len(x_ND)):
            if attention.positions == "relative":
                code_D = attention.distance(position_code(torch.tensor([j - i]).double(), x_ND.shape[1]))[0]
                score_NN[i, j] = (query_ND[i] + attention.content_bias[0, 0]) @ key_ND[j]
                score_NN[i, j] += (query_ND[i] + attention.distance_bias[0, 0]) @ code_D
                score_NN[i, j] /= x_ND.shape[1] ** 0.5
            else:
                away = j - i if j >= i else i - j - 0.5
                score_NN[i, j] = query_ND[i] @ key_ND[j] / x_ND.shape[1] ** 0.5 - 2**-8 * away
    return score_NN.softmax(dim=-1)


@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_positions_enter_the_scores(positions: Positions) -> None:
    attention, x_ND = Attention(6, 1, positions=positions).double(), torch.randn(5, 6).double()
    value_ND = x_ND @ attention.query_key_value.weight[12:].T
    expected_ND = attention_weights(attention, x_ND) @ value_ND @ attention.output.weight.T
    torch.testing.assert_close(attention(x_ND[None])[0], expected_ND)


def test_the_configuration_has_all_position_codes() -> None:
    assert get_args(get_type_hints(TransformerConfig)["positions"]) == POSITIONS


@pytest.mark.parametrize("positions", POSITIONS)
def test_all_but_none_tell_positions_apart(positions: Positions) -> None:
    model = Transformer(5, 4, 16, layers=2, heads=2, positions=positions).double().eval()
    symbols_BN = torch.tensor([[1, 2, 3, 4, 4, 2]])
    other_BNC = model(symbols_BN.flip(1)).flip(1)
    assert torch.allclose(model(symbols_BN), other_BNC) == (positions == "none")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("longest", [9, MERGED_LENGTH + 1])
@pytest.mark.parametrize("reads_first", [False, True])
def test_batches_of_several_lengths_are_what_each_is_alone(
    positions: Positions, longest: int, reads_first: bool
) -> None:
    model = Transformer(5, 4, 16, layers=2, heads=2, positions=positions, reads_first=reads_first).double()
    batches = [torch.randint(0, 5, (2, length)) for length in (1, 4, longest)]
    for scores_BNC, symbols_BN in zip(model.forward_batches(batches), batches, strict=True):
        torch.testing.assert_close(scores_BNC, model(symbols_BN))


def test_post_norm_normalises_every_sum() -> None:
    model = Transformer(5, 4, 16, layers=2, heads=2, positions="relative", post_norm=True).double().eval()
    x_BND = model.embed(torch.tensor([[1, 2, 3, 4]]))
    for layer in model.layers:
        x_BND = layer.attention_norm(x_BND + layer.attention(x_BND))
        inward, _, _, outward = layer.feed_forward
        x_BND = layer.feed_forward_norm(x_BND + outward(inward(x_BND).relu()))
    torch.testing.assert_close(model(torch.tensor([[1, 2, 3, 4]])), model.output(x_BND))


def test_it_answers_at_blanks_after_the_input() -> None:
    model = Transformer(5, 4, 16, layers=2, reads_first=True).double()
    symbols_BN = torch.randint(1, 5, (2, 6))
    x_BND = torch.cat([model.embed(symbols_BN), torch.zeros(2, 6, 16).double()], dim=1)
    model.reads_first = False
    expected_BNC = model.forward_cells(x_BND)[:, 6:]
    model.reads_first = True
    torch.testing.assert_close(model(symbols_BN), expected_BNC)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GatedAttentionReader(30, 8, hops=0), "at least 1"),
        (lambda: GatedAttentionReader(30, 7), "even"),
        (lambda: NeuralGPU(3, 3, 2), "at least 3"),
        (lambda: NeuralGPU(3, 3, 9, dropout=1.0), r"\[0, 1\)"),
        (lambda: Recurrent(5, 4, 7), "even"),
        (lambda: Recurrent(5, 4, 8, layers=0), "at least 1"),
        (lambda: Recurrent(5, 4, 8, cell="rnn"), "lstm, gru"),
        (lambda: Transformer(5, 4, 7), "even"),
        (lambda: Transformer(5, 4, 8, heads=8), "even number of features"),
        (lambda: Transformer(5, 4, 8, layers=0), "at least 1"),
        (lambda: Transformer(5, 4, 8, positions="learned"), "rotary"),
    ],
)
def test_impossible_arguments_of_every_baseline(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
