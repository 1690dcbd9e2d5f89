"""The cost model beside a sharded run: the volume of communication is exactly the predicted one."""

from __future__ import annotations

import pytest

from research.bench.cost import Machine, ShardedCost, ShardedWork

from . import jobs
from .ranks import Ranks


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_volume_is_exactly_the_predicted_one(ranks: Ranks, size: int, blocks: int) -> None:
    length, features, batch = 256, 6, 2
    work = ShardedWork(length=length, features=features, blocks=blocks, ranks=size, batch=batch)
    predicted = ShardedCost(work, Machine())
    for forward, backward in ranks.run(size, jobs.count, {"features": features, "blocks": blocks}, batch, length):
        assert (len(forward), sum(forward)) == (predicted.exchanges, predicted.sent_numbers)
        assert sum(backward) == predicted.sent_numbers
