"""Merged layers: every group's layers once and in order, as few as the longest group has, and the same numbers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from riffle import ShuffleExchange
from riffle.nn import UNITS
from riffle.nn.execute import run_batch
from riffle.nn.merge import merge, run_merged
from riffle.shuffle import SHARINGS, Layer, schedule

BITS = st.sets(st.integers(1, 6), min_size=1, max_size=4).map(lambda ks: sorted(ks, reverse=True))
SHARED = [sharing for sharing in SHARINGS if sharing != "none"]


@given(ks=BITS, blocks=st.integers(1, 3), sharing=st.sampled_from(SHARED), benes=st.booleans(), skips=st.booleans())
def test_every_layer_once_and_in_order(ks: list[int], blocks: int, sharing: str, benes: bool, skips: bool) -> None:
    schedules = tuple(schedule(k, blocks, sharing, benes=benes, skips=skips) for k in ks)
    plan = merge(schedules)
    own: list[list[Layer]] = [[] for _ in ks]
    times: list[list[int]] = [[] for _ in ks]
    for time, together in enumerate(plan):
        assert together.first < together.end
        for place, group in enumerate(range(together.first, together.end)):
            layer = schedules[group][len(own[group])]
            assert (layer.unit, layer.shuffle) == (together.unit, together.shuffle)
            assert (layer.skip is None) == (together.skip is None)
            if together.skip is not None and layer.skip is not None:
                assert together.skip[place] == times[group][layer.skip]
            own[group].append(layer)
            times[group].append(time)
    assert tuple(tuple(layers) for layers in own) == schedules
    # A switch of two cells has no skip connection, so its last layer cannot join the others' where they have one.
    apart = ks[-1] == 1 and len(ks) > 1 and blocks > 1 and skips and benes
    assert len(plan) == len(schedules[0]) + apart


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
