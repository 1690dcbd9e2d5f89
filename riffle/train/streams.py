"""Small independent pieces of work side by side on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Result = TypeVar("Result")


def side_by_side(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The results of all calls; on a GPU all but the first run on streams of their own, in a graph on branches.

    Drawing examples takes dozens of launches that each keep a few of a GPU's multiprocessors busy for a microsecond or
    two, so that bins drawn one after the other would take longer than the network.
    """
    if device.type != "cuda":
        return [call() for call in calls]
    main = torch.cuda.current_stream(device)
    streams = [main, *(torch.cuda.Stream(device) for _ in calls[1:])]
    for stream in streams[1:]:
        stream.wait_stream(main)
    results = []
    for stream, call in zip(streams, calls, strict=True):
        with torch.cuda.stream(stream):
            results.append(call())
    for stream in streams[1:]:
        main.wait_stream(stream)
    return results
