"""Groups of several lengths in merged layers have the numbers and gradients that each has by itself."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle import ShuffleExchange
from riffle.nn import UNITS
from riffle.nn.execute import run_batch
from riffle.nn.merge import run_merged
from riffle.shuffle import SHARINGS

SHARED = [sharing for sharing in SHARINGS if sharing != "none"]


@given(
    ks=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    blocks=st.integers(1, 3),
    sharing=st.sampled_from(SHARED),
    unit=st.sampled_from(list(UNITS)),
)
def test_merged_is_the_same_as_one_by_one(ks: list[int], blocks: int, sharing: str, unit: str) -> None:
    net = ShuffleExchange(2, blocks, sharing=sharing, unit=unit, dtype=torch.float64)
    xs_BND = [torch.rand(1 + index % 3, 2**k, 2, dtype=torch.float64) for index, k in enumerate(ks)]
    together = run_merged(net, xs_BND)
    apart = [run_batch(net, x_BND) for x_BND in xs_BND]
    for actual, expected in zip(together, apart, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-13)
    gradients = [
        torch.autograd.grad(sum(y_BND.square().sum() for y_BND in ys_BND), list(net.parameters()), allow_unused=True)
        for ys_BND in (together, apart)
    ]
    for actual, expected in zip(*gradients, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
