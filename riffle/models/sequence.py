"""Models of sequences of anything: an embedding, a shuffle-exchange network, an output layer.

:class:`Encoder` takes symbols or measured features and answers for each cell or each sequence, :class:`SequenceModel`
is the paper's model of the tasks; :func:`predict_streamed` runs it on a sequence that is longer than a device can hold.
"""

# B = batch, N = length, F = features of an input, D = features per cell, O = outputs, V = symbols, C = classes
# R = all positions of some batches
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.models.base import CellModel, check_symbols
from riffle.nn.hub import HubMixin
from riffle.nn.lengths import can_enter, checked_lengths, concatenate, is_before, lengths_of_mask, masked, pad_to, split
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import check_sizes
from riffle.shuffle import padded_length
from riffle.tasks.task import BLANK

Pool = Literal["first", "mean", "attention"]
EMBEDDING_RANGE = 0.01
EMBEDDING_SCALE = 30.0
"""A task's symbol enters the network as tanh(30 e): vectors that start within ±0.3 and stay within ±1."""
SMALL_TABLE = 64
"""Symbols up to which a product with one-hot rows is the faster lookup in training."""


class Encoder(CellModel, HubMixin, license="mit", tags=["neural-shuffle-exchange"]):
    r"""Map sequences of symbols or of measured features to one answer for each cell, or one for each sequence.

    Args:
        features: Feature maps per cell.
        blocks: Beneš blocks.
        symbols: Size of the alphabet, where the inputs are symbols.
        inputs: Features of an input, where these are numbers, of whatever scale: they are standardised by the mean and
            the deviation of all cells that training has seen, and mapped to ``features``. Cells begin with a standard
            deviation of 1, as those of symbols do.
        outputs: Numbers of an answer: classes, tags, predicted values. None for the cells themselves.
        pool: None for an answer of each cell. For one of each sequence, what it is made of: the "first" cell, which
            sees all others, the "mean" of all, or their mean by learned weights ("attention").
        blank: The symbol whose cell fills rows up, as padded rows of symbols have it; None for cells of zeros.
        **network: See :class:`~riffle.nn.network.ShuffleExchange`.

    Shape:
        - Input: symbols :math:`(B, N)`, or numbers :math:`(B, N, F)` with :math:`F` = ``inputs``; any :math:`N \ge 1`.
        - Output: :math:`(B, N, O)`, or with ``pool`` :math:`(B, O)`, with :math:`O` = ``outputs``.

    Examples::

        >>> tagger = Encoder(16, symbols=100, outputs=5)
        >>> tagger(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 5])
        >>> regressor = Encoder(16, inputs=3, outputs=1, pool="mean")
        >>> regressor(torch.randn(2, 50, 3), lengths=[50, 20]).shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        features: int,
        blocks: int = 1,
        *,
        symbols: int | None = None,
        inputs: int | None = None,
        outputs: int | None = None,
        pool: Pool | None = None,
        blank: int | None = None,
        device: Any = None,
        dtype: Any = None,
        **network: Any,
    ) -> None:
        super().__init__()
        if (symbols is None) == (inputs is None):
            raise ValueError("give one of symbols=, the size of the alphabet, and inputs=, the features of an input")
        sizes = {"symbols": symbols, "inputs": inputs, "outputs": outputs}
        check_sizes(**{what: size for what, size in sizes.items() if size is not None})
        if blank is not None and symbols is None:
            raise ValueError("blank= names one of the symbols, and these are inputs of numbers")
        if blank is not None and blank not in range(symbols or 0):
            raise ValueError(f"blank must be a symbol below {symbols}, got {blank!r}")
        if pool is not None and pool not in get_args(Pool):
            raise ValueError(f"unknown pool {pool!r}; choose one of {', '.join(get_args(Pool))}, or None")
        factory = {"device": device, "dtype": dtype}
        self.pool, self.blank = pool, blank
        self.embedding: nn.Embedding | nn.Linear
        if inputs is None:
            assert symbols is not None
            self.embedding = nn.Embedding(symbols, features, **factory)
        else:
            self.standardise = Standardise(inputs, **factory)
            self.embedding = nn.Linear(inputs, features, **factory)
        self.network = ShuffleExchange(features, blocks, **network, **factory)
        self.output = nn.Identity() if outputs is None else nn.Linear(features, outputs, **factory)
        if pool == "attention":
            self.attention = nn.Linear(features, 1, bias=False, **factory)
        self._reset_own_parameters()

    def _reset_own_parameters(self) -> None:
        if isinstance(self.embedding, nn.Linear):  # cells then have a standard deviation of 1, as those of symbols
            nn.init.normal_(self.embedding.weight, std=self.embedding.in_features**-0.5)
            nn.init.zeros_(self.embedding.bias)
        if isinstance(self.output, nn.Linear):
            nn.init.xavier_uniform_(self.output.weight)
            nn.init.zeros_(self.output.bias)

    def reset_parameters(self) -> None:
        """Draw all parameters as those of a new model, as after ``to_empty`` of one on the device "meta"."""
        for child in self.children():
            if not isinstance(child, nn.Identity):
                child.reset_parameters()  # type: ignore[operator]
        self._reset_own_parameters()

    def forward(
        self,
        x_BN: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """The answers, ``[B, N, O]``, or ``[B, O]`` with ``pool``.

        Args:
            x_BN: The symbols ``[B, N]``, or the inputs ``[B, N, F]``.
            lengths: The length of every row, where they differ. An answer depends on its row alone, and those of cells
                past the end are zeros.
            key_padding_mask: In place of ``lengths``: boolean ``[B, N]``, True for the padding at the end of a row.
        """
        self.check(x_BN)
        inside_BN = None
        if key_padding_mask is not None and lengths is None:
            lengths, key_padding_mask = lengths_of_mask(key_padding_mask, (x_BN.shape[0], x_BN.shape[1])), None
        if lengths is not None:
            if not (torch.compiler.is_exporting() and isinstance(lengths, Tensor)):
                lengths = checked_lengths(lengths, x_BN.shape[0], x_BN.shape[1])
            inside_BN = is_before(torch.as_tensor(lengths, device=x_BN.device).unsqueeze(1), x_BN)
        y_BND = self.network(self.embed(x_BN, inside_BN), lengths, key_padding_mask, padding=self.padding())
        if self.pool is not None:
            return self.output(self.pooled(y_BND, inside_BN))
        scores_BNO = self.output(y_BND)
        return scores_BNO if inside_BN is None else masked(inside_BN, scores_BNO)

    def check(self, x_BN: Tensor) -> None:
        """Refuse what is no batch of symbols, or of inputs."""
        if isinstance(self.embedding, nn.Embedding):
            check_symbols([x_BN])
        elif x_BN.dim() != 3 or x_BN.shape[2] != self.embedding.in_features:
            shape = tuple(x_BN.shape)
            raise ValueError(f"the input must be [batch, length, {self.embedding.in_features}], got shape {shape}")
        elif not can_enter(x_BN, self.embedding.weight.dtype):
            raise ValueError(
                f"the input is {x_BN.dtype}, the model {self.embedding.weight.dtype}: convert one by .to()"
            )

    def cells(self, symbols: int | slice = slice(None)) -> Tensor:
        """The cells of symbols, by default ``[V, D]`` of all."""
        return self.embedding.weight[symbols]

    def padding(self) -> Tensor | None:
        """The cell that fills rows up, None for zeros."""
        return None if self.blank is None else self.cells(self.blank)

    def embed(self, x_BN: Tensor, inside_BN: Tensor | None = None) -> Tensor:
        """The cells of a batch."""
        if isinstance(self.embedding, nn.Linear):
            return self.embedding(self.standardise(x_BN, inside_BN))
        return look_up(self.cells(), x_BN.flatten()).unflatten(0, x_BN.shape)

    def pooled(self, y_BND: Tensor, inside_BN: Tensor | None) -> Tensor:
        """One cell of each row: of outputs, which are zeros past its end."""
        if self.pool == "first":
            return y_BND[:, 0]
        if self.pool == "mean":
            total_BD = y_BND.sum(dim=1)
            return total_BD / (y_BND.shape[1] if inside_BN is None else inside_BN.sum(dim=1, keepdim=True).clamp(min=1))
        score_BN = self.attention(y_BND).squeeze(-1)
        if inside_BN is not None:
            score_BN = score_BN.masked_fill(~inside_BN, torch.finfo(score_BN.dtype).min)
        return (score_BN.softmax(dim=1).unsqueeze(1) @ y_BND).squeeze(1)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        return self.output(self.network(x_BND))


class SequenceModel(Encoder):
    r"""Map a sequence of symbols to scores over the output alphabet at every position: the encoder of the tasks.

    Args:
        symbols: Size of the input alphabet; symbol 0 is the blank that pads a sequence.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks: Beneš blocks.
        **network: See :class:`~riffle.nn.network.ShuffleExchange`.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`. Rows whose ``lengths`` are given run on
          the smallest number of cells that holds them and ``pad`` allows, whatever they are batched with.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> model = SequenceModel(symbols=12, classes=12, features=16)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
    """

    def __init__(self, symbols: int, classes: int, features: int, blocks: int = 1, **network: Any) -> None:
        super().__init__(features, blocks, symbols=symbols, outputs=classes, blank=BLANK, **network)

    def _reset_own_parameters(self) -> None:
        super()._reset_own_parameters()
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)

    def cells(self, symbols: int | slice = slice(None)) -> Tensor:
        """The cells of symbols, by default ``[V, D]`` of all; this tanh costs less than that of all positions."""
        return torch.tanh(EMBEDDING_SCALE * super().cells(symbols))

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Score several batches; embedding, output layer and merged switch layers are one call for all."""
        check_symbols(batches)
        if not batches:
            return []
        sizes = [symbols_BN.numel() for symbols_BN in batches]
        cells_RD = self.embed(concatenate([symbols_BN.flatten() for symbols_BN in batches]))
        xs_BND = [x_RD.view(*x_BN.shape, -1) for x_RD, x_BN in zip(split(cells_RD, sizes), batches, strict=True)]
        # A single batch goes through the network's forward, so that hooks see it.
        if len(batches) == 1:
            ys_BND = [self.network(xs_BND[0], padding=self.padding())]
        else:
            ys_BND = self.network.forward_batches(xs_BND, self.padding())
        scores = self.output(concatenate([y_BND.flatten(0, 1) for y_BND in ys_BND]))
        return [part.view(*x_BN.shape, -1) for part, x_BN in zip(split(scores, sizes), batches, strict=True)]

    @classmethod
    def from_official(cls, variables: Mapping[str, Any], *, blocks: int | None = None) -> SequenceModel:
        """The model whose weights the authors' TensorFlow code saved; see :meth:`ShuffleExchange.from_official`."""
        from riffle.nn.official import load_network, read_model

        arguments, state, network = read_model(variables, blocks)
        model = cls(**arguments, dtype=state["output.weight"].dtype)
        model.load_state_dict(state, strict=False)
        load_network(model.network, network)
        return model


class Standardise(nn.Module):
    """Shift and scale every feature by the mean and the standard deviation of all cells that training has seen.

    A cell's result depends on no other cell of its batch, and is the same in training and in use.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.register_buffer("count", torch.empty((), device=device, dtype=dtype))
        self.register_buffer("mean", torch.empty(features, device=device, dtype=dtype))
        self.register_buffer("variance", torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget the cells that were seen."""
        for buffer, value in ((self.count, 0.0), (self.mean, 0.0), (self.variance, 1.0)):
            nn.init.constant_(buffer, value)

    def forward(self, x_BNF: Tensor, inside_BN: Tensor | None = None) -> Tensor:
        if self.training:
            self.update(x_BNF.detach(), inside_BN)
        smallest = torch.finfo(self.variance.dtype).tiny  # of a feature that is constant
        return (x_BNF - self.mean) * self.variance.clamp(min=smallest).rsqrt()

    def update(self, x_BNF: Tensor, inside_BN: Tensor | None) -> None:
        """Take the cells of a batch into mean and variance."""
        if inside_BN is None:
            inside_BN = x_BNF.new_ones(x_BNF.shape[:2], dtype=torch.bool)
        number = inside_BN.sum().clamp(min=1)
        mean_F = masked(inside_BN, x_BNF).sum(dim=(0, 1)) / number
        variance_F = masked(inside_BN, x_BNF - mean_F).square().sum(dim=(0, 1)) / number
        self.count += number
        share = number / self.count
        between_F = share * (1 - share) * (mean_F - self.mean).square()
        self.variance.lerp_(variance_F, share).add_(between_F)
        self.mean.lerp_(mean_F, share)


def look_up(table_VD: Tensor, symbols_R: Tensor) -> Tensor:
    """The rows of a table; a small one is multiplied in training, since an embedding's gradient sorts the symbols."""
    if table_VD.requires_grad and table_VD.shape[0] <= SMALL_TABLE:
        return F.one_hot(symbols_R.long(), table_VD.shape[0]).to(table_VD.dtype) @ table_VD
    return F.embedding(symbols_R.long(), table_VD)


@torch.no_grad()
def predict_streamed(
    model: nn.Module,
    symbols: list[int],
    *,
    part: int,
    scratch: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, parts: None,
) -> list[int]:
    """The class of every position of a sequence whose cells lie on disk in ``scratch``, the system's by default.

    ``part`` of them, a power of two, are on the model's device at once, see :func:`riffle.parallel.stream`.
    """
    from riffle.parallel.streaming import memory_mapped, part_bits, stream

    if not isinstance(model, SequenceModel):
        raise ValueError(f"only shuffle-exchange networks can be streamed, this is a {type(model).__name__}")
    part_bits(part)  # before the cells are written
    weight = model.embedding.weight
    symbols_BN = torch.tensor([symbols or [BLANK]])
    length = symbols_BN.shape[1]
    symbols_BN = pad_to(symbols_BN, padded_length(length, model.network.pad))
    like = torch.empty(*symbols_BN.shape, model.network.features, dtype=weight.dtype, device="meta")
    state_BND = memory_mapped(like, scratch)
    table = model.cells()
    for cells_BND, inputs_BN in zip(state_BND.split(part, 1), symbols_BN.split(part, 1), strict=True):
        cells_BND.copy_(F.embedding(inputs_BN.to(weight.device), table))
    stream(model.network, state_BND, part=part, scratch=scratch or Path(gettempdir()), on_progress=on_progress)
    classes: list[int] = []
    for cells_BND in state_BND.split(part, 1):
        classes += model.output(cells_BND.to(weight.device)).argmax(-1)[0].tolist()
    return classes[:length]
