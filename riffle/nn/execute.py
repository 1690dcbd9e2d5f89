"""Running a schedule: :func:`walk` goes through its layers once and is given what a layer does.

Shuffled, a layer joins adjacent cells and a physical shuffle follows: the definition, and the way to run with
gradients. In place, cells stay where they are and a layer overwrites the pairs that differ in its address bit: without
gradients one buffer serves the whole network, beside it a chunk of pairs at a time and the inputs that skip connections
need. That form takes powers of two. The fused kernels run all layers in one operator (:mod:`riffle.kernels.operator`).
Other ways are in :mod:`riffle.nn.merge` (several lengths at once), :mod:`riffle.parallel` (sharded, streamed) and
:mod:`riffle.inspect` (traced).
"""

# B = batch, N = cells (even), C = cells of all sequences, one after the other, D = features per cell
# P = pairs, H = their high address bits, L = their low ones
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.kernels import resolve
from riffle.kernels.reference import is_transformed
from riffle.kernels.tuning import CHUNK_PAIRS, CHUNK_PAIRS_DEVICE, MOST_LENGTHS
from riffle.nn.switch import PairUnit
from riffle.shuffle import SHUFFLES, Layer, bits

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

State = TypeVar("State")
RunLayer = Callable[[int, Any, State, Any], tuple[State, Any]]
"""``run_layer(index, layer, state, skip)`` returns the next state and the layer's input, to be kept where a later layer
needs it. ``skip`` is what was kept of the layer that ``layer.skip`` names, or a tuple of those, or None."""
SwitchLayer = Callable[[Tensor, str, int, Tensor | None], Tensor]
"""``switch(x_BND, unit, shuffle, skip_BND)``: the unit on adjacent cells, dropout or noise, and the shuffle."""


def walk(
    layers: Sequence[Any],
    state: State,
    run_layer: RunLayer[State],
    *,
    indices: Iterable[int] | None = None,
    kept: dict[int, Any] | None = None,
) -> State:
    """Run the layers of a schedule in order: the one loop over layers, whatever each of them does.

    An input that a later layer's skip connection needs is kept until the last layer that does, and then let go.

    Args:
        layers: The schedule: of a network, of one rank, or merged for several lengths; ``layer.skip`` is then a tuple.
        state: What enters the first layer.
        run_layer: Runs one layer.
        indices: The layers to run, all of them where None.
        kept: Inputs of earlier layers by index, where those were run before; let go in here like all others.
    """
    last_reader = {source: index for index, layer in enumerate(layers) for source in _skip_sources(layer)}
    kept = {} if kept is None else kept
    for index in range(len(layers)) if indices is None else indices:
        layer = layers[index]
        sources = _skip_sources(layer)
        skip: Any = None
        if sources:
            skip = tuple(kept[source] for source in sources) if isinstance(layer.skip, tuple) else kept[sources[0]]
        state, layer_input = run_layer(index, layer, state, skip)
        for source in sources:
            if last_reader[source] == index:
                kept.pop(source, None)
        if index in last_reader:
            kept[index] = layer_input
        del layer_input  # or it would stay in memory while the next layer runs
    return state


def _skip_sources(layer: Any) -> tuple[int, ...]:
    skip = layer.skip
    return () if skip is None else skip if isinstance(skip, tuple) else (skip,)


def skip_buffers(layers: Sequence[Any]) -> dict[int, int]:
    """The number of the buffer that keeps each input which a later layer's skip connection needs.

    An input is needed once, and the layer that needs it keeps its own in the same buffer: two blocks take as many
    buffers as ten, one for each layer of a block.

    >>> from riffle.shuffle import schedule
    >>> skip_buffers(schedule(2, blocks=3))
    {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    """
    needed = {source for layer in layers for source in _skip_sources(layer)}
    buffers: dict[int, int] = {}
    for index, layer in enumerate(layers):
        if index in needed:
            sources = _skip_sources(layer)
            buffers[index] = buffers[sources[0]] if sources else len(buffers)
    return buffers


def switch_layer(network: ShuffleExchange, x_BND: Tensor, k: int) -> SwitchLayer:
    """The layers of a network on ``2**k`` cells by the kernels that serve ``x_BND``."""
    dropout = dropout_rate(network, k)
    if not is_fused(network, x_BND):
        return reference_layer(network.units, dropout, network.noise if network.training else 0.0)  # type: ignore[arg-type]
    return fused_layer(network, compute_dtype(x_BND), dropout)


def reference_layer(units: Mapping[str, PairUnit], dropout: float = 0.0, noise: float = 0.0) -> SwitchLayer:
    """The layer as the units define it."""

    def layer(x_BND: Tensor, unit: str, shuffle: int, skip_BND: Tensor | None) -> Tensor:
        return SHUFFLES[shuffle](regularise(units[unit](x_BND, skip_BND), dropout, noise))

    return layer


def fused_layer(network: ShuffleExchange, dtype: torch.dtype, dropout: float) -> SwitchLayer:
    """The layer on the fused kernels, which compute in ``dtype``; a unit's parameters are packed once."""
    from riffle.kernels.fused import PackedUnit, pack, switch_and_shuffle

    packed: dict[str, PackedUnit] = {}
    units: Any = network.units
    noise = network.noise if network.training else 0.0

    def layer(x_BND: Tensor, unit: str, shuffle: int, skip_BND: Tensor | None) -> Tensor:
        if unit not in packed:
            packed[unit] = pack(units[unit].weights(), units[unit].skip_scale, dtype)
        y_CD = switch_and_shuffle(
            x_BND.flatten(0, 1).to(dtype),
            packed[unit],
            sequences=[x_BND.shape[0]],
            cells=[x_BND.shape[1]],
            shuffle=shuffle,
            swap=bool(units[unit].swap),
            skip_CD=None if skip_BND is None else skip_BND.flatten(0, 1).to(dtype),
            dropout=[dropout],
            noise=noise,
            recompute=network.recompute is not False,
        )
        return y_CD.view(x_BND.shape)

    return layer


def dropout_rate(network: ShuffleExchange, k: int) -> float:
    """The dropout after each layer on ``2**k`` cells."""
    return network.dropout / k if network.training else 0.0


def regularise(y_BND: Tensor, dropout: float, noise: float) -> Tensor:
    """A layer's output with dropout, or else with multiplicative noise."""
    if dropout:
        return F.dropout(y_BND, dropout)
    # As a factor in 16 bits, 1 + noise would be rounded to 1 nearly always.
    return torch.addcmul(y_BND, y_BND, torch.randn_like(y_BND), value=noise) if noise else y_BND


def is_fused(network: ShuffleExchange, x_BND: Tensor) -> bool:
    """Whether layers by themselves run on the fused kernels."""
    if network.backend == "fused" and not network.fused_layer:
        raise ValueError(f"unit {network.unit!r} has fused kernels for whole networks alone: use backend='auto' here")
    return network.fused_layer and resolve(network.backend, x_BND) == "fused"


def is_one_operator(network: ShuffleExchange, x_BND: Tensor) -> bool:
    """Whether all layers are one operator, on the fused kernels."""
    return network.spec is not None and resolve(network.backend, x_BND) == "fused"


def leaves_compiler(network: ShuffleExchange, x_BND: Tensor) -> bool:
    """Whether ``torch.compile`` leaves the network out: on a CPU, whose every layer it would trace to gain little."""
    compiling = torch.compiler.is_dynamo_compiling() and not torch.compiler._is_exporting_flag
    return compiling and network.backend == "auto" and x_BND.device.type == "cpu"


@torch._disable_dynamo  # torch.compiler.disable would load the compiler when riffle is imported
def uncompiled(call: Callable[..., Any], *arguments: Any) -> Any:
    """A call that a compiler does not look into."""
    return call(*arguments)


def compute_dtype(x_BND: Tensor) -> torch.dtype:
    """The dtype in which the fused kernels compute: that of the cells, or autocast's."""
    device = x_BND.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_BND.dtype


def run_fused(network: ShuffleExchange, xs_BND: Sequence[Tensor], recompute: bool | None) -> list[Tensor]:
    """Run a network on batches of any lengths by the fused kernels, all layers of all batches in one operator.

    Padded to even lengths there may be many of these, and a kernel takes a few.
    """
    from riffle.kernels.operator import run_network

    assert network.spec is not None
    units: list[PairUnit] = list(network.units.values())  # type: ignore[arg-type]
    parameters = [tensor for unit in units for tensor in unit.tensors()]
    # Longer ones first, as the kernels want it; a compiler does not sort a length that it keeps open.
    order = sorted(range(len(xs_BND)), key=lambda index: -xs_BND[index].shape[1]) if len(xs_BND) > 1 else [0]
    most = MOST_LENGTHS if network.pad == "even" else len(order)
    ys_BND: dict[int, Tensor] = {}
    for first in range(0, len(order), most):
        together = order[first : first + most]
        y_CD = run_network(
            [xs_BND[index] for index in together],
            parameters,
            network.spec,
            dtype=compute_dtype(xs_BND[0]),
            dropout=network.dropout if network.training else 0.0,
            noise=network.noise if network.training else 0.0,
            recompute=recompute,
            graphs=network.graphs,
        )
        if len(xs_BND) == 1:
            return [y_CD.view(xs_BND[0].shape)]
        parts = y_CD.split([xs_BND[index].shape[0] * xs_BND[index].shape[1] for index in together])
        ys_BND |= {index: part_CD.view(xs_BND[index].shape) for index, part_CD in zip(together, parts, strict=True)}
    return [ys_BND[index] for index in range(len(xs_BND))]


def run_batch(network: ShuffleExchange, x_BND: Tensor) -> Tensor:
    """Run a network on sequences of one even length."""
    k = bits(x_BND.shape[1])
    layers = network.layers(k)
    switch = switch_layer(network, x_BND, k)
    in_place = network.pairwise and x_BND.shape[1] == 2**k
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not in_place or is_transformed():
        return walk(layers, x_BND, shuffled_layer(switch)).to(x_BND.dtype)
    # Where no gradient needs a layer's output by itself, the layers can overwrite one buffer.
    return walk(layers, x_BND.clone(memory_format=torch.contiguous_format), in_place_layer(layers, switch))


def shuffled_layer(switch: SwitchLayer) -> RunLayer[Tensor]:
    """How to run a layer as the paper draws it: adjacent pairs, then a physical shuffle."""

    def run_layer(index: int, layer: Layer, x_BND: Tensor, skip_BND: Tensor | None) -> tuple[Tensor, Tensor]:
        return switch(x_BND, layer.unit, layer.shuffle, skip_BND), x_BND

    return run_layer


def in_place_layer(layers: Sequence[Any], switch: SwitchLayer) -> RunLayer[Tensor]:
    """How to run a layer that overwrites its contiguous input, without gradients.

    The buffer of its skip connection takes that input, where a later layer needs it.
    """
    buffers = skip_buffers(layers)
    kept: list[Tensor] = []

    def run_layer(index: int, layer: Any, state_BND: Tensor, skip_BND: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if index in buffers and not kept:
            # All at once: one by one they would lie between the chunks of layers, with gaps that no chunk fits into.
            kept.extend(torch.empty_like(state_BND) for _ in set(buffers.values()))
        keep_BND = kept[buffers[index]] if index in buffers else None
        overwrite_layer(state_BND, layer.bit, layer.unit, switch, skip_BND, keep_BND)
        return state_BND, keep_BND

    return run_layer


def overwrite_layer(
    state_BND: Tensor,
    bit: int,
    unit: str,
    switch: SwitchLayer,
    skip_BND: Tensor | None = None,
    keep_BND: Tensor | None = None,
) -> None:
    """Overwrite contiguous cells by one switch layer on the pairs that differ in address bit ``bit``.

    ``keep_BND`` takes the cells as they were; it may be ``skip_BND``, since a chunk of that is read first.
    """
    state_chunks, skip_chunks, keep_chunks = (
        repeat(None) if x_BND is None else chunks(x_BND, bit) for x_BND in (state_BND, skip_BND, keep_BND)
    )
    for state_HL2D, skip_HL2D, keep_HL2D in zip(state_chunks, skip_chunks, keep_chunks, strict=False):
        assert state_HL2D is not None
        # To the kernels these are many sequences of two cells.
        skip_P2D = None if skip_HL2D is None else skip_HL2D.flatten(0, 1)
        out_P2D = switch(state_HL2D.flatten(0, 1), unit, 0, skip_P2D)
        if keep_HL2D is not None:
            keep_HL2D.copy_(state_HL2D)
        state_HL2D.copy_(out_P2D.view(state_HL2D.shape))
        del out_P2D  # or it would stay in memory while the next chunk runs


def chunks(x_BND: Tensor, bit: int) -> Iterator[Tensor]:
    """Views ``[H, L, 2, D]`` of the pairs that differ in address bit ``bit``, each small enough for the cache."""
    size = CHUNK_PAIRS.get(x_BND.device.type, CHUNK_PAIRS_DEVICE)
    low = 1 << bit
    pairs_HL2D = x_BND.view(-1, 2, low, x_BND.shape[-1]).transpose(1, 2)
    for high_part in pairs_HL2D.split(max(1, size // low)):
        yield from high_part.split(min(size, low), dim=1)
