"""Sorting a list of words, and merging two sorted lists: all rows at once, in a logarithmic number of steps."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.families import DrawValues
from riffle.tasks.rows import (
    bernoulli,
    columns,
    crop,
    first_column,
    last_column_so_far,
    rand,
    randint,
    row_lengths,
    shift_right,
    take,
)
from riffle.tasks.structure import structured_values
from riffle.tasks.task import BLANK, SHOW_SPACE, Task, render_chars, tokens


def dense_rank(keys_BN: Tensor) -> Tensor:
    """The rank of every key among the different keys of its row: 1, 2, ... in ascending order."""
    sorted_BN, order_BN = keys_BN.sort(dim=1)
    fresh_BN = sorted_BN != shift_right(sorted_BN, fill=-1)
    return torch.zeros_like(keys_BN).scatter(1, order_BN, fresh_BN.long().cumsum(dim=1))


def suffix_ranks(letters_BN: Tensor) -> Tensor:
    """Rank every word's suffixes in dictionary order, one for each cell; 0 where ``letters_BN`` is 0 (no letter).

    Prefix doubling: when cells are ranked by their next ``reach`` letters, the pair of the ranks here and ``reach``
    cells further ranks them by twice as many. A word that ends earlier is followed by rank 0 and so comes first.
    """
    column_N = columns(letters_BN)
    inside_BN = letters_BN != 0
    gap_from_end_BN = last_column_so_far(~inside_BN.flip(1))
    end_BN = letters_BN.shape[1] - 1 - gap_from_end_BN.flip(1)  # the first cell at or after this one that is no letter
    ranks_BN = torch.where(inside_BN, dense_rank(letters_BN), 0)
    reach = 1
    while reach < letters_BN.shape[1]:
        further_BN = torch.where(column_N + reach < end_BN, take(ranks_BN, (column_N + reach).expand_as(ranks_BN)), 0)
        ranks_BN = torch.where(inside_BN, dense_rank(ranks_BN * (letters_BN.shape[1] + 2) + further_BN), 0)
        reach *= 2
    return ranks_BN


def sort_words(rows_BN: Tensor, keys_BN: Tensor, divider: int, group_BN: Tensor | None = None) -> Tensor:
    """Put the words of every row in dictionary order of their letters' keys, all at least 1; the sort is stable.

    If groups are given, words of a lower group (at their first letter) come first whatever their letters.
    """
    width = rows_BN.shape[1]
    lengths_B = row_lengths(rows_BN)
    rows_BN = F.pad(rows_BN, (0, 1))
    column_N = columns(rows_BN)
    rows_BN = torch.where(column_N == lengths_B[:, None], divider, rows_BN)  # now every word has a divider after it
    letter_BN = (rows_BN != divider) & (rows_BN != BLANK)
    ranks_BN = suffix_ranks(torch.where(letter_BN, F.pad(keys_BN, (0, 1)), 0))
    if group_BN is not None:
        ranks_BN = ranks_BN + F.pad(group_BN, (0, 1)) * (width + 3)
    begins_BN = shift_right(rows_BN, fill=divider) == divider
    rank_BN = take(ranks_BN, last_column_so_far(begins_BN))
    rank_BN = torch.where(column_N <= lengths_B[:, None], rank_BN, torch.iinfo(torch.int64).max)
    # A stable sort of the cells by the rank of their word moves every word as one piece, its divider with it.
    order_BN = rank_BN.sort(dim=1, stable=True).indices
    return crop(take(rows_BN, order_BN)[:, :width], lengths_B)


def draw_words(
    lengths_B: Tensor, width: int, letters: int, divider: int, generator: torch.Generator, *, structured: bool = False
) -> Tensor:
    """Words of letters 1..letters with one divider between them, ``lengths_B`` cells in all.

    From left to right every cell but the first and the last of a row becomes a divider with probability
    ``1 / sqrt(length)`` (at most one half), unless there is a divider just before it. With ``structured``, letters are
    of random structure, and each row has a random probability.
    """
    batch = lengths_B.shape[0]
    if structured:
        rows_BN = structured_values(letters, lengths_B[:, None], width, generator) + 1
        chance_B1 = rand((batch, 1), generator) / 2
    else:
        rows_BN = randint(1, letters + 1, (batch, width), generator)
        chance_B1 = lengths_B[:, None].clamp(min=4).double().rsqrt()
    column_N = columns(rows_BN)
    heads_BN = bernoulli(chance_B1, (batch, width), generator) & (column_N > 0) & (column_N < lengths_B[:, None] - 1)
    odd_BN = (column_N - last_column_so_far(~heads_BN)) % 2 == 1  # the first, third, ... of neighbouring heads
    return crop(torch.where(heads_BN & odd_BN, divider, rows_BN), lengths_B)


def split_words(symbols: Sequence[int], divider: int) -> list[list[int]]:
    """The words between dividers; no word at all if there is no symbol."""
    words: list[list[int]] = [[]] if symbols else []
    for symbol in symbols:
        if symbol == divider:
            words.append([])
        else:
            words[-1].append(symbol)
    return words


def join_words(words: Sequence[Sequence[int]], divider: int) -> list[int]:
    """The inverse of :func:`split_words`."""
    return [symbol for word in words for symbol in (*word, divider)][:-1]


class WordTask(Task):
    """A task on words; letters are 1, 2, ... (typed a, b, ...) and the highest symbol, a space, divides words."""

    punctuation: ClassVar[str] = " "
    """How the symbols after the letters are typed, the divider last."""
    symbols: int = 13
    classes: int = 13

    @property
    def divider(self) -> int:
        """The symbol between words."""
        return self.symbols - 1

    @property
    def letters(self) -> str:
        """The letters in the order of their symbols."""
        return ascii_lowercase[: self.divider - len(self.punctuation)]

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Other letters; the lengths of the words stay."""
        letters = len(self.letters)
        letter_BN = (inputs_BN != BLANK) & (inputs_BN <= letters)
        return torch.where(letter_BN, draw(letters, row_lengths(inputs_BN)[:, None]) + 1, inputs_BN)

    def parse_word(self, word: str) -> list[int]:
        """The letters of one typed word."""
        letters = self.letters
        for letter in word:
            if letter not in letters:
                raise ValueError(f"letter {letter!r} in {word!r} is outside {letters[0]}..{letters[-1]}; {self.syntax}")
        return [letters.index(letter) + 1 for letter in word]

    def render(self, output: list[int]) -> str:
        return render_chars(output, self.letters + self.punctuation)

    def label(self, symbol: int) -> str:
        return self.render([symbol]).replace(" ", SHOW_SPACE) or super().label(symbol)


class WordSort(WordTask):
    """Sort words by the parities of their letters, an even letter (b, d, ...) before an odd one (a, c, ...).

    Words are compared as in a dictionary, but letters of equal parity count as equal; words that compare equal keep
    their order. People type ``bad cab add`` with the letters a to k.
    """

    name = "word-sort"
    summary = "Sort words by the parities of their letters."
    example = ("bad", "kid", "add", "bee")
    syntax = "type words separated by spaces, for example: bad kid add bee"

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        return draw_words(lengths_B, width, self.divider - 1, self.divider, generator)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        lengths_B, width = row_lengths(inputs_BN), inputs_BN.shape[1]
        return draw_words(lengths_B, width, self.divider - 1, self.divider, generator, structured=True)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return sort_words(inputs_BN, inputs_BN % 2 + 1, self.divider)

    def solve(self, symbols: list[int]) -> list[int]:
        words = split_words(symbols, self.divider)
        return join_words(sorted(words, key=lambda word: [letter % 2 for letter in word]), self.divider)

    def parse(self, words: Sequence[str]) -> list[int]:
        typed = tokens(words)
        if not typed:
            raise ValueError(f"there is no word in the input; {self.syntax}")
        return join_words([self.parse_word(word) for word in typed], self.divider)


class Merge(WordTask):
    """Merge two sorted lists of words, with a word of the one symbol :attr:`middle` between them, into one.

    The order is that of a dictionary, and the middle word, higher than every letter, comes last in the answer. The
    first list has half of the words, rounded down. The shortest input has three symbols; where the width does not
    allow it, both lists are empty. People type ``bad dig / ace fig`` with the letters a to j, and read
    ``ace bad dig fig /``.
    """

    name = "merge"
    summary = "Merge two sorted lists of words."
    example = ("bad", "dig", "/", "ace", "fig")
    syntax = "type two sorted lists of words with / between them, for example: bad dig / ace fig"
    punctuation = "/ "

    @property
    def middle(self) -> int:
        """The symbol of the word between the lists."""
        return self.divider - 1

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator, structured: bool = False) -> Tensor:
        if width < 3:
            middle_BN = torch.full((lengths_B.shape[0], width), self.middle, device=generator.device)
            return crop(middle_BN, lengths_B.clamp(max=1))
        lengths_B = lengths_B.clamp(min=3)
        words_BN = draw_words(lengths_B - 2, width, self.middle - 1, self.divider, generator, structured=structured)
        divider_BN = words_BN == self.divider
        word_BN = divider_BN.long().cumsum(dim=1) - divider_BN.long()  # the number of the word a cell belongs to
        half_B1 = (divider_BN.sum(dim=1, keepdim=True) + 1) // 2
        after_BN = columns(words_BN) - (word_BN < half_B1).sum(dim=1, keepdim=True)
        rows_BN = take(words_BN, columns(words_BN) - torch.where(after_BN < 0, 0, 2))
        rows_BN = torch.where(after_BN == 0, self.middle, rows_BN)
        rows_BN = crop(torch.where(after_BN == 1, self.divider, rows_BN), lengths_B)
        list_BN = (after_BN >= 0).long() + (after_BN >= 2)
        return sort_words(rows_BN, rows_BN, self.divider, list_BN)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        return self.draw(row_lengths(inputs_BN), inputs_BN.shape[1], generator=generator, structured=True)

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        rows_BN = super().replace_values(inputs_BN, draw)
        after_BN = columns(rows_BN) - first_column(rows_BN == self.middle)[:, None]
        return sort_words(rows_BN, rows_BN, self.divider, (after_BN >= 0).long() + (after_BN >= 2))

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return sort_words(inputs_BN, inputs_BN, self.divider)

    def solve(self, symbols: list[int]) -> list[int]:
        return join_words(sorted(split_words(symbols, self.divider)), self.divider)

    def parse(self, words: Sequence[str]) -> list[int]:
        lists = [tokens([text]) for text in " ".join(words).replace("|", "/").split("/")]
        if len(lists) != 2 or not any(lists):
            raise ValueError(f"two lists of words are needed, got {' '.join(words)!r}; {self.syntax}")
        for typed in lists:
            if typed != sorted(typed):
                raise ValueError(f"the list {' '.join(typed)!r} is not sorted; {self.syntax}")
        first, second = ([self.parse_word(word) for word in typed] for typed in lists)
        return join_words([*first, [self.middle], *second], self.divider)
