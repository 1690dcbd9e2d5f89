"""The perfect shuffle, its inverse, and the schedule of bits that a whole network follows.

Number the ``n = 2**k`` cells in binary. :func:`unriffle` deals a sequence into its even and its odd cells, which
rotates every address one bit to the right; :func:`riffle` interleaves the two halves again, which rotates it back. A
switch layer always joins adjacent cells, and so, followed back to where the cells started, cells that differ in one
*original* address bit. :func:`schedule` lists that bit, the unit and the skip connection of every layer, and that is
all there is to know about the wiring.

Both shuffles exist for every even ``n``, where an address is multiplied or divided by 2 modulo ``n - 1``. With
``k = ceil(log2(n))`` the same schedule serves (``pad="even"``): cells that meet in a layer were ``2**bit`` apart modulo
``n - 1``. A pair depends on the pairs ``2 q`` and ``2 q + 1`` modulo ``n / 2`` before the unriffle, so after ``j`` of
them on ``2**j`` consecutive pairs, and after ``k - 1`` on all.
"""

# B = batch, N = cells (even; 2**k unless pad="even"), D = features per cell
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

Sharing = Literal["block", "minimal", "full", "none"]
SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
Pad = Literal["power", "even"]
PADS: tuple[Pad, ...] = get_args(Pad)


def riffle(x_BND: Tensor) -> Tensor:
    """Interleave the two halves, as a dealer riffles a deck: ``out[i] = x[ror(i)]``.

    >>> import torch
    >>> riffle(torch.arange(8).view(1, 8, 1)).flatten().tolist()
    [0, 4, 1, 5, 2, 6, 3, 7]
    """
    return x_BND.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def unriffle(x_BND: Tensor) -> Tensor:
    """Deal the cells into even and odd ones, the inverse of :func:`riffle`: ``out[i] = x[rol(i)]``.

    >>> import torch
    >>> unriffle(torch.arange(8).view(1, 8, 1)).flatten().tolist()
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    return x_BND.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)


@dataclass(frozen=True)
class Layer:
    """One switch layer of the network, and the shuffle after it."""

    unit: str
    """Which switch unit: layers of the same name share their weights."""
    bit: int
    """The original address bit in which the two cells of a pair differ; they lie ``2**bit`` apart modulo n - 1."""
    shuffle: int
    """The shuffle that follows: +1 :func:`unriffle`, -1 :func:`riffle`, 0 none."""
    skip: int | None
    """The layer whose input is added, scaled, to this layer's input; None without a skip connection."""


@lru_cache(maxsize=1024)
def schedule(
    k: int, blocks: int = 1, sharing: Sharing = "block", *, benes: bool = True, skips: bool = True
) -> tuple[Layer, ...]:
    """The layers of a network of ``blocks`` Beneš blocks on ``2**k`` cells, or on an even number above half of that.

    A block is ``k - 1`` layers followed by unriffles (the forward half) and ``k - 1`` layers followed by riffles (the
    reverse half, the mirror copy). One last layer ends the network. The skip connections join every layer to the same
    layer of the block before; the last layer takes the input of the last block.

    Args:
        k: Address bits, the logarithm of the number of cells, rounded up.
        blocks: Beneš blocks.
        sharing: "block": one unit per half block; "minimal": the first and the middle layer of a block have units of
            their own; "full": all blocks share; "none": a unit per layer.
        benes: False turns the reverse half into another forward half (ablation "no-benes"). Each then has a layer for
            every bit, since ``k`` unriffles bring every cell home.
        skips: False leaves the skip connections out (ablation "no-residual").

    >>> [layer.bit for layer in schedule(4)]
    [0, 1, 2, 3, 2, 1, 0]
    >>> [layer.unit for layer in schedule(3)]
    ['0_forward', '0_forward', '0_reverse', '0_reverse', 'last']
    """
    layers: list[Layer] = []
    rotation = 0
    levels = k - 1 if benes else k
    for block in range(blocks):
        for half, shuffle in (("forward", 1), ("reverse", -1 if benes else 1)):
            for level in range(levels):
                unit = _unit(sharing, block, half, level, levels)
                skip = len(layers) - 2 * levels if skips and block > 0 else None
                layers.append(Layer(unit, rotation % k, shuffle, skip))
                rotation += shuffle
    skip = 2 * levels * (blocks - 1) if skips and blocks > 1 and levels else None
    layers.append(Layer("last", rotation % k, 0, skip))
    return tuple(layers)


def _unit(sharing: Sharing, block: int, half: str, level: int, levels: int) -> str:
    match sharing:
        case "block":
            return f"{block}_{half}"
        case "full":
            return f"all_{half}"
        case "none":
            return f"{block}_{half}_{level if half == 'forward' else levels - 1 - level}"
        case "minimal":
            if level > 0:
                return f"{block}_{half}"
            return f"{block}_first" if half == "forward" else f"{block}_middle"


@dataclass(frozen=True)
class CausalLayer:
    """One layer of a causal network: every cell from the ``2**bit``-th on reads the cell ``2**bit`` before it."""

    unit: str
    """Which unit: layers of the same name share their weights."""
    bit: int
    """The logarithm of the distance between a cell and the one that it reads."""
    skip: int | None
    """The layer whose input is added, scaled, to what this layer reads; None without a skip connection."""


@lru_cache(maxsize=1024)
def causal_schedule(
    k: int, blocks: int = 1, sharing: Sharing = "block", *, skips: bool = True, levels: int = 1
) -> tuple[CausalLayer, ...]:
    """The layers of a causal network of ``blocks`` blocks on up to ``2**k`` cells.

    A block reads at the distances 1, 2, 4 ... ``2**(k - 1)`` (the forward half) and back to 1 (the reverse half). A
    layer leaves the cells alone that have no cell so far before them, so that on ``n`` cells the layers of larger
    distances do nothing: a longer sequence has the same schedule with further layers in the middle of its blocks.

    Args:
        k: The logarithm of the number of cells, rounded up.
        blocks: Blocks.
        sharing: "block": one unit per half block; "minimal": the first and the last layer of a block have units of
            their own; "full": all blocks share; "none": a unit per distance in each half block.
        skips: Whether skip connections join each layer to the same one of the block before.
        levels: With "none", the distances that have units of their own; larger ones share that of the last.

    >>> [layer.bit for layer in causal_schedule(3)]
    [0, 1, 2, 2, 1, 0]
    """
    layers: list[CausalLayer] = []
    for block in range(blocks):
        for half, distances in (("forward", range(k)), ("reverse", reversed(range(k)))):
            for bit in distances:
                skip = len(layers) - 2 * k if skips and block > 0 else None
                unit = f"{'all' if sharing == 'full' else block}_{half}"
                if sharing == "none":
                    unit = f"{unit}_{min(bit, levels - 1)}"
                elif sharing == "minimal" and bit == 0:
                    unit = f"{block}_{'first' if half == 'forward' else 'last'}"
                layers.append(CausalLayer(unit, bit, skip))
    return tuple(layers)


SHUFFLES = {1: unriffle, -1: riffle, 0: lambda x_BND: x_BND}


def rotate(x_BND: Tensor, times: int, k: int) -> Tensor:
    """Unriffle ``times`` times (riffle, where negative) in one step, or step by step where N is not ``2**k``."""
    if x_BND.shape[1] != 2**k:
        for _ in range(abs(times)):
            x_BND = unriffle(x_BND) if times > 0 else riffle(x_BND)
        return x_BND
    if times % k == 0:
        return x_BND
    return x_BND.unflatten(1, (-1, 2 ** (times % k))).transpose(1, 2).flatten(1, 2)


def bits(length: int) -> int:
    """Address bits of the smallest network that holds ``length`` cells; at least one, since a switch takes two.

    >>> [bits(length) for length in (1, 2, 3, 4, 5, 64, 65)]
    [1, 1, 2, 2, 3, 6, 7]
    """
    k = 1
    while 2**k < length:  # compared, since a compiler would fix a symbolic length at its value to take its bit_length
        k += 1
    return k


def padded_length(length: int, pad: Pad = "power") -> int:
    """The cells on which a network runs a sequence: the next power of two, or with "even" the next even number.

    >>> [padded_length(length) for length in (1, 6, 7, 1030)]
    [2, 8, 8, 2048]
    >>> [padded_length(length, "even") for length in (1, 6, 7, 1030)]
    [2, 6, 8, 1030]
    """
    # Written as a multiple of two, which a compiler sees to be even for every length; no length is below 1.
    return 2 * ((length + 1) // 2) if pad == "even" else 2 ** bits(length)


def shuffled_wires(layer: Layer, cells: int) -> list[int]:
    """Which wire each wire behind a layer's shuffle comes from.

    >>> shuffled_wires(schedule(3)[0], 8)
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    return SHUFFLES[layer.shuffle](torch.arange(cells).view(1, cells, 1)).flatten().tolist()
