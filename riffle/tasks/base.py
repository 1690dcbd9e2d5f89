"""What a task is: inputs to draw, answers to give, and how a person types and reads them."""

# B = batch, N = width of the padded rows; symbol 0 is the blank everywhere
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

BLANK = 0


class Batch(NamedTuple):
    """Examples of one task, blank-padded to a common width."""

    inputs: Tensor
    """Symbols the network reads, int64 ``[B, N]``."""
    targets: Tensor
    """Symbols it should answer, int64 ``[B, N]``."""


@dataclass(frozen=True)
class Task(ABC):
    """One algorithmic task.

    A task says four things: how to draw inputs (:meth:`draw`), the vectorised answer (:meth:`answer`), an independent
    plain-Python answer that checks it (:meth:`solve`), and how a person writes the symbols (:meth:`parse`,
    :meth:`render`). ``draw`` and ``answer`` run on the generator's device without waiting for it, so that they can be
    part of a captured training step: no ``.item()``, no data-dependent shapes, no loop over examples.
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
    symbols: int
    """Size of the input alphabet, blank included."""
    classes: int
    """Size of the output alphabet, blank included."""

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
        """The right output for one input, in plain Python and written independently of :meth:`answer`.

        Takes the input without trailing blanks and gives the output without trailing blanks.
        """

    @abstractmethod
    def parse(self, words: Sequence[str]) -> list[int]:
        """The input a person typed, as symbols; raises ``ValueError`` saying what is accepted."""

    @abstractmethod
    def render(self, output: list[int]) -> str:
        """An output (any symbols of the output alphabet, right or wrong) as a person would write it."""

    @property
    def splits(self) -> Mapping[str, Callable[[Tensor, torch.Generator], Tensor]]:
        """Worst cases by name: ``split(inputs, generator)`` turns drawn inputs into worst cases of the same lengths."""
        return {}

    def sample(self, batch: int, length: int, *, generator: torch.Generator, split: str = "uniform") -> Batch:
        """Draw ``batch`` examples of the given length, uniformly or from one of :attr:`splits`."""
        splits = self.splits
        if split != "uniform" and split not in splits:
            raise ValueError(f"task {self.name!r} has no split {split!r}; it has {', '.join(['uniform', *splits])}")
        lengths_B = torch.full((batch,), length, dtype=torch.int64, device=generator.device)
        inputs_BN = self.draw(lengths_B, length, generator=generator)
        if split != "uniform":
            inputs_BN = splits[split](inputs_BN, generator)
        return Batch(inputs_BN, self.answer(inputs_BN))
