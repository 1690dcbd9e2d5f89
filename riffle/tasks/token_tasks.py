"""Rows of tokens that people type with spaces between them, and tasks whose answer is one class for the whole row."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from riffle.tasks.families import DrawValues
from riffle.tasks.rows import crop, row_lengths
from riffle.tasks.task import BLANK, SHOW_BLANK, SHOW_UNKNOWN, Task, tokens, trim


class TokenTask(Task):
    """A task on rows of tokens, typed with spaces between them: ``( 3 + 1 )``.

    A ``solve`` that cannot read its input raises ``ValueError`` with the reason, which is what :meth:`parse` answers.
    """

    alphabet: ClassVar[str]
    """The tokens of the input symbols 1, 2, ..., separated by spaces."""
    answers: ClassVar[str]
    """The tokens of the output symbols 1, 2, ..."""
    free: ClassVar[tuple[range, ...]]
    """Ranges of input symbols; a cell with a symbol of one of them may hold any other of the same range."""

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Other values in the free cells."""
        lengths_B1, outputs_BN = row_lengths(inputs_BN)[:, None], inputs_BN
        for symbols in self.free:
            here_BN = (inputs_BN >= symbols.start) & (inputs_BN < symbols.stop)
            outputs_BN = torch.where(here_BN, symbols.start + draw(len(symbols), lengths_B1), outputs_BN)
        return self.complete(outputs_BN)

    def complete(self, inputs_BN: Tensor) -> Tensor:
        """Set the cells that depend on the free ones; by default there are none."""
        return inputs_BN

    def parse(self, words: Sequence[str]) -> list[int]:
        known, typed = self.alphabet.split(), tokens(words)
        for token in typed:
            if token not in known:
                raise ValueError(f"{token!r} is none of the tokens {self.alphabet}; {self.syntax}")
        symbols = [known.index(token) + 1 for token in typed]
        try:
            self.solve(symbols)
        except ValueError as error:
            raise ValueError(f"{error}; {self.syntax}") from None
        if not symbols:
            raise ValueError(f"there is no token in the input; {self.syntax}")
        return symbols

    def write(self, symbols: list[int]) -> str:
        return _join(trim(symbols), self.alphabet)

    def render(self, output: list[int]) -> str:
        return _join(trim(output), self.answers)

    def label(self, symbol: int) -> str:
        return _join([symbol], self.alphabet) if symbol != BLANK else super().label(symbol)

    def pieces(self, rendered: str) -> list[str]:
        return rendered.split()


def _join(symbols: Sequence[int], alphabet: str) -> str:
    shown = [SHOW_BLANK, *alphabet.split()]
    return " ".join(shown[symbol] if symbol < len(shown) else SHOW_UNKNOWN for symbol in symbols)


class ClassTask(TokenTask):
    """A task that gives the whole input one class, 0 to ``classes - 2``.

    The first cell is the answer cell: it gives class ``c`` as symbol ``c + 1``, and the other cells are blank. Any cell
    would do, since every output of the network depends on every input; the first one exists at every length.
    """

    @abstractmethod
    def classify(self, inputs_BN: Tensor) -> Tensor:
        """The class of every row, int64 ``[B]``; anything where a row is blank."""

    @abstractmethod
    def class_of(self, symbols: list[int]) -> int:
        """The class of one input that is not blank, in plain Python."""

    def answer(self, inputs_BN: Tensor) -> Tensor:
        answer_BN = (self.classify(inputs_BN) + 1)[:, None].expand_as(inputs_BN)
        return crop(answer_BN, row_lengths(inputs_BN).clamp(max=1))

    def solve(self, symbols: list[int]) -> list[int]:
        return [self.class_of(symbols) + 1] if symbols else []
