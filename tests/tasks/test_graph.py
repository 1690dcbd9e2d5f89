"""On a GPU: drawing and answering are recorded in a CUDA graph, and its replays give fresh, right batches."""

from __future__ import annotations

import pytest
import torch

from riffle.tasks import TASKS, Task

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def check_graph(task: Task, batch: int, width: int) -> None:
    """Record one batch of mixed lengths and replay it twice; targets must be those the CPU computes."""
    splits = (task.restructure, *task.splits.values())
    generator = torch.Generator(device="cuda").manual_seed(0)
    lengths_B = torch.arange(batch, device="cuda") % width + 1
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # plans and workspaces are made before recording
        inputs = task.draw(lengths_B, width, generator=generator)
        for rows in (inputs, *(split(inputs, generator) for split in splits)):
            task.answer(rows)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        inputs = task.draw(lengths_B, width, generator=generator)
        targets = task.answer(inputs)
        worst = [(rows, task.answer(rows)) for rows in (split(inputs, generator) for split in splits)]
    drawn = []
    for _ in range(2):
        graph.replay()
        drawn.append(inputs.cpu())
        assert torch.equal(targets.cpu(), task.answer(inputs.cpu()))
        for rows, answers in worst:
            assert torch.equal(answers.cpu(), task.answer(rows.cpu()))
    assert not torch.equal(*drawn)


@pytest.mark.parametrize("width", [16, 64, 257])
@pytest.mark.parametrize("name", TASKS)
def test_graph(name: str, width: int) -> None:
    check_graph(TASKS[name], 64, width)


@pytest.mark.parametrize("name", ["duplicate", "reverse", "sort", "add", "multiply"])
def test_graph_of_long_rows(name: str) -> None:
    check_graph(TASKS[name], 4, 8193)
