"""How a sequence that does not fit a device passes through it: which cells together, for which layers.

A layer joins cells that differ in one address bit. Take a part of ``2**w`` cells: all those that agree in the other
``k - w`` address bits. Every layer at one of its ``w`` bits can run on it alone, and a Beneš network goes up and down
the bits one by one, so a part serves many layers before it goes back to where it came from. One pass over the sequence,
part by part, is a visit:

    k = 6, w = 4      0 1 2 3 | 4 5 4 | 3 2 1 0          two more visits for a further block

Where at least half of the address bits lie in a part, that is ``k <= 2 w``, there are 2 visits a block and one at the
end, however long the sequence. No cells are moved in between: a part is gathered from where its cells lie. The bits of
a part for which no layer asks are the lowest, so that its cells lie in long runs.
"""

# N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from torch import Tensor

from riffle.shuffle import Layer


@dataclass(frozen=True)
class Visit:
    """Consecutive layers that run on each part before the next part comes."""

    layers: range
    """Which layers of the schedule."""
    low: int
    """The lowest address bit of a window that has the bits of all these layers; bit ``run`` of a place in the part."""
    span: int
    """How many bits the window has."""
    run: int
    """How many of the lowest address bits lie in it too: it has runs of ``2**run`` consecutive cells."""

    def place(self, bit: int) -> int:
        """The bit of the place in a part which is this bit of the address."""
        return bit - self.low + self.run

    def parts(self, x_BND: Tensor) -> Iterator[Tensor]:
        """Views ``[2**span, 2**run, D]`` of the parts of contiguous sequences of ``2**k`` cells."""
        shape = (-1, 2**self.span, 2 ** (self.low - self.run), 2**self.run, x_BND.shape[2])
        for high in x_BND.view(shape):
            yield from high.unbind(1)


def visits(layers: tuple[Layer, ...], w: int) -> tuple[Visit, ...]:
    """The visits of a schedule to parts of ``2**w`` cells.

    Args:
        layers: What :func:`riffle.shuffle.schedule` gives.
        w: Address bits of a part; 1 to those of the sequence.

    >>> from riffle.shuffle import schedule
    >>> layers = schedule(6)
    >>> [[layers[index].bit for index in visit.layers] for visit in visits(layers, 4)]
    [[0, 1, 2, 3], [4, 5, 4], [3, 2, 1, 0]]
    """
    above = 1 + max(layer.bit for layer in layers) - w
    # Above the lowest w bits, as few windows of bits as there can be, of one size, since a narrow one leaves long runs.
    size = ceil(above / max(1, ceil(above / w)))
    found = []
    for window, group in groupby(range(len(layers)), lambda index: _window(layers[index].bit, w, size)):
        indices = list(group)
        span = w if window == 0 else min(size, w + above - window)
        found.append(Visit(range(indices[0], indices[-1] + 1), window, span, w - span))
    return tuple(found)


def _window(bit: int, w: int, size: int) -> int:
    """The lowest bit of the window in which a bit lies."""
    return 0 if bit < w else bit - (bit - w) % size
