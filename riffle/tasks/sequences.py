"""Rows of plain symbols or of key, value pairs: copy, reverse, duplicate, pick, permute, sort, rotate."""

# B = batch, N = width of the padded rows, P = N // 2 pairs
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.quantities import whole_number
from riffle.tasks.families import BITS, SYMBOL_SPLITS, DrawValues, Split, value_families
from riffle.tasks.rows import columns, crop, randint, randint_below, row_lengths, sort_rows, take
from riffle.tasks.structure import structured_values
from riffle.tasks.task import (
    BLANK,
    SymbolTask,
    Task,
    parse_number,
    parse_symbol,
    render_chars,
    render_symbols,
    tokens,
    trim,
)


class PairTask(SymbolTask):
    """A task on key, value pairs, typed ``3:9 1:4``; an input of length ``l`` holds ``l // 2``, each in two cells."""

    example: ClassVar[tuple[str, ...]] = ("3:9", "1:4", "2:2")
    syntax = "type pairs key:value separated by spaces, for example: 3:9 1:4 2:2"

    def filled(self, lengths_B: Tensor) -> Tensor:
        return lengths_B // 2 * 2

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        lengths_B, width = row_lengths(inputs_BN), inputs_BN.shape[1]
        pairs_B1, values = (lengths_B[:, None] + 1) // 2, self.symbols - 1
        keys_BP, values_BP = (structured_values(values, pairs_B1, (width + 1) // 2, generator) for _ in range(2))
        return crop(torch.stack([keys_BP, values_BP], dim=2).flatten(1)[:, :width] + 1, lengths_B)

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Other keys; the values stay."""
        column_BN = columns(inputs_BN).expand_as(inputs_BN)
        keys_BN = take(draw(self.symbols - 1, (row_lengths(inputs_BN)[:, None] + 1) // 2), column_BN // 2) + 1
        return torch.where((column_BN % 2 == 0) & (inputs_BN != BLANK), keys_BN, inputs_BN)

    def parse_pair(self, token: str) -> list[int]:
        """A pair that was typed as ``key:value``."""
        parts = token.split(":")
        if len(parts) != 2:
            raise ValueError(f"{token!r} is not a pair key:value; {self.syntax}")
        return [parse_symbol(part, self.symbols - 1, self.syntax) for part in parts]

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = [symbol for token in tokens(words) for symbol in self.parse_pair(token)]
        if not symbols:
            raise ValueError(f"there is no pair in the input; {self.syntax}")
        return symbols

    def render(self, output: list[int]) -> str:
        shown = render_symbols(output).split()
        return " ".join(":".join(shown[i : i + 2]) for i in range(0, len(shown), 2))


class Identity(SymbolTask):
    """Copy the symbols."""

    name = "id"
    summary = "Copy the symbols."

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return inputs_BN.clone()

    def solve(self, symbols: list[int]) -> list[int]:
        return list(symbols)


class Reverse(SymbolTask):
    """Give the symbols in reverse order."""

    name = "reverse"
    summary = "Reverse the symbols."
    moves = True
    splits = SYMBOL_SPLITS

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        return crop(take(inputs_BN, lengths_B[:, None] - 1 - columns(inputs_BN)), lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[::-1]


class Duplicate(SymbolTask):
    """Write the symbols twice in a row.

    An input of length ``l`` holds ``l // 2`` symbols, and the blanks after them leave room for the copy. Where there is
    less room, the answer is cropped.
    """

    name = "duplicate"
    summary = "Write the symbols twice."
    splits = SYMBOL_SPLITS
    example = ("7", "3", "9")
    reach = 2
    moves = True
    settings = ("train.blank_weight=0.1",)

    def filled(self, lengths_B: Tensor) -> Tensor:
        return lengths_B // 2

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        return crop(take(inputs_BN, columns(inputs_BN) % lengths_B[:, None].clamp(min=1)), 2 * lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        return trim(symbols) * 2

    def fill(self, symbols: list[int], length: int) -> list[int]:
        """More symbols after those to duplicate; :meth:`unfill` leaves them and their copies out of the answer."""
        row, half = trim(symbols), length // 2
        return row + [1] * (half - len(row)) + [BLANK] * half if 0 < len(row) <= half else symbols

    def unfill(self, output: list[int], symbols: list[int], filled: list[int]) -> list[int]:
        length, copy = len(trim(symbols)), len(trim(filled))
        return output if copy == length else output[:length] + output[copy : copy + length]

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = super().parse(words)
        return symbols + [BLANK] * len(symbols)


class ReversePairs(PairTask):
    """Give the pairs in reverse order, each pair as it is."""

    name = "rev2"
    summary = "Reverse the order of key, value pairs."
    moves = True

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B, column_N = row_lengths(inputs_BN), columns(inputs_BN)
        return crop(take(inputs_BN, lengths_B[:, None] - 2 - column_N + 2 * (column_N % 2)), lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        pairs = [symbols[i : i + 2] for i in range(0, len(symbols), 2)]
        return [symbol for pair in reversed(pairs) for symbol in pair]


class Left(SymbolTask):
    """Give the first symbol."""

    name = "left"
    summary = "Give the first symbol."

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return torch.where(columns(inputs_BN) == 0, inputs_BN, BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[:1]


class Right(SymbolTask):
    """Give the last symbol, in the first cell."""

    name = "right"
    summary = "Give the last symbol."

    def answer(self, inputs_BN: Tensor) -> Tensor:
        last_B1 = take(inputs_BN, row_lengths(inputs_BN)[:, None] - 1)
        return torch.where(columns(inputs_BN) == 0, last_B1, BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[-1:]


class BitReversal(SymbolTask):
    """Cell ``i`` gets the symbol of the cell whose number has the bits of ``i`` in reverse order.

    ``n`` symbols have numbers of ``(n - 1).bit_length()`` bits; where the reversed number is ``n`` or more, it is taken
    modulo ``n``. A permutation when ``n`` is a power of two, otherwise some symbols come twice and some not at all.
    """

    name = "bit-reversal"
    summary = "Move every symbol to the cell with the bit-reversed number."
    example = ("1", "2", "3", "4", "5", "6", "7", "8")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B1, column_N = row_lengths(inputs_BN)[:, None], columns(inputs_BN)
        source_BN = torch.zeros_like(inputs_BN)
        for bit in range((inputs_BN.shape[1] - 1).bit_length()):
            counts_B1 = (lengths_B1 - 1) >> bit > 0  # the row's column numbers have this bit
            source_BN = torch.where(counts_B1, 2 * source_BN + (column_N >> bit) % 2, source_BN)
        return crop(take(inputs_BN, source_BN % lengths_B1.clamp(min=1)), lengths_B1[:, 0])

    def solve(self, symbols: list[int]) -> list[int]:
        bits = (len(symbols) - 1).bit_length()
        reversed_numbers = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(len(symbols))]
        return [symbols[number % len(symbols)] for number in reversed_numbers]


class Sort(SymbolTask):
    """Put the symbols in ascending order."""

    name = "sort"
    summary = "Sort the symbols in ascending order."
    settings = (
        *("model.features=192", "model.blocks=1", "model.unit=swap-gate"),
        *("data.bins=8,16,32,64", "data.batch=64", "data.full=0.5", "data.shorter=0.2"),
        *("data.above=0", "data.offset=0"),
        *("data.structure=0.6", "train.steps=10000", "train.optimizer=adamw", "train.learning_rate=0.0025"),
        *("train.schedule=linear", "train.weight_decay=0.5", "train.keep=last"),
    )
    splits = SYMBOL_SPLITS

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return sort_rows(inputs_BN)

    def solve(self, symbols: list[int]) -> list[int]:
        return sorted(symbols)


class KeyValueSort(PairTask):
    """Put pairs in ascending order of their keys; pairs with equal keys stay in the order they came in."""

    name = "kv-sort"
    summary = "Sort key, value pairs by their key."

    def answer(self, inputs_BN: Tensor) -> Tensor:
        width = inputs_BN.shape[1]
        pairs_BP2 = inputs_BN[:, : width // 2 * 2].unflatten(1, (width // 2, 2))
        keys_BP = torch.where(pairs_BP2[:, :, 0] == BLANK, self.symbols, pairs_BP2[:, :, 0])
        order_BP = keys_BP.sort(dim=1, stable=True).indices
        sorted_BP2 = pairs_BP2.gather(1, order_BP[:, :, None].expand_as(pairs_BP2))
        return F.pad(sorted_BP2.flatten(1), (0, width % 2))

    def solve(self, symbols: list[int]) -> list[int]:
        pairs = list(zip(symbols[::2], symbols[1::2], strict=True))
        return [symbol for pair in sorted(pairs, key=lambda pair: pair[0]) for symbol in pair]


NO_SHIFT, SHIFT = 3, 4


class Rotate(Task):
    """Rotate a binary number of ``n`` bits to the left by 0..n-1 places.

    An input of length ``l`` holds ``n = l // 2`` bits, the lowest first, bit ``d`` as symbol ``d + 1``; then ``n - 1``
    symbols that give the amount in unary, :data:`SHIFT` for every place and :data:`NO_SHIFT` for the others. The answer
    has ``n`` bits. People type ``10110 2``, highest bit first, and read ``11010``.
    """

    name = "rotate"
    summary = "Rotate a binary number to the left by an amount given in unary."
    example = ("10110", "2")
    moves = True
    settings = ("train.steps=18000", "train.average=0.9997")
    syntax = "type a binary number and how many places to rotate it to the left, for example: 10110 2"
    symbols: int = 5
    classes: int = 3

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        bits_B = lengths_B // 2
        amount_B1 = randint_below(bits_B, generator)[:, None]
        rows_BN = randint(1, 3, (lengths_B.shape[0], width), generator)
        after_BN = columns(rows_BN) - bits_B[:, None]
        unary_BN = torch.where(after_BN < amount_B1, SHIFT, NO_SHIFT)
        return crop(torch.where(after_BN < 0, rows_BN, unary_BN), 2 * bits_B - 1)

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Other bits; the amount stays."""
        is_bit_BN = (inputs_BN != BLANK) & (inputs_BN < NO_SHIFT)
        return torch.where(is_bit_BN, draw(2, is_bit_BN.sum(dim=1, keepdim=True)) + 1, inputs_BN)

    def families(self) -> dict[str, Split]:
        def amount(share: float, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """Rotated by a share of the largest amount."""
            lengths_B1, column_N = row_lengths(rows_BN)[:, None], columns(rows_BN)
            shifts_B1 = ((lengths_B1 - 1) // 2 * share).long()
            unary_BN = torch.where(column_N - (lengths_B1 + 1) // 2 < shifts_B1, SHIFT, NO_SHIFT)
            return torch.where(rows_BN >= NO_SHIFT, unary_BN, rows_BN)

        amounts = {"by-none": partial(amount, 0.0), "by-half": partial(amount, 0.5), "by-most": partial(amount, 1.0)}
        return value_families(self.replace_values, BITS) | amounts

    def answer(self, inputs_BN: Tensor) -> Tensor:
        bits_B = (row_lengths(inputs_BN) + 1) // 2
        amount_B1 = (inputs_BN == SHIFT).sum(dim=1, keepdim=True)
        source_BN = (columns(inputs_BN) - amount_B1) % bits_B[:, None].clamp(min=1)
        return crop(take(inputs_BN, source_BN), bits_B)

    def solve(self, symbols: list[int]) -> list[int]:
        bits = (len(symbols) + 1) // 2
        amount = symbols.count(SHIFT)
        return symbols[bits - amount : bits] + symbols[: bits - amount]

    def parse(self, words: Sequence[str]) -> list[int]:
        parts = tokens(words)
        if len(parts) != 2:
            raise ValueError(f"a number and an amount are needed, got {' '.join(words)!r}; {self.syntax}")
        digits = parse_number(parts[0], 2, self.syntax)
        amount = whole_number(parts[1])
        if amount is None or not 0 <= amount < len(digits):
            raise ValueError(f"amount {parts[1]} is outside 0..{len(digits) - 1}; {self.syntax}")
        return [digit + 1 for digit in digits] + [SHIFT] * amount + [NO_SHIFT] * (len(digits) - 1 - amount)

    def write(self, symbols: list[int]) -> str:
        return f"{self.render(symbols[: (len(symbols) + 1) // 2])} {symbols.count(SHIFT)}"

    def render(self, output: list[int]) -> str:
        return render_chars(output, "01")[::-1]
