"""One sequence over many devices, or streamed through one that cannot hold it.

``ShuffleExchange(..., sharding=SequenceSharding(group))`` takes a sequence whose cells are spread over the ranks of a
process group and gives what one device would give. :func:`stream` takes a sequence in host memory through a device
part by part.
"""

from __future__ import annotations

from riffle.parallel.sharding import SequenceSharding, ShardedLayer, shard_schedule, sum_gradients
from riffle.parallel.streaming import stream

__all__ = ["SequenceSharding", "ShardedLayer", "shard_schedule", "stream", "sum_gradients"]
