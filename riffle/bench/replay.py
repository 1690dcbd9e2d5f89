"""A call as a CUDA graph, without launch overhead."""

from __future__ import annotations

import torch

from riffle.bench.timing import Call

WARM_UP = 3
"""Runs before a recording: they compile kernels and let the libraries set themselves up."""


def replayed(call: Call) -> Call:
    """The call recorded once; what it returns replays the recording."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
