"""The network by its definition, layer by layer, with room for gradients at a million cells."""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import PairUnit
from riffle.shuffle import SHUFFLES


def definition(net: ShuffleExchange, x_BND: Tensor) -> Tensor:
    """What ``net`` computes, written from its schedule once more: a unit on adjacent pairs, then a shuffle.

    With gradients only the cells between layers are kept; the backward pass computes what is inside a layer again.
    """
    layers = net.layers(x_BND.shape[1].bit_length() - 1)
    skips = {layer.skip for layer in layers}
    kept: dict[int, Tensor] = {}

    def run(unit: PairUnit, shuffle: int, x_BND: Tensor, skip_BND: Tensor | None) -> Tensor:
        return SHUFFLES[shuffle](unit(x_BND, skip_BND))

    for index, layer in enumerate(layers):
        if index in skips:
            kept[index] = x_BND
        skip_BND = None if layer.skip is None else kept[layer.skip]
        unit = net[layer.unit]
        if x_BND.requires_grad:
            x_BND = checkpoint(run, unit, layer.shuffle, x_BND, skip_BND, use_reentrant=False)
        else:
            x_BND = run(unit, layer.shuffle, x_BND, skip_BND)
    return x_BND
