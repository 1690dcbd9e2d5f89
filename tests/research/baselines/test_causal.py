"""Gated linear attention in chunks is the recurrence that it stands for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from research.baselines.causal import SLOW_DECAY, GatedLinearAttention


def test_linear_attention_is_a_recurrence() -> None:
    torch.manual_seed(0)
    layer, x_BND = GatedLinearAttention(16, 2).double(), torch.randn(2, 150, 16, dtype=torch.float64)
    query, key, value = (x.unflatten(-1, (2, 8)) for x in layer.query_key_value(x_BND).chunk(3, -1))
    forget_BNH = (F.logsigmoid(layer.forget(x_BND)) / SLOW_DECAY).exp()
    state, read = torch.zeros(2, 2, 8, 8, dtype=torch.float64), list[Tensor]()
    for i in range(150):
        added = key[:, i, :, :, None] * 8**-0.5 * value[:, i, :, None]
        state = forget_BNH[:, i, :, None, None] * state + added
        read.append(F.rms_norm((query[:, i, :, None] @ state)[..., 0, :], (8,)).flatten(1))
    expected_BND = layer.output(torch.stack(read, 1) * F.silu(layer.gate(x_BND)))
    torch.testing.assert_close(layer(x_BND), expected_BND, rtol=0, atol=1e-6)  # its gates are float32
