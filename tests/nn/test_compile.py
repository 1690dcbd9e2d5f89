"""torch.compile and torch.export: one graph for all lengths that run at the same power of two."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from riffle import ShuffleExchange

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # where the interpreter runs the kernels


class GraphCounter:
    """A backend that runs what Dynamo traced as it is, and counts the graphs."""

    def __init__(self) -> None:
        torch.compiler.reset()
        self.graphs, self.nodes = 0, list[str]()

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.graphs += 1
        self.nodes = [str(node.target) for node in graph.graph.nodes]
        return graph


def test_the_lengths_of_a_power_of_two_share_a_graph() -> None:
    net, counter = ShuffleExchange(4, backend="reference").double(), GraphCounter()
    compiled = torch.compile(net, fullgraph=True, backend=counter)
    for length in (17, 18, 24, 25, 32):
        x_BND = torch.rand(2, length, 4, dtype=torch.float64)
        assert torch.equal(compiled(x_BND), net(x_BND))
    assert counter.graphs == 2  # the first length by itself, then all others
    x_BND = torch.rand(2, 9, 4, dtype=torch.float64)
    assert torch.equal(compiled(x_BND), net(x_BND))
    assert counter.graphs == 3


@pytest.mark.parametrize(("training", "graphs"), [(False, 2), (True, 3)], ids=["inference", "training"])
def test_the_fused_network_is_one_node_for_all_lengths(training: bool, graphs: int) -> None:
    net, counter = ShuffleExchange(4, backend="fused", device=DEVICE), GraphCounter()
    compiled = torch.compile(net, fullgraph=True, backend=counter)
    for length in (5, 6, 8, 4):
        x_BND = torch.rand(2, length, 4, device=DEVICE)
        with torch.set_grad_enabled(training):
            torch.testing.assert_close(compiled(x_BND), net(x_BND))
    assert counter.graphs == graphs  # what is kept for the backward pass depends on the power of two
    assert counter.nodes.count("riffle.network.default") == 1


def test_the_even_lengths_of_a_depth_share_a_graph() -> None:
    net, counter = ShuffleExchange(4, pad="even", backend="reference"), GraphCounter()
    compiled = torch.compile(net, backend=counter, dynamic=True)
    for length in (10, 14, 11, 15, 16):
        x_BND = torch.rand(2, length, 4)
        torch.testing.assert_close(compiled(x_BND), net(x_BND))
    assert counter.graphs == 1


def test_rows_of_different_lengths_compile_and_export_whole() -> None:
    lengths = [20, 3, 17]
    net, x_BND = ShuffleExchange(4, backend="reference").double(), torch.rand(3, 20, 4, dtype=torch.float64)
    compiled = torch.compile(net, fullgraph=True, backend=GraphCounter())
    torch.testing.assert_close(compiled(x_BND, lengths=lengths), net(x_BND, lengths=lengths), rtol=0, atol=1e-12)
    program = torch.export.export(net, (x_BND, lengths)).module()
    torch.testing.assert_close(program(x_BND, lengths), net(x_BND, lengths), rtol=0, atol=1e-12)


def test_on_a_cpu_the_network_is_left_out_of_compiled_code() -> None:
    net, counter = ShuffleExchange(4, 2), GraphCounter()
    compiled = torch.compile(lambda x_BND: net(x_BND.cos()).cos(), backend=counter)
    for length in (5, 40):
        x_BND = torch.rand(2, length, 4)
        found = [
            torch.autograd.grad(y_BND.sum(), list(net.parameters()))
            for y_BND in (net(x_BND.cos()).cos(), compiled(x_BND))
        ]
        torch.testing.assert_close(*found)
    assert 0 < counter.graphs <= 4
    assert counter.nodes[-2:] == ["cos", "output"]
    program = torch.export.export(net, (x_BND,), strict=True).module()  # an exported program has all of it
    torch.testing.assert_close(program(x_BND), net(x_BND))


@pytest.mark.gpu
def test_a_training_loop_with_less_overhead() -> None:
    losses = []
    for mode in (None, "reduce-overhead"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), ShuffleExchange(16, 2), nn.Linear(16, 4)).to(DEVICE)
        run = model if mode is None else torch.compile(model, mode=mode)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(6):
            x_BND = torch.rand(2, 32, 4, device=DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = (run(x_BND).float() - x_BND.flip(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
