"""Nested brackets: whether they are balanced, and how open ones close.

Bracket kind ``k`` (from 0) opens with symbol ``2 * k + 1`` and closes with ``2 * k + 2``. The height of a cell is how
many brackets are open before it. The level of a bracket is how many are open inside it, itself included: the height
after the one that opens and before the one that closes.
"""

# B = batch, N = width of the padded rows, M = N + 1 heights before and after every cell
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.families import Split
from riffle.tasks.rows import bernoulli, columns, crop, randint, randint_below, row_lengths, shift_right, take
from riffle.tasks.structure import structured_values
from riffle.tasks.task import BLANK, Task, render_chars, render_symbols


def nested_heights(opens_BN: Tensor) -> Tensor:
    """Heights of random nesting, int64 ``[B, M]``.

    At every cell a bracket opens, or the innermost open bracket closes; where none is open, one opens. So heights are
    a walk that is reflected at 0. The walk over some cells maps height ``h`` to
    ``max(h + total, odd if h is odd else even)``: it moves by ``total`` unless it meets 0, where it joins the walk that
    started at the lowest height of the same parity, 0 or 1. A composition of such maps is such a map, so a scan that
    doubles its reach gives all heights in a logarithmic number of steps.
    """
    total_BN = torch.where(opens_BN, 1, -1)
    even_BN, odd_BN = torch.ones_like(total_BN), 1 + total_BN
    reach = 1
    while reach < opens_BN.shape[1]:
        from_0_BN, from_1_BN = shift_right(even_BN, reach, fill=0), shift_right(odd_BN, reach, fill=1)
        even_BN, odd_BN = (
            torch.maximum(height_BN + total_BN, torch.where(height_BN % 2 == 1, odd_BN, even_BN))
            for height_BN in (from_0_BN, from_1_BN)
        )
        total_BN = shift_right(total_BN, reach) + total_BN
        reach *= 2
    return F.pad(even_BN, (1, 0))


def previous_at_level(levels_BN: Tensor) -> Tensor:
    """The column of the bracket before this one on the same level, -1 if there is none, int64 ``[B, N]``."""
    sorted_BN, order_BN = levels_BN.sort(dim=1, stable=True)
    same_BN = (sorted_BN == shift_right(sorted_BN)) & (columns(levels_BN) > 0)
    return torch.zeros_like(order_BN).scatter(1, order_BN, torch.where(same_BN, shift_right(order_BN), -1))


def brackets_of(heights_BM: Tensor, lengths_B: Tensor, kind_BN: Tensor) -> Tensor:
    """Brackets with the given heights; a pair has the kind given where it opens."""
    before_BN, after_BN = heights_BM[:, :-1], heights_BM[:, 1:]
    closes_BN = after_BN < before_BN
    opener_BN = previous_at_level(torch.maximum(before_BN, after_BN))
    kind_BN = torch.where(closes_BN, take(kind_BN, opener_BN), kind_BN)
    return crop(2 * kind_BN + 1 + closes_BN, lengths_B)


def heights_after(rows_BN: Tensor) -> Tensor:
    """How many more brackets opened than closed, up to and including every cell, int64 ``[B, N]``."""
    return torch.where(rows_BN == BLANK, 0, torch.where(rows_BN % 2 == 1, 1, -1)).cumsum(dim=1)


def balanced(rows_BN: Tensor) -> Tensor:
    """Whether every bracket of the row closes one of its own kind and none is left open, bool ``[B]``."""
    after_BN = heights_after(rows_BN)
    closes_BN = (rows_BN != BLANK) & (rows_BN % 2 == 0)
    # Where heights stay at 0 or more and end at 0, the brackets of one level open and close alternately.
    opener_BN = previous_at_level(after_BN + closes_BN)
    fits_BN = ~closes_BN | ((opener_BN >= 0) & (take(rows_BN, opener_BN) == rows_BN - 1))
    return (after_BN >= 0).all(dim=1) & (after_BN[:, -1] == 0) & fits_BN.all(dim=1)


def match(symbols: Sequence[int]) -> tuple[list[int], int | None]:
    """The brackets that are left open, and the first column that closes nothing, None if there is none."""
    open_brackets: list[int] = []
    for column, symbol in enumerate(symbols):
        if symbol % 2:
            open_brackets.append(symbol)
        elif not open_brackets or open_brackets.pop() != symbol - 1:
            return open_brackets, column
    return open_brackets, None


Heights = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Heights of nested brackets from the columns ``[1, M]``, the even lengths ``[B, 1]`` and a generator."""


def hills(size_B1: Tensor, column_1M: Tensor) -> Tensor:
    """Up ``size`` steps, down as many, and again."""
    return size_B1 - (column_1M % (2 * size_B1) - size_B1).abs()


def plateau(height_B1: Tensor, column_1M: Tensor) -> Tensor:
    """Up ``height`` steps, then up and down by turns."""
    return torch.where(column_1M < height_B1, column_1M, height_B1 + (column_1M - height_B1) % 2)


SHAPES: dict[str, Heights] = {
    "nested": lambda column_1M, even_B1, generator: hills((even_B1 // 2).clamp(min=1), column_1M),
    "flat": lambda column_1M, even_B1, generator: plateau(0 * even_B1, column_1M),
    "hills": lambda column_1M, even_B1, generator: hills(1 + randint_below(even_B1 // 4, generator), column_1M),
    "plateau": lambda column_1M, even_B1, generator: plateau(even_B1 // 4, column_1M),
    "steps": lambda column_1M, even_B1, generator: column_1M // 3 + column_1M % 3 + 0 * even_B1,  # up, up, down
}


BRACKETS = "()[]{}<>"
UNBALANCED, BALANCED = 1, 2


class BracketTask(Task):
    """A task on rows of brackets of ``(symbols - 1) // 2`` kinds, typed as they are: ``([])``."""

    symbols: int = 5
    classes: int = 5

    @property
    def kinds(self) -> int:
        """How many kinds of brackets there are."""
        return (self.symbols - 1) // 2

    @abstractmethod
    def nest(self, lengths_B: Tensor, opens_BN: Tensor, kind_BN: Tensor, generator: torch.Generator) -> Tensor:
        """Inputs that open a bracket where ``opens_BN`` says so and the length allows it, of the kinds given."""

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        # Each kind of bracket opens, or the innermost open bracket closes, all with the same probability.
        shape = (lengths_B.shape[0], width)
        opens_BN = bernoulli(self.kinds / (self.kinds + 1), shape, generator)
        return self.nest(lengths_B, opens_BN, randint(0, self.kinds, shape, generator), generator)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        lengths_B, width = row_lengths(inputs_BN), inputs_BN.shape[1]
        opens_BN, kind_BN = (structured_values(high, lengths_B[:, None], width, generator) for high in (2, self.kinds))
        return self.nest(lengths_B, opens_BN > 0, kind_BN, generator)

    @property
    def alphabet(self) -> str:
        """The brackets in the order of their symbols."""
        return BRACKETS[: 2 * self.kinds]

    def parse(self, words: Sequence[str]) -> list[int]:
        text = "".join("".join(words).split())
        if not text:
            raise ValueError(f"there is no bracket in the input; {self.syntax}")
        for char in text:
            if char not in self.alphabet:
                raise ValueError(f"{char!r} in {text!r} is not one of the brackets {self.alphabet}; {self.syntax}")
        return [self.alphabet.index(char) + 1 for char in text]

    def write(self, symbols: list[int]) -> str:
        return render_chars(symbols, self.alphabet)


class Dyck(BracketTask):
    """Say whether brackets are balanced: :data:`BALANCED` or :data:`UNBALANCED` in the first cell.

    An input of length ``l`` has ``l`` brackets if ``l`` is even and ``l - 1`` if it is odd, balanced in half of the
    cases; in the other half some brackets of a balanced row are replaced. An input of length 1 is a single bracket.
    People type ``([])`` and read ``balanced`` or ``not balanced``.
    """

    name = "dyck"
    summary = "Say whether nested brackets are balanced."
    example = ("([()])[]",)
    syntax = "type brackets, for example: '([()])[]'"
    classes: int = 3

    def nest(self, lengths_B: Tensor, opens_BN: Tensor, kind_BN: Tensor, generator: torch.Generator) -> Tensor:
        batch = lengths_B.shape[0]
        even_B = lengths_B // 2 * 2
        heights_BM = nested_heights(opens_BN)
        heights_BM = torch.minimum(heights_BM, even_B[:, None] - columns(heights_BM))  # the rest closes what is open
        rows_BN = brackets_of(heights_BM, even_B, kind_BN)
        corrupt_B = bernoulli(0.5, (batch,), generator)
        for _ in range(4):  # one attempt in ten fails; then the first bracket is replaced
            corrupted_BN = self.corrupt(rows_BN, even_B, generator)
            rows_BN = torch.where((corrupt_B & balanced(rows_BN))[:, None], corrupted_BN, rows_BN)
        first_N = columns(rows_BN) == 0
        rows_BN = torch.where((corrupt_B & balanced(rows_BN))[:, None] & first_N, 2, rows_BN)  # closes nothing
        single_BN = torch.where(first_N, randint(1, self.symbols, (batch, 1), generator), BLANK)
        return torch.where(lengths_B[:, None] == 1, single_BN, rows_BN)

    def families(self) -> dict[str, Split]:
        def judged(shape: Heights, defect: str, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """Rows of one shape; every second has one bracket of another kind, or one turned round."""
            lengths_B, column_1M = row_lengths(rows_BN), columns(F.pad(rows_BN, (0, 1)))[None]
            even_B1 = (lengths_B // 2 * 2)[:, None]
            heights_BM = torch.minimum(shape(column_1M, even_B1, generator), even_B1 - column_1M)
            new_BN = brackets_of(heights_BM, even_B1[:, 0], randint(0, self.kinds, (*rows_BN.shape,), generator))
            every_second_B1 = torch.arange(len(rows_BN), device=rows_BN.device)[:, None] % 2 == 0
            here_BN = every_second_B1 & (columns(rows_BN) == randint_below(even_B1, generator)) & (new_BN != BLANK)
            other_BN = (new_BN + 1) % (2 * self.kinds) if defect == "other-kind" else (new_BN - 1) ^ 1
            new_BN = torch.where(here_BN, other_BN + 1, new_BN)
            return torch.where(lengths_B[:, None] > 1, new_BN, rows_BN)

        pairs = product(SHAPES.items(), ("other-kind", "turned"))
        return {f"{name}-{defect}": partial(judged, shape, defect) for (name, shape), defect in pairs}

    def corrupt(self, rows_BN: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Replace 1 to 4 brackets by random ones; the row may stay balanced by chance."""
        count_B1 = randint(1, 5, (rows_BN.shape[0], 1), generator)
        for i in range(4):
            column_B1 = randint_below(lengths_B, generator)[:, None]
            other_B1 = randint(1, self.symbols, (rows_BN.shape[0], 1), generator)
            rows_BN = torch.where((i < count_B1) & (columns(rows_BN) == column_B1), other_B1, rows_BN)
        return rows_BN

    def answer(self, inputs_BN: Tensor) -> Tensor:
        verdict_B1 = torch.where(balanced(inputs_BN), BALANCED, UNBALANCED)[:, None]
        return crop(verdict_B1.expand_as(inputs_BN), row_lengths(inputs_BN).clamp(max=1))

    def solve(self, symbols: list[int]) -> list[int]:
        return [BALANCED if match(symbols) == ([], None) else UNBALANCED] if symbols else []

    def render(self, output: list[int]) -> str:
        shown = render_symbols(output)
        return {str(BALANCED): "balanced", str(UNBALANCED): "not balanced"}.get(shown, shown)

    def pieces(self, rendered: str) -> list[str]:
        return [rendered]


class DyckContinue(BracketTask):
    """Close the brackets that are still open, the innermost first.

    An input of length ``l`` has ``l`` brackets, the last of which opens. People type ``([()[`` and read ``]])``.
    """

    name = "dyck-continue"
    summary = "Close the brackets that are still open."
    example = ("([()[",)
    syntax = "type brackets of which some are still open, for example: '([()['"

    def nest(self, lengths_B: Tensor, opens_BN: Tensor, kind_BN: Tensor, generator: torch.Generator) -> Tensor:
        heights_BM = nested_heights(opens_BN)
        last_B1 = lengths_B[:, None] - 1
        opened_B1 = take(heights_BM, last_B1) + 1
        heights_BM = torch.where(columns(heights_BM) > last_B1, opened_B1, heights_BM)
        return brackets_of(heights_BM, lengths_B, kind_BN)

    def families(self) -> dict[str, Split]:
        def opened(shape: Heights, kinds: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """Rows of one shape; the last bracket opens."""
            lengths_B, column_1M = row_lengths(rows_BN), columns(F.pad(rows_BN, (0, 1)))[None]
            heights_BM = shape(column_1M, (lengths_B // 2 * 2)[:, None], generator).clamp(min=0)
            last_B1 = (lengths_B[:, None] - 1).clamp(min=0)
            heights_BM = torch.where(column_1M > last_B1, take(heights_BM, last_B1) + 1, heights_BM)
            return brackets_of(heights_BM, lengths_B, randint(0, kinds, (*rows_BN.shape,), generator))

        pairs = product(SHAPES.items(), (("", self.kinds), ("-of-one-kind", 1)))
        return {f"{name}{of}": partial(opened, shape, kinds) for (name, shape), (of, kinds) in pairs}

    def answer(self, inputs_BN: Tensor) -> Tensor:
        width = inputs_BN.shape[1]
        after_BN = heights_after(inputs_BN)
        level_BN = torch.where(inputs_BN % 2 == 1, after_BN, 0).clamp(0, width)
        latest_BM = torch.zeros_like(inputs_BN[:, :1]).repeat(1, width + 1)  # the last bracket that opens a level
        latest_BM = latest_BM.scatter_reduce(1, level_BN, columns(inputs_BN).expand_as(level_BN), "amax")
        open_B1 = after_BN[:, -1:]
        opener_BN = take(latest_BM, open_B1 - columns(inputs_BN))
        return crop(take(inputs_BN, opener_BN) + 1, open_B1[:, 0])

    def solve(self, symbols: list[int]) -> list[int]:
        return [symbol + 1 for symbol in reversed(match(symbols)[0])]

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = super().parse(words)
        _, column = match(symbols)
        if column is not None:
            text = self.write(symbols)
            raise ValueError(f"{text[column]!r} in {text!r} closes nothing; {self.syntax}")
        return symbols

    def render(self, output: list[int]) -> str:
        return render_chars(output, self.alphabet)

    def label(self, symbol: int) -> str:
        return self.render([symbol]) or super().label(symbol)
