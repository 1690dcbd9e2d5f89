"""Recorded modules: one recording for each shape, none where gradients are asked for, weights as they are now."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from riffle import Graphed, SequenceModel, ShuffleExchange
from riffle.nn.graphed import Recording


class Pretended(Graphed):
    """What a GPU would do, on a CPU: a replay computes from the static input to the static output."""

    def reset(self) -> None:
        super().reset()
        self.recorded: list[tuple[int, ...]] = []

    def _can_replay(self, x: Tensor) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tensor, "is_cuda", True)
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
            return super()._can_replay(x)

    def _record(self, x: Tensor) -> Recording:
        self.recorded.append(tuple(x.shape))
        static = x.clone()
        output = self.module(static)
        self._weights = self._addresses()
        return SimpleNamespace(replay=lambda: output.copy_(self.module(static))), static, output


@torch.no_grad()
def answer(net: nn.Module, x_BND: Tensor) -> Tensor:
    """In the form of the network that a recording holds, the one without gradients."""
    return net(x_BND)


def make(max_graphs: int = 16) -> tuple[ShuffleExchange, Pretended]:
    net = ShuffleExchange(4).eval().requires_grad_(False)
    return net, Pretended(net, max_graphs)


def test_a_shape_is_recorded_once() -> None:
    net, graphed = make()
    for length in (8, 5, 8, 5, 8):
        x_BND = torch.randn(2, length, 4)
        y_BND = graphed(x_BND)
        assert torch.equal(y_BND, answer(net, x_BND))
    assert graphed.recorded == [(2, 8, 4), (2, 5, 4)]


def test_results_are_the_callers_own() -> None:
    _, graphed = make()
    x_BND = torch.randn(2, 8, 4)
    first = graphed(x_BND)
    before = first.clone()
    graphed(x_BND + 1)
    assert torch.equal(first, before)
    assert not first.is_inference(), "the caller may compute gradients from it"


def test_the_least_recently_used_recording_is_dropped() -> None:
    _, graphed = make(max_graphs=2)
    for length in (4, 8, 4, 16, 4, 8):
        graphed(torch.zeros(1, length, 4))
    assert [shape[1] for shape in graphed.recorded] == [4, 8, 16, 8]


def test_weights_changed_in_place_are_seen() -> None:
    net, graphed = make()
    x_BND = torch.randn(2, 8, 4)
    graphed(x_BND)
    net.load_state_dict(ShuffleExchange(4).state_dict())
    assert torch.equal(graphed(x_BND), answer(net, x_BND))
    assert len(graphed.recorded) == 1


@pytest.mark.parametrize("change", ["convert", "replace", "reset"])
def test_weights_elsewhere_are_recorded_again(change: str) -> None:
    net, graphed = make()
    x_BND = torch.randn(2, 8, 4)
    graphed(x_BND)
    assert len(graphed._recordings) == 1
    if change == "convert":
        net.double()
        x_BND = x_BND.double()
    elif change == "replace":
        net["last"].candidates_bias = nn.Parameter(torch.ones(2, 4), requires_grad=False)
    else:
        net.units["last"] = copy.deepcopy(net["last"])
        graphed.reset()
    assert torch.equal(graphed(x_BND), answer(net, x_BND))
    assert len(graphed.recorded) == 1, "a reset forgets the old ones"


def test_where_more_is_asked_for_the_module_is_called() -> None:
    net, graphed = make()
    x_BND = torch.randn(2, 8, 4)
    graphed(x_BND, lengths=[3, 8])
    graphed(x_BND.clone().requires_grad_()).sum().backward()
    net.requires_grad_(True)
    graphed(x_BND).sum().backward()
    with torch.no_grad():
        graphed.train()(x_BND)
    assert graphed.recorded == []
    with torch.no_grad():
        graphed.eval()(x_BND)
    assert len(graphed.recorded) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("blocks", [1, 2])
def test_replays_give_what_the_model_gives(blocks: int, dtype: torch.dtype) -> None:
    model = SequenceModel(12, 12, 32, blocks, device="cuda", dtype=dtype).eval()
    graphed = Graphed(model, max_graphs=2)
    with torch.inference_mode():
        for length in (16, 100, 16, 64, 16, 100):
            symbols_BN = torch.randint(12, (3, length), device="cuda")
            assert torch.equal(graphed(symbols_BN), model(symbols_BN))
        model.load_state_dict(SequenceModel(12, 12, 32, blocks).state_dict())
        assert torch.equal(graphed(symbols_BN), model(symbols_BN))
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.equal(graphed(symbols_BN), model(symbols_BN))
        model.half()
        assert torch.equal(graphed(symbols_BN), model(symbols_BN))


@pytest.mark.gpu
def test_replays_on_a_gpu_outside_inference_mode() -> None:
    net = ShuffleExchange(32, device="cuda").eval().requires_grad_(False)
    graphed = Graphed(net)
    x_BND = torch.randn(2, 64, 32, device="cuda")
    y_BND = graphed(x_BND)
    assert len(graphed._recordings) == 1
    torch.testing.assert_close(y_BND, net(x_BND), rtol=1e-5, atol=1e-6)
    assert not y_BND.is_inference()
