"""One sequence over many devices, and what that costs.

``ShuffleExchange(..., sequence_group=group)`` takes a sequence whose cells are spread over the ranks of a process group
and gives what one device would give. :mod:`riffle.parallel.cost` says beforehand how long it will take.
"""

from __future__ import annotations

from riffle.parallel.gradients import sum_gradients
from riffle.parallel.layout import ShardedLayer, shard_schedule
from riffle.parallel.sequence import SequenceShards, shards_of

__all__ = ["SequenceShards", "ShardedLayer", "shard_schedule", "shards_of", "sum_gradients"]
