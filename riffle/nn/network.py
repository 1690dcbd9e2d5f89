"""The neural shuffle-exchange network: Beneš blocks of switch layers and shuffles."""

# B = batch, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from riffle.kernels import BACKENDS, Backend
from riffle.kernels.graphs import GraphCache
from riffle.kernels.plan import NetworkSpec
from riffle.kernels.reference import NORMS, Norm
from riffle.nn.execute import (
    chunks,
    in_place_layer,
    is_one_operator,
    leaves_compiler,
    run_batch,
    run_fused,
    switch_layer,
    uncompiled,
    walk,
)
from riffle.nn.hub import HubMixin
from riffle.nn.lengths import (
    at_own_padded_length,
    at_padded_lengths,
    check_cells,
    check_device,
    lengths_of_mask,
    packed_at_own_padded_length,
)
from riffle.nn.switch import UNITS, PairUnit, check_arguments
from riffle.shuffle import PADS, SHARINGS, Layer, Pad, Sharing, bits, padded_length, schedule

CHOICES: dict[str, Collection[str]] = {
    "sharing": SHARINGS, "unit": UNITS, "norm": NORMS, "pad": PADS, "order": ("paper", "official"), "backend": BACKENDS,
}  # fmt: skip
"""The values of a network's arguments; units can be added."""


class SequenceSharder(Protocol):
    """Runs a network on sequences that are spread over several ranks: :class:`riffle.parallel.SequenceSharding`."""

    ranks: int

    def run(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """This rank's part of the output; the lengths are those of whole rows."""


class ShuffleExchange(nn.Module, HubMixin, tags=["neural-shuffle-exchange"], license="mit"):
    r"""A neural shuffle-exchange network: every output cell can depend on every input cell, in O(n log n).

    A sequence of :math:`2^k` cells passes :math:`k-1` switch layers with unriffles between them, :math:`k-1` with
    riffles (together one Beneš block), further blocks of the same kind, and one last switch layer. Layers of one half
    block share their weights, so the same network runs every length. From the second block on, a scaled skip connection
    brings each layer the input of the same layer one block before.

    Args:
        features: Feature maps per cell, :math:`m` in the paper; even.
        blocks: Beneš blocks.
        sharing: "block": one unit per half block and one last; "minimal": the first and the middle layer of each
            block have units of their own, which do not swap (the paper's appendix); "full": all blocks share; "none": a
            unit per layer, for one length only.
        unit: "gated", or an ablation of the paper: "no-swap", "no-residual", "no-benes", "swap-gate", "two-fc",
            "two-fc-gate"; or "residual", the :class:`~riffle.nn.switch.ResidualUnit` of the authors' later paper.
        norm: What the residual unit normalises over: the "features" of a pair, or as its released code does the
            "sequence", all of the power of two of cells at which a row runs, padding included.
        dropout: Rate of dropout on a switch layer's output in training, divided by :math:`k`.
        noise: Standard deviation of multiplicative noise in training, used in place of dropout.
        length: The one length of a network with ``sharing="none"``.
        pad: To which length sequences are padded inside: "power", the next power of two, or "even", the next even
            number: 1,030 cells cost 1,030 instead of 2,048. Both agree at powers of two; elsewhere the wiring is
            another one, and a network has to be trained with the padding it is used with.
        order: "official" takes and gives the features as the authors' released code orders them, see
            :meth:`from_official`.
        backend: Which kernels compute the switch layers: "reference" (plain PyTorch), "fused" (Triton, on a GPU) or
            "auto", fused wherever they run; on a CPU, ``torch.compile`` leaves out a network of "auto".
        recompute: Whether the backward pass of the fused kernels forms the gates again, so that a layer keeps its input
            only; False keeps the gates, a tenth faster and four times the memory. None, the default, keeps them where
            they take at most a thirty-second of the device's memory, until that does not suffice.
        graphs: Whether the passes of small work on the fused kernels, forward and backward, are replayed as CUDA graphs
            once a shape repeats, or a :class:`~riffle.kernels.graphs.GraphCache` with bounds of its own.
        sharding: A :class:`riffle.parallel.SequenceSharding` over whose 2^p ranks every sequence is spread, an equal
            part of consecutive cells on each; None, or one rank, where this process has it all. See
            ``docs/scaling.md``.

    Shape:
        - Input and output: :math:`(B, N, D)` with any :math:`N \ge 1` and :math:`D` = ``features``. Other lengths than
          ``pad`` says are padded with zero cells inside and cropped back. Values should be about 1 in size, see
          ``docs/choosing.md``. Where they lie in [-1, 1], outputs of a gated unit do, too: layers mix them with tanhs.

    Examples::

        >>> net = ShuffleExchange(16, blocks=2)
        >>> net(torch.randn(3, 100, 16)).shape
        torch.Size([3, 100, 16])
        >>> net(torch.randn(3, 100, 16), lengths=[100, 7, 30]).shape
        torch.Size([3, 100, 16])
    """

    def __init__(
        self,
        features: int,
        blocks: int = 1,
        *,
        sharing: Sharing = "block",
        unit: str = "gated",
        norm: Norm = "features",
        dropout: float = 0.0,
        noise: float = 0.0,
        length: int | None = None,
        pad: Pad = "power",
        order: str = "paper",
        backend: Backend = "auto",
        recompute: bool | None = None,
        graphs: bool | GraphCache = True,
        sharding: SequenceSharder | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        given = {"sharing": sharing, "unit": unit, "norm": norm, "pad": pad, "order": order, "backend": backend}
        for what, value in given.items():
            if value not in CHOICES[what]:
                raise ValueError(f"unknown {what} {value!r}; choose one of {', '.join(CHOICES[what])}")
        unit_class = UNITS[unit]
        if norm != "features" and not unit_class.norms:
            raise ValueError(f"norm={norm!r} is for unit='residual', a unit {unit!r} does not normalise")
        check_arguments(features, blocks, length, dropout, noise, dtype)
        if dropout and noise:
            raise ValueError("noise replaces dropout: set one of the two to 0")
        if (sharing == "none") != (length is not None):
            raise ValueError('sharing="none" has a unit per layer, needs length=; every other sharing runs any length')
        if pad == "even" and not unit_class.benes:
            raise ValueError(f'unit "{unit}" needs pad="power": its unriffles bring cells home at powers of two only')
        self.features, self.blocks, self.sharing, self.unit, self.norm = features, blocks, sharing, unit, norm
        self.benes, self.skips, self.pad = unit_class.benes, unit_class.skips, pad
        self.dropout, self.noise, self.length, self.order, self.backend = dropout, noise, length, order, backend
        self.recompute = recompute
        self._too_many: int | None = None  # cells from which on kept gates ran out of memory
        self.graphs = GraphCache() if graphs is True else graphs or None
        # Three bits have every kind of layer, so their units are the units of every length.
        layers = self.layers(3 if length is None else bits(length))
        with_skip = {layer.unit for layer in layers if layer.skip is not None}
        self.units = nn.ModuleDict()
        for name in dict.fromkeys(layer.unit for layer in layers):
            alone = sharing == "minimal" and name.endswith(("first", "middle", "last"))
            options: dict[str, Any] = {"skip": name in with_skip} if unit_class.skips else {}
            options |= {"swap": not alone} if unit_class.swaps else {}
            options |= {"norm": norm} if unit_class.norms else {}
            self.units[name] = unit_class(features, **options, device=device, dtype=dtype)
        self.fused_layer, self.pairwise = unit_class.fused_layer, self["last"].pairwise
        self.spec = self._spec(self["last"].kind)
        if backend == "fused" and self.spec is None:
            raise ValueError(f"unit {unit!r} has no fused kernel: use backend='auto' or 'reference'")
        self.sharding = None if sharding is None or sharding.ranks == 1 else sharding
        if self.sharding is not None:
            self.check_pairwise("spread over ranks")

    def reset_parameters(self) -> None:
        """Draw all parameters as those of a new network, as after ``to_empty`` of one on the device "meta"."""
        for name in self.units:
            self[name].reset_parameters()

    def _spec(self, kind: str | None) -> NetworkSpec | None:
        """What the fused kernels have to know, apart from the parameters; None where there are none."""
        if kind is None:
            return None
        units = [self[name] for name in self.units]
        return NetworkSpec(
            self.blocks, self.sharing, self.benes, self.skips,
            units=tuple(self.units.keys()),
            swaps=tuple(unit.swap for unit in units),
            scaled=tuple(unit.vector is not None for unit in units),
            kind=kind, pad=self.pad,
        )  # fmt: skip

    def layers(self, k: int) -> tuple[Layer, ...]:
        """The schedule this network follows on ``2**k`` cells."""
        if self.length is not None and k != bits(self.length):
            raise ValueError(f'sharing="none" runs at one size, {2 ** bits(self.length)} cells, not at {2**k}')
        make = schedule.__wrapped__ if torch.compiler.is_compiling() else schedule  # Dynamo does not trace caches
        return make(k, self.blocks, self.sharing, benes=self.benes, skips=self.skips)

    def flops(self, length: int) -> int:
        """FLOPs of the matrix products for one sequence of this length, without gradients."""
        pairs = padded_length(length, self.pad) // 2
        return pairs * sum(self[layer.unit].flops for layer in self.layers(bits(length)))

    def forward(
        self,
        x_BND: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        key_padding_mask: Tensor | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """Map a sequence of cells to a sequence of cells.

        Args:
            x_BND: The cells, ``[B, N, features]``, those of one sequence, ``[N, features]``, or a nested tensor of
                layout ``torch.jagged``.
            lengths: The length of every row, where they differ. Each row is padded to a length of its own, as ``pad``
                says, whatever it is batched with; its cells past the end are ignored and come out as zeros, and so does
                a row of length 0. With a ``sharding`` these are lengths of whole rows, the same on every rank.
            key_padding_mask: In place of ``lengths``, which cells are padding, as attention layers take it: boolean
                ``[B, N]``, True for padding, which must follow the cells of a row (right padding). With a ``sharding``
                it is that of whole rows, too.
            cu_seqlens: For packed rows, all cells one after the other in ``[C, features]``: where each row begins, and
                ``C``, as attention on packed sequences takes it.
            padding: The cell ``[features]`` that fills a row up to its padded length, zeros where None.
        """
        if isinstance(x_BND, PackedSequence):
            raise ValueError(
                "the cells of a PackedSequence lie step after step: give "
                "*torch.nn.utils.rnn.pad_packed_sequence(x, batch_first=True), which are cells and lengths"
            )
        if x_BND.is_nested:
            nested: Any = x_BND  # has methods of its own
            given = any(rows is not None for rows in (lengths, key_padding_mask, cu_seqlens))
            if x_BND.layout != torch.jagged or nested.lengths() is not None or given:
                raise ValueError(
                    "nested cells are taken with layout=torch.jagged, without gaps (.contiguous()) and with no other "
                    "lengths than their own"
                )
            y_CD = self(nested.values(), cu_seqlens=nested.offsets(), padding=padding)
            return torch.nested.nested_tensor_from_jagged(y_CD, nested.offsets())
        if leaves_compiler(self, x_BND):
            return uncompiled(self.forward, x_BND, lengths, key_padding_mask, cu_seqlens, padding)
        if sum(rows is not None for rows in (lengths, key_padding_mask, cu_seqlens)) > 1:
            raise ValueError("lengths, key_padding_mask and cu_seqlens say the same: give one of them")
        if x_BND.dim() == 2 and cu_seqlens is None:
            mask_BN = key_padding_mask if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            return self.forward(x_BND.unsqueeze(0), lengths, mask_BN, padding=padding).squeeze(0)
        packed = cu_seqlens is not None and x_BND.dim() == 2
        self.check_input(x_BND.unsqueeze(0) if packed else x_BND)
        if key_padding_mask is not None:
            ranks = 1 if self.sharding is None else self.sharding.ranks
            lengths = lengths_of_mask(key_padding_mask, (x_BND.shape[0], x_BND.shape[1] * ranks))
        if self.sharding is not None:
            if cu_seqlens is not None or padding is not None:
                raise ValueError("this network was built with sharding=, which takes neither cu_seqlens nor padding")
            return self.sharding.run(self, x_BND, lengths)
        if cu_seqlens is not None:
            return packed_at_own_padded_length(self.run_batches, x_BND, cu_seqlens, self.pad, padding)
        if torch.compiler.is_exporting():
            from riffle.nn import onnx

            if onnx.exported is not None:
                return onnx.network_node(self, x_BND, lengths, padding)
        if lengths is not None:
            return at_own_padded_length(self.run_batches, x_BND, lengths, self.pad, padding)
        return self.run_batches([x_BND], padding)[0]

    def forward_batches(self, xs_BND: Sequence[Tensor], padding: Tensor | None = None) -> list[Tensor]:
        """Map several batches, each of sequences of one length; on a GPU, layers that share a unit are one call.

        Args:
            xs_BND: The cells of each batch, ``[B, N, features]`` with a batch and a length of its own.
            padding: The cell ``[features]`` that fills sequences up, zeros where None.
        """
        if xs_BND and leaves_compiler(self, xs_BND[0]):
            return uncompiled(self.forward_batches, xs_BND, padding)
        for x_BND in xs_BND:
            self.check_input(x_BND)
        if self.sharding is not None:
            return [self(x_BND, padding=padding) for x_BND in xs_BND]
        return self.run_batches(list(xs_BND), padding) if xs_BND else []

    def run_batches(self, xs_BND: list[Tensor], padding: Tensor | None = None) -> list[Tensor]:
        """Map several batches of any lengths, on this rank alone."""
        if padding is not None:
            return at_padded_lengths(self.run_batches, xs_BND, self.pad, padding)
        xs_BND = [self.relabel(x_BND) for x_BND in xs_BND]
        cells = sum(x_BND.shape[0] * x_BND.shape[1] for x_BND in xs_BND)
        ys_BND = None
        while ys_BND is None:
            too_many = self._too_many is not None and cells >= self._too_many
            recompute = True if self.recompute is None and too_many else self.recompute
            try:
                if is_one_operator(self, xs_BND[0]):
                    ys_BND = run_fused(self, xs_BND, recompute)
                else:
                    ys_BND = at_padded_lengths(self._run_padded, xs_BND, self.pad)
            except torch.OutOfMemoryError:
                pass  # what the attempt held is freed with the error
            if ys_BND is None and not (self.graphs and self.graphs.reset()):
                if recompute is not None:
                    raise torch.OutOfMemoryError(
                        f"out of GPU memory at length {max(x_BND.shape[1] for x_BND in xs_BND)}: choose shorter "
                        "inputs, a smaller batch, or net.overwrite / riffle.parallel.stream"
                    )
                self._too_many = cells
        return [self.relabel(y_BND) for y_BND in ys_BND]

    def _run_padded(self, xs_BND: list[Tensor]) -> list[Tensor]:
        """Map several batches of padded lengths, layer by layer."""
        # On a CPU, and by kernels without gradients, batches go one by one.
        merge = xs_BND[0].device.type != "cpu" and (torch.is_grad_enabled() or torch.compiler.is_compiling())
        if merge and len(xs_BND) > 1:
            from riffle.nn.merge import run_merged

            return run_merged(self, xs_BND)
        return [run_batch(self, x_BND) for x_BND in xs_BND]

    @torch.no_grad()
    def overwrite(self, x_BND: Tensor) -> Tensor:
        """Map a sequence of cells in its own memory: what :meth:`forward` gives, for lengths that fit only once.

        Beside the input it takes what a chunk of pairs needs, see ``docs/scaling.md``. From two blocks on, skip
        connections keep the inputs of one block's layers: 2 (k - 1) times the memory of the input, for 2^k cells.

        Args:
            x_BND: The cells, ``[B, N, features]``, contiguous, with N a power of two, and without a gradient to come
                (``x.detach()``); overwritten by the result, and returned.
        """
        self.check_input(x_BND)
        k = self.check_in_place(x_BND, x_BND)
        layers = self.layers(k)
        self.relabel_(x_BND)
        walk(layers, x_BND, in_place_layer(layers, switch_layer(self, x_BND, k)))
        self.relabel_(x_BND)
        return x_BND

    def relabel(self, x_BND: Tensor) -> Tensor:
        """Between the feature order that the network takes and the paper's; its own inverse."""
        return x_BND.roll(self.features // 2, -1) if self.order == "official" else x_BND

    def relabel_(self, x_BND: Tensor) -> None:
        """:meth:`relabel` in the memory of contiguous cells, a chunk at a time."""
        if self.order == "official":
            for chunk in chunks(x_BND, 0):
                chunk.copy_(self.relabel(chunk))

    def check_cells(self, x_BND: Tensor) -> None:
        """Refuse cells that are not of this network's shape or dtype, on whatever device."""
        check_cells(x_BND, self.features, self._weight.dtype)

    def check_input(self, x_BND: Tensor) -> None:
        """Refuse cells that :meth:`forward` cannot take."""
        weight = self._weight
        check_cells(x_BND, self.features, weight.dtype)
        check_device(x_BND, weight.device)

    @property
    def _weight(self) -> Tensor:
        """One of the parameters; to look for the first one in the whole network takes a short call's host too long."""
        return next(self["last"].parameters())

    def check_pairwise(self, how: str) -> None:
        """Refuse to take the pairs of a sequence apart where a unit needs all of them."""
        if not self.pairwise:
            raise ValueError(
                f"a sequence cannot be {how} where the unit normalises over all of it: build the network with "
                "norm='features'"
            )

    def check_in_place(self, x_BND: Tensor, out_BND: Tensor) -> int:
        """The address bits of cells that can be run in place, into ``out_BND``; refuses those that cannot."""
        cells = x_BND.shape[1]
        if cells < 2 or cells & (cells - 1):
            remedy = "call the network itself" if self.pad == "even" else "pad it with zero cells to one"
            raise ValueError(
                f"a sequence of {cells} cells cannot be overwritten or streamed, which needs a power of two: {remedy}"
            )
        if out_BND.requires_grad:
            raise ValueError(
                "these cells have a gradient to come (requires_grad), which would know nothing of their overwriting: "
                "give x.detach(), or call the network itself to learn through it"
            )
        if not x_BND.is_contiguous():
            raise ValueError("the input is overwritten where it lies and must be contiguous: give x.contiguous()")
        if self.sharding is not None:
            raise ValueError("this network was built with sharding=: build it without to overwrite its input")
        self.check_pairwise("overwritten or streamed in parts")
        return cells.bit_length() - 1

    @classmethod
    def from_official(cls, variables: Mapping[str, Any], *, blocks: int | None = None) -> ShuffleExchange:
        """The network whose weights the authors' TensorFlow code saved.

        The released code exchanges the first halves of a pair where the paper exchanges the second: the same network
        with its features relabelled. The weights are relabelled here, and ``order="official"`` does the same to
        inputs and outputs, so that the network computes what the released code computed. The variables of the authors'
        residual shuffle-exchange network, which exchanges nothing, make a network with ``unit="residual"``.

        Args:
            variables: Arrays by TensorFlow variable name, at least those of the network.
            blocks: Beneš blocks, where the names do not tell (weights shared by all blocks).
        """
        from riffle.nn.official import load_network, read_variables

        arguments, state = read_variables(variables, blocks)
        net = cls(**arguments, dtype=next(iter(state.values())).dtype)
        load_network(net, state)
        return net

    def extra_repr(self) -> str:
        norm = f", norm={self.norm!r}" if UNITS[self.unit].norms else ""
        pad = "" if self.pad == "power" else f", pad={self.pad!r}"
        return f"{self.features}, blocks={self.blocks}, sharing={self.sharing!r}, unit={self.unit!r}{norm}{pad}"

    def __getitem__(self, name: str) -> PairUnit:
        """The unit of a name in the schedule."""
        return self.units[name]  # type: ignore[return-value]
