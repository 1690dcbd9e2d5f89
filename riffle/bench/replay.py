"""A call as a CUDA graph, without launch overhead."""

from __future__ import annotations

import torch

from riffle.bench.timing import Call

WARM_UP = 3
"""Runs before a recording: they compile kernels and let the libraries set themselves up."""


def replayed(call: Call, warm_up: int = WARM_UP) -> Call:
    """The call as a recording: made when it is first called, after so many runs, then replayed."""
    recordings: list[torch.cuda.CUDAGraph] = []

    def replay() -> None:
        if not recordings:
            recordings.append(_recorded(call, warm_up))
        recordings[0].replay()

    return replay


def _recorded(call: Call, warm_up: int) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
