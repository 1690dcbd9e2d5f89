"""What a task is: inputs to draw, their answers, and how people type and read them; helpers to parse and render text.

Parsing raises ``ValueError`` with what is accepted; rendering shows any output, right or wrong, and never raises.
"""

# B = batch, N = width of the padded rows; symbol 0 is the blank everywhere
from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, dataclass_transform

import torch
from torch import Tensor

from riffle.quantities import whole_number
from riffle.tasks.families import DrawValues, Split, value_families
from riffle.tasks.rows import BLANK, crop, randint, row_lengths
from riffle.tasks.structure import structured_values


class Batch(NamedTuple):
    """Examples of one task, blank-padded to a common width."""

    inputs: Tensor
    """Symbols the network reads, int64 ``[B, N]``."""
    targets: Tensor
    """Symbols it should answer, int64 ``[B, N]``."""


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Task(ABC):
    """One algorithmic task; every subclass is made a frozen dataclass.

    A task says four things: how to draw inputs (:meth:`draw`), the vectorised answer (:meth:`answer`), an independent
    plain-Python answer that checks it (:meth:`solve`), and how people type inputs (:meth:`parse`, :meth:`write`) and
    read outputs (:meth:`render`). ``draw`` and ``answer`` run on the generator's device without synchronising, so that
    they can be part of a captured training step: no ``.item()``, no data-dependent shapes, no loop over examples.
    """

    name: ClassVar[str]
    """The name on the command line and in :data:`riffle.tasks.TASKS`."""
    summary: ClassVar[str]
    """One sentence for the list of tasks."""
    example: ClassVar[tuple[str, ...]]
    """What a person could type after ``riffle solve NAME``."""
    syntax: ClassVar[str]
    """What :meth:`parse` accepts, in one clause; its error messages end with it."""
    reach: ClassVar[int] = 1
    """How many times as many cells as its input an answer can take."""
    moves: ClassVar[bool] = False
    """Whether symbols move unchanged by a distance that depends on the input, as in a reversal; recipes ask for it."""
    carries: ClassVar[bool] = False
    """Whether digits of equal rank are added and carries pass on; recipes ask for it."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Fields that the recipe ``default`` sets otherwise for this task, as ``("train.steps=9000",)``."""
    right_aligned: ClassVar[bool] = False
    """Whether rendered outputs are compared from their last character on, as numbers are."""
    splits: ClassVar[Mapping[str, Split]] = {}
    """Worst cases, by name; ``riffle eval`` tests them."""
    symbols: int
    """Size of the input alphabet, blank included."""
    classes: int
    """Size of the output alphabet, blank included."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    @abstractmethod
    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        """Draw one input per entry of ``lengths_B`` (each 1 to ``width``), blank-padded to int64 ``[B, width]``.

        Row ``i`` is an input of length ``lengths_B[i]`` in the sense of the paper's experiments: it fills at most that
        many cells, often fewer (an addition has an odd number of them), and never more than ``width``.
        """

    @abstractmethod
    def answer(self, inputs_BN: Tensor) -> Tensor:
        """The right output for every row, int64 ``[B, N]``; it depends on the row's symbols, not on its padding."""

    @abstractmethod
    def solve(self, symbols: list[int]) -> list[int]:
        """The right output for one input, both without trailing blanks: plain Python, independent of :meth:`answer`."""

    @abstractmethod
    def parse(self, words: Sequence[str]) -> list[int]:
        """The input a person typed, as symbols; raises ``ValueError`` saying what is accepted."""

    @abstractmethod
    def render(self, output: list[int]) -> str:
        """An output (any symbols of the output alphabet, right or wrong) as a person would write it."""

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Inputs with other values where any value may stand; ``draw(V, lengths_B1)`` gives values 0..V-1, ``[B, N]``.

        A task without such cells overrides :meth:`restructure` and :meth:`families` instead.
        """
        raise NotImplementedError(f"task {self.name!r} needs replace_values, or restructure and families of its own")

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        """Replace drawn inputs by others of the same lengths and random structure, :mod:`riffle.tasks.structure`."""
        width = inputs_BN.shape[1]
        return self.replace_values(
            inputs_BN, lambda values, lengths_B1: structured_values(values, lengths_B1, width, generator)
        )

    def families(self) -> dict[str, Split]:
        """Families of structured inputs, by name; ``riffle eval --families`` tests them, training draws none as such.

        >>> from riffle.tasks import TASKS
        >>> list(TASKS["sort"].families())[:3]
        ['two-values', 'rare-values', 'one-odd']
        """
        return value_families(self.replace_values)

    def write(self, symbols: list[int]) -> str:
        """What a person would type for these symbols, the inverse of :meth:`parse`; by default what is rendered."""
        return self.render(symbols)

    def fill(self, symbols: list[int], length: int) -> list[int]:
        """An input of ``length`` cells whose answer contains that to ``symbols``: numbers get leading zeros.

        Networks run at powers of two, and one that was trained on inputs that fill it may be wrong where blanks follow.
        :meth:`unfill` recovers the answer. By default the input stays as it is.
        """
        return symbols

    def unfill(self, output: list[int], symbols: list[int], filled: list[int]) -> list[int]:
        """The answer to ``symbols`` from that to ``filled``, which :meth:`fill` made of them."""
        return output

    def label(self, symbol: int) -> str:
        """One symbol of an input or output in a drawing, by default its number; a blank is a dot."""
        return str(symbol) if symbol != BLANK else "·"

    def pieces(self, rendered: str) -> list[str]:
        """The pieces of a rendered output that are compared one by one, by default its characters."""
        return list(rendered.replace(" ", SHOW_SPACE))

    def sample(self, batch: int, length: int, *, generator: torch.Generator, split: str = "uniform") -> Batch:
        """Draw ``batch`` examples of the given length: uniform, structured, or from one of :attr:`splits`."""
        inputs_BN = self.sample_inputs(batch, length, generator=generator, split=split)
        return Batch(inputs_BN, self.answer(inputs_BN))

    def sample_inputs(self, batch: int, length: int, *, generator: torch.Generator, split: str = "uniform") -> Tensor:
        """The inputs of :meth:`sample`, int64 ``[B, length]``."""
        known = ["uniform", "structured", *self.splits]
        if split not in known:
            raise ValueError(f"task {self.name!r} has no split {split!r}; it has {', '.join(known)}")
        lengths_B = torch.full((batch,), length, dtype=torch.int64, device=generator.device)
        inputs_BN = self.draw(lengths_B, length, generator=generator)
        if split == "structured":
            inputs_BN = self.restructure(inputs_BN, generator)
        elif split != "uniform":
            inputs_BN = self.splits[split](inputs_BN, generator)
        return inputs_BN


DIGITS = "0123456789"
SHOW_BLANK, SHOW_UNKNOWN, SHOW_SPACE = "_", "?", "␣"


def tokens(words: Sequence[str]) -> list[str]:
    """What was typed, split at white space and commas: ``["7 3,9", "1"]`` gives ``["7", "3", "9", "1"]``."""
    return re.findall(r"[^\s,]+", " ".join(words))


def parse_symbol(token: str, highest: int, syntax: str) -> int:
    """One symbol 1..highest."""
    symbol = whole_number(token)
    if symbol is None:
        raise ValueError(f"{token!r} is not a symbol: a symbol is a whole number 1..{highest}; {syntax}")
    if not 1 <= symbol <= highest:
        raise ValueError(f"symbol {token} is outside 1..{highest}; {syntax}")
    return symbol


def parse_number(text: str, base: int, syntax: str) -> list[int]:
    """The digits, lowest first, of a number that is typed with the highest first."""
    for char in text:
        if char not in DIGITS[:base]:
            raise ValueError(f"{char!r} in {text!r} is not a digit 0..{base - 1}; {syntax}")
    return [int(char) for char in reversed(text)]


def parse_two_numbers(words: Sequence[str], base: int, signs: str, syntax: str) -> tuple[list[int], list[int]]:
    """Two numbers, apart or joined by one of ``signs``: ``["10", "11"]``, ``["10+11"]``, ``["10", "+", "11"]``."""
    text = " ".join(words)
    used = [sign for sign in signs if sign in text]
    parts = [part.strip() for part in text.split(used[0])] if used else tokens(words)
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"two numbers are needed, got {text!r}; {syntax}")
    return parse_number(parts[0], base, syntax), parse_number(parts[1], base, syntax)


def trim(symbols: Sequence[int]) -> list[int]:
    """The symbols without trailing blanks."""
    length = len(symbols)
    while length and symbols[length - 1] == BLANK:
        length -= 1
    return list(symbols[:length])


def render_symbols(output: Sequence[int]) -> str:
    """``[1, 3, 0, 9, 0]`` as ``"1 3 _ 9"``."""
    return " ".join(str(symbol) if symbol else SHOW_BLANK for symbol in trim(output))


def render_chars(output: Sequence[int], alphabet: str) -> str:
    """One character per symbol: ``alphabet[symbol - 1]``, ``_`` for a blank inside, ``?`` for a symbol beyond it."""
    shown = SHOW_BLANK + alphabet
    return "".join(shown[symbol] if 0 <= symbol < len(shown) else SHOW_UNKNOWN for symbol in trim(output))


def render_number(output: Sequence[int], base: int) -> str:
    """Digits ``d`` given as symbols ``d + 1``, lowest first, as a number with the highest first."""
    text = render_chars(output, DIGITS[:base])[::-1]
    return text.lstrip("0") or text[-1:]


class SymbolTask(Task):
    """A task whose input is a row of symbols drawn uniformly from 1..symbols-1.

    People type and read the symbols as numbers, ``7 3 9 1``; a blank inside an output is shown as ``_``.
    """

    example: ClassVar[tuple[str, ...]] = ("7", "3", "9", "1")
    syntax = "type symbols as whole numbers separated by spaces, for example: 7 3 9 1"
    symbols: int = 12
    classes: int = 12

    def filled(self, lengths_B: Tensor) -> Tensor:
        """How many cells an input of each length fills."""
        return lengths_B

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        rows_BN = randint(1, self.symbols, (lengths_B.shape[0], width), generator)
        return crop(rows_BN, self.filled(lengths_B))

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        return crop(draw(self.symbols - 1, lengths_B[:, None]) + 1, lengths_B)

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = [parse_symbol(token, self.symbols - 1, self.syntax) for token in tokens(words)]
        if not symbols:
            raise ValueError(f"there is no symbol in the input; {self.syntax}")
        return symbols

    def render(self, output: list[int]) -> str:
        return render_symbols(output)

    def pieces(self, rendered: str) -> list[str]:
        return rendered.split()
