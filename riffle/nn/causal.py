r"""The causal network: an output cell depends on the cells up to its own, and on nothing else.

Masking the switches of a Beneš network does not make one: most earlier cells would be out of reach. Here a layer reads
one cell at a fixed distance, :math:`x_i \leftarrow U(x_{i-2^b}, x_i)` for all :math:`i \ge 2^b` at once, so that after
the distances 1, 2, 4 ... every cell has met all before it. These are the distances of WaveNet's dilated convolutions
(van den Oord et al., 2016), shared between lengths and mirrored as in a Beneš block.

Sequences grow by one cell at a time in :meth:`CausalShuffleExchange.step`, from the inputs of every layer that later
cells will read (as Le Paine et al., 2016, generate from a WaveNet).
"""

# B = batch, N = cells, D = features per cell, E = 2 * D: an earlier and a later cell side by side
# H = half blocks, K = distances, R = 2**K cells that a half block keeps
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.nn.causal_switch import CAUSAL_UNITS, CausalUnit
from riffle.nn.execute import regularise, walk
from riffle.nn.hub import HubMixin
from riffle.nn.lengths import check_cells, check_device, checked_lengths, lengths_of_mask, masked
from riffle.nn.switch import check_arguments
from riffle.shuffle import SHARINGS, CausalLayer, Sharing, bits, causal_schedule


@dataclass
class CausalCache:
    """What :meth:`CausalShuffleExchange.step` needs of the cells before; each row of a batch has its own length.

    For the distance ``2**b`` a half block keeps the last ``2**b`` inputs of that layer, at ``2**b + i % 2**b`` for cell
    i. The largest distance is one that no cell has reached yet.
    """

    inputs: Tensor
    """The layers' inputs, ``[H, B, R, D]``."""
    positions: Tensor
    """The cells that each row has so far, ``[B]``."""
    cells: int
    """The same of the longest row."""
    length: int | None = None
    """The cells for which there is room; None grows."""

    @property
    def bytes(self) -> int:
        """The memory of the kept inputs."""
        return self.inputs.nbytes

    def make_room(self) -> None:
        """Double what can be kept where the next cell reaches the largest distance; refuse to exceed ``length``."""
        room = self.inputs.shape[2]
        if self.length is not None:
            if self.cells >= self.length:
                raise ValueError(f"this cache was made for {self.length} cells, and a row has them: start with more")
        elif 2 * self.cells >= room:
            # No cell has read at the largest distance, so its layer has the inputs that one of twice that would have.
            last = self.inputs[:, :, room // 2 :]
            self.inputs = torch.cat((self.inputs, last, torch.zeros_like(last)), 2)


class CausalShuffleExchange(nn.Module, HubMixin, tags=["neural-shuffle-exchange"], license="mit"):
    r"""A causal shuffle-exchange network: every cell depends on all cells up to its own, in O(n log n).

    Each block has :math:`2k` layers for :math:`2^{k-1} < n \le 2^k` cells, and a layer evaluates its unit once a cell.
    An output depends on no later cell and not on how many there are, so ``net(x)[:, :i]`` is ``net(x[:, :i])`` to
    rounding. The first cell stays as it is.

    Args:
        features: Feature maps per cell.
        blocks: Blocks, see :func:`riffle.shuffle.causal_schedule`.
        sharing: "block": one unit per half block; "minimal": the first and the last layer of a block have units of
            their own; "full": all blocks share; "none": a unit per distance.
        unit: "residual", which adds to a cell, or "gated", the later half of the paper's switch, see
            :mod:`riffle.nn.causal_switch`.
        dropout: Rate of dropout on a layer's output in training, divided by :math:`k`.
        length: With ``sharing="none"``, the length up to which each distance has a unit of its own; larger distances
            of longer inputs share that of the last.

    Shape:
        - Input and output: :math:`(B, N, D)` with any :math:`N \ge 1`, without padding, and :math:`D` = ``features``.
          Where values lie in [-1, 1], outputs of the gated unit do, too. Normalise those of the residual one.

    Examples::

        >>> net = CausalShuffleExchange(16, blocks=2)
        >>> x = torch.randn(3, 100, 16)
        >>> y = net(x)
        >>> first, cache = net.prefill(x[:, :99])
        >>> last, cache = net.step(x[:, 99], cache)
        >>> torch.allclose(last, y[:, 99], atol=1e-5)
        True
    """

    def __init__(
        self,
        features: int,
        blocks: int = 1,
        *,
        sharing: Sharing = "block",
        unit: str = "residual",
        dropout: float = 0.0,
        length: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for what, value, known in (("sharing", sharing, SHARINGS), ("unit", unit, CAUSAL_UNITS)):
            if value not in known:
                raise ValueError(f"unknown {what} {value!r}; choose one of {', '.join(known)}")
        check_arguments(features, blocks, length, dropout, dtype=dtype)
        if (sharing == "none") != (length is not None):
            raise ValueError('sharing="none" has a unit per distance, needs length=; other sharings have none')
        self.features, self.blocks, self.sharing, self.unit = features, blocks, sharing, unit
        self.dropout, self.length, self.levels = dropout, length, bits(length or 1)
        unit_class = CAUSAL_UNITS[unit]
        self.skips, self.bounded = unit_class.skips, unit_class.bounded
        layers = self.layers(max(2, self.levels))  # two distances have every kind of layer
        with_skip = {layer.unit for layer in layers if layer.skip is not None}
        self.units = nn.ModuleDict()
        for name in dict.fromkeys(layer.unit for layer in layers):
            options: dict[str, Any] = {"skip": name in with_skip} if self.skips else {}
            self.units[name] = unit_class(features, **options, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw all parameters as those of a new network, as after ``to_empty`` of one on the device "meta"."""
        for name in self.units:
            self[name].reset_parameters()

    def layers(self, k: int) -> tuple[CausalLayer, ...]:
        """The schedule of this network on up to ``2**k`` cells."""
        # Dynamo does not trace caches.
        make = causal_schedule.__wrapped__ if torch.compiler.is_compiling() else causal_schedule
        return make(k, self.blocks, self.sharing, skips=self.skips, levels=self.levels)

    def flops(self, length: int) -> int:
        """FLOPs of the matrix products for one sequence of this length, without gradients."""
        layers = self.layers(bits(length))
        return sum(max(0, length - 2**layer.bit) * self[layer.unit].flops for layer in layers)

    def forward(
        self, x_BND: Tensor, lengths: Tensor | Sequence[int] | None = None, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """Map a sequence of cells to a sequence of cells.

        Args:
            x_BND: The cells, ``[B, N, features]``.
            lengths: The length of every row, where they differ; cells past the end of a row come out as zeros.
            key_padding_mask: In place of ``lengths``, which cells are padding, as attention layers take it: boolean
                ``[B, N]``, True for padding, which must follow the cells of a row (right padding).
        """
        self.check_input(x_BND)
        if key_padding_mask is not None:
            if lengths is not None:
                raise ValueError("lengths and key_padding_mask say the same: give one of them")
            lengths = lengths_of_mask(key_padding_mask, (x_BND.shape[0], x_BND.shape[1]))
        layers = self.layers(bits(x_BND.shape[1]))
        if lengths is None:
            return self._run(x_BND, layers)
        inside_BN = _inside(x_BND, lengths)
        return masked(inside_BN, self._run(masked(inside_BN, x_BND), layers))

    def _run(
        self, x_BND: Tensor, layers: Sequence[CausalLayer], keep: Callable[[int, Tensor], None] | None = None
    ) -> Tensor:
        """All layers on whole sequences; ``keep`` is given the number of each and its input."""
        cells = x_BND.shape[1]
        dropout = self.dropout / bits(cells) if self.training else 0.0

        def run_layer(index: int, layer: CausalLayer, x_BND: Tensor, skip_BND: Tensor | None) -> tuple[Tensor, Tensor]:
            distance = 2**layer.bit
            if keep is not None:
                keep(index, x_BND)
                if distance >= cells:
                    return x_BND, x_BND
            s_BNE, skip_BNE = (None if y_BND is None else _pairs(y_BND, distance) for y_BND in (x_BND, skip_BND))
            y_BND = regularise(self[layer.unit](s_BNE, skip_BNE), dropout, 0.0)
            if torch.compiler.is_exporting():
                return torch.where(torch.arange(cells, device=x_BND.device)[:, None] >= distance, y_BND, x_BND), x_BND
            return torch.cat((x_BND[:, :distance], y_BND), 1), x_BND

        return walk(layers, x_BND, run_layer)

    def start(self, batch: int, *, length: int | None = None) -> CausalCache:
        """A cache of ``batch`` rows without cells.

        Without ``length`` it grows with the rows, to between 4 and 8 times the cells of the longest for each block.
        With it, it keeps 2 times that many cells for each block, and every step does the same work on the same memory,
        as CUDA graphs want it.
        """
        weight = next(self.parameters())
        room = 2 if length is None else 2 ** bits(length)
        inputs_HBRD = weight.new_zeros(2 * self.blocks, batch, room, self.features)
        return CausalCache(inputs_HBRD, torch.zeros(batch, dtype=torch.int64, device=weight.device), 0, length)

    @torch.no_grad()
    def prefill(
        self, x_BND: Tensor, lengths: Tensor | Sequence[int] | None = None, *, length: int | None = None
    ) -> tuple[Tensor, CausalCache]:
        """What :meth:`forward` gives for the first cells of sequences, and the cache from which :meth:`step` goes on.

        Args:
            x_BND: The cells, ``[B, N, features]``.
            lengths: The length of every row, where they differ.
            length: The cells for which the cache is to have room, see :meth:`start`.
        """
        self.check_input(x_BND)
        batch, cells = x_BND.shape[:2]
        sizes = [cells] * batch if lengths is None else checked_lengths(lengths, batch, cells)
        if length is not None and length < cells:
            raise ValueError(f"a cache of {length} cells does not hold the {cells} of the input")
        cache = self.start(batch, length=2 ** (bits(cells + 1) + 1) if length is None else length)
        cache.length, cache.cells = length, max(sizes, default=0)
        cache.positions += torch.tensor(sizes, device=x_BND.device)
        inside_BN, last_B1 = _inside(x_BND, sizes), cache.positions[:, None] - 1
        k = bits(cache.inputs.shape[2])
        layers = self.layers(k)

        def keep(index: int, input_BND: Tensor) -> None:
            distance = 2 ** layers[index].bit
            # The last cell of a row that belongs at each place, if there is one.
            place_N = torch.arange(min(distance, cells), device=x_BND.device)
            cell_BN = (last_B1 - (last_B1 - place_N) % distance).clamp(min=0)
            kept_BND = input_BND.gather(1, cell_BN[..., None].expand(-1, -1, self.features))
            cache.inputs[index // k, :, distance : distance + len(place_N)] = kept_BND

        return masked(inside_BN, self._run(masked(inside_BN, x_BND), layers, keep)), cache

    @torch.no_grad()
    def step(self, x_BD: Tensor, cache: CausalCache | None = None) -> tuple[Tensor, CausalCache]:
        """The output of the next cell of every row, what :meth:`forward` would give for it, and the cache with it.

        A step evaluates about :math:`2 \\log_2 i` units a block for cell i. The cache is overwritten.

        Args:
            x_BD: The next cell of every row, ``[B, features]``.
            cache: What :meth:`step` or :meth:`prefill` returned; None starts sequences.
        """
        self.check_input(x_BD[:, None])
        cache = self.start(len(x_BD)) if cache is None else cache
        if cache.inputs.shape[1] != len(x_BD):
            raise ValueError(f"this cache has {cache.inputs.shape[1]} rows, the input {len(x_BD)}")
        cache.make_room()
        k = bits(cache.inputs.shape[2])
        reached = cache.cells if cache.length is None else cache.length - 1
        position_B1 = cache.positions[:, None]
        distance_K = 2 ** torch.arange(k, device=x_BD.device)
        place_BK = distance_K + position_B1 % distance_K
        row_B1 = torch.arange(len(x_BD), device=x_BD.device)[:, None]
        earlier_HBKD = cache.inputs[:, row_B1, place_BK]
        kept_HKBD = earlier_HBKD.new_empty(2 * self.blocks, k, *x_BD.shape)

        def run_layer(index: int, layer: CausalLayer, x_BD: Tensor, skip_BD: Tensor | None) -> tuple[Tensor, Tensor]:
            half, bit = index // k, layer.bit
            kept_HKBD[half, bit] = x_BD
            if 2**bit > reached:
                return x_BD, x_BD
            s_BE = torch.cat((earlier_HBKD[half, :, bit], x_BD), -1)
            skip_BE = None if skip_BD is None else torch.cat((earlier_HBKD[half - 2, :, bit], skip_BD), -1)
            return torch.where(position_B1 >= 2**bit, self[layer.unit](s_BE, skip_BE), x_BD), x_BD

        y_BD = walk(self.layers(k), x_BD, run_layer)
        cache.inputs[:, row_B1, place_BK] = kept_HKBD.transpose(1, 2)
        cache.positions += 1
        cache.cells += 1
        return y_BD, cache

    def check_input(self, x_BND: Tensor) -> None:
        """Refuse cells that :meth:`forward` cannot take."""
        weight = next(self.parameters())
        check_cells(x_BND, self.features, weight.dtype)
        check_device(x_BND, weight.device)

    def extra_repr(self) -> str:
        return f"{self.features}, blocks={self.blocks}, sharing={self.sharing!r}, unit={self.unit!r}"

    def __getitem__(self, name: str) -> CausalUnit:
        """The unit of a name in the schedule."""
        return self.units[name]  # type: ignore[return-value]


def _pairs(x_BND: Tensor, distance: int) -> Tensor:
    """Every cell that has one so far before it, beside that one; in a program for export all cells.

    A program cannot have the length 2**k + 1 if it cuts off 2**k cells: torch takes a size of 1 to be fixed.
    """
    if torch.compiler.is_exporting():
        return torch.cat((F.pad(x_BND, (0, 0, distance, -distance)), x_BND), -1)
    return torch.cat((x_BND[:, : x_BND.shape[1] - distance], x_BND[:, distance:]), -1)


def _inside(x_BND: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Which cells belong to their row, ``[B, N]``."""
    sizes = checked_lengths(lengths, x_BND.shape[0], x_BND.shape[1])
    sizes_B = torch.tensor(sizes, dtype=torch.int64, device=x_BND.device)
    return torch.arange(x_BND.shape[1], device=x_BND.device) < sizes_B[:, None]
