"""Quantised weights: small, near what they were, and refused where they are damaged."""

from __future__ import annotations

import pytest
import torch

from research.ship.quantize import deflate, quantize, quantized_bits
from riffle.train import checkpoint
from riffle.train.checkpoint import dequantize


def test_shrinking_moves_a_weight_by_half_a_step_at_most() -> None:
    weights = {"matrix": torch.randn(3, 5, 7), "vector": torch.randn(4), "zero": torch.zeros(2, 3)}
    small = quantize(weights)
    assert small["matrix"].dtype == torch.uint8
    back = dequantize(small)
    assert back.keys() == weights.keys()
    step = weights["matrix"].square().mean(-1, keepdim=True).sqrt() / 20
    assert ((back["matrix"] - weights["matrix"]).abs() <= step / 2 * 1.001).all()
    outlier = torch.tensor([1.0] + [0.001] * 999)
    assert (dequantize(quantize({"row": outlier[None]}))["row"][0] - outlier).abs().max() <= 1 / 127 / 2 * 1.001
    assert torch.equal(back["vector"], weights["vector"])
    assert torch.equal(back["zero"], weights["zero"])


def test_weights_of_six_bits_take_fewer_bytes() -> None:
    weights = {"matrix": torch.randn(200, 300), "cube": torch.randn(2, 30, 70)}
    small = quantize(weights, bits=6)
    assert small["matrix"].numel() < 0.75 * weights["matrix"].numel() < quantize(weights)["matrix"].numel()
    assert quantized_bits(small) == 6
    for name, back in dequantize(small).items():
        assert ((back - weights[name]).abs() <= weights[name].abs().amax(-1, keepdim=True) / 31 / 2 * 1.001).all()


def test_scales_of_another_shape() -> None:
    quantized = quantize({"w": torch.ones(2, 3)})
    for scale in (torch.tensor(1.0), torch.ones(2), torch.ones(4, 1), torch.ones(2, 2), torch.ones(0, 1)):
        with pytest.raises(ValueError, match=r"scales 'w\.scale' have shape"):
            dequantize({**quantized, "w.scale": scale})


def test_damaged_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized = quantize({"w": torch.randn(2, 8)})
    for wrong, words in (
        (quantized["w"][:-1], "have shape"),
        (quantized["w"].flip(0), "are no zlib stream"),
        (deflate(torch.zeros(0, dtype=torch.int8)), "have shape"),
    ):
        with pytest.raises(ValueError, match=words):
            dequantize({**quantized, "w": wrong})
    with pytest.raises(ValueError, match="scales of 'v', but no such weights"):
        dequantize({**quantized, "v.scale": torch.ones(2, 1)})
    monkeypatch.setattr(checkpoint, "MOST_WEIGHTS", 10)
    with pytest.raises(ValueError, match="have shape"):
        dequantize(quantized)
