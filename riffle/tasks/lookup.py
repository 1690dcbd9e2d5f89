"""Looking up values by their keys: one key among pairs (search), many keys in a shuffled memory (memory-index)."""

# B = batch, N = width of the padded rows, K = keys that exist
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from riffle.tasks.families import BITS, DrawValues, Split, value_families
from riffle.tasks.rows import columns, crop, first_column, rand, randint, row_lengths, take
from riffle.tasks.sequences import PairTask
from riffle.tasks.structure import nearly_sorted, structured_values
from riffle.tasks.task import BLANK, Task, parse_symbol, render_chars, render_symbols, tokens, trim


def pairs_and_keys(words: Sequence[str], syntax: str) -> tuple[list[str], list[str]]:
    """Cut ``3:9 5:2 5`` into its pairs and the keys after them; a ``?`` before the keys is allowed."""
    parts = tokens([word.replace("?", " ") for word in words])
    pairs = [token for token in parts if ":" in token]
    keys = parts[len(pairs) :]
    if parts[: len(pairs)] != pairs:
        raise ValueError(f"{pairs[-1]!r} comes after a key asked for, pairs come first; {syntax}")
    if not keys:
        raise ValueError(f"no key is asked for in {' '.join(words)!r}; {syntax}")
    return pairs, keys


class Search(PairTask):
    """Find a key among key, value pairs and give its value, or a blank if it is not there.

    An input of length ``l`` holds ``(l - 1) // 2`` pairs and then the key asked for. Of several pairs with that key the
    first counts. People type ``3:9 5:2 7:4 5``, pairs and then the key, and read ``2`` or ``not found``.
    """

    name = "search"
    summary = "Find the value of a key among key, value pairs."
    example = ("3:9", "5:2", "7:4", "5")
    syntax = "type pairs key:value and then the key to find, for example: 3:9 5:2 7:4 5"

    def filled(self, lengths_B: Tensor) -> Tensor:
        return (lengths_B - 1) // 2 * 2 + 1

    def families(self) -> dict[str, Split]:
        def asked(place: str, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """The key that is asked for is in no pair, in the first, in the last, or in every one."""
            lengths_B1, column_N = row_lengths(rows_BN)[:, None], columns(rows_BN)
            wanted_B1 = take(rows_BN, lengths_B1 - 1)
            key_BN = (column_N % 2 == 0) & (column_N < lengths_B1 - 1)
            other_BN = torch.where(key_BN & (rows_BN == wanted_B1), wanted_B1 % (self.symbols - 1) + 1, rows_BN)
            where = {"nowhere": -1, "first": 0, "last": lengths_B1 - 3}.get(place, column_N)
            return torch.where(key_BN & (column_N == where), wanted_B1, other_BN)

        places = ("nowhere", "first", "last", "everywhere")
        return {place: partial(asked, place) for place in places} | super().families()

    def answer(self, inputs_BN: Tensor) -> Tensor:
        column_N = columns(inputs_BN)
        last_B1 = row_lengths(inputs_BN)[:, None] - 1
        wanted_B1 = take(inputs_BN, last_B1)
        match_BN = (inputs_BN == wanted_B1) & (column_N % 2 == 0) & (column_N < last_B1)
        value_B1 = take(inputs_BN, first_column(match_BN)[:, None] + 1)
        return torch.where((column_N == 0) & match_BN.any(dim=1, keepdim=True), value_B1, BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        pairs, wanted = symbols[:-1], symbols[-1:]
        return [value for key, value in zip(pairs[::2], pairs[1::2], strict=True) if [key] == wanted][:1]

    def parse(self, words: Sequence[str]) -> list[int]:
        pairs, keys = pairs_and_keys(words, self.syntax)
        if len(keys) > 1:
            raise ValueError(f"only one key can be asked for, got {' '.join(keys)}; {self.syntax}")
        symbols = [symbol for pair in pairs for symbol in self.parse_pair(pair)]
        return [*symbols, parse_symbol(keys[0], self.symbols - 1, self.syntax)]

    def write(self, symbols: list[int]) -> str:
        *pairs, wanted = symbols
        return " ".join([*map("{}:{}".format, pairs[::2], pairs[1::2]), str(wanted)])

    def render(self, output: list[int]) -> str:
        return render_symbols(output) or "not found"


class MemoryIndex(Task):
    """Read a memory: cells in random order, each a key with a bit, then the keys to read; give their bits in order.

    Key ``k`` (from 0) with bit ``d`` is one symbol, ``3 * k + d + 1``, and asking for it is the symbol ``3 * k + 3``.
    An input of length ``l`` has ``l // 2`` cells with different keys (at most as many as there are keys) and asks for
    each once, in random order. The answer gives bit ``d`` as ``d + 1``. People count keys from 1 and type
    ``3:1 7:0 5:1 7 3``, cells and then keys, and read ``0 1``; a key that is not in the memory reads as a blank, ``_``.
    """

    name = "memory-index"
    summary = "Read bits from a shuffled memory by their keys."
    example = ("3:1", "7:0", "5:1", "7", "3", "5")
    syntax = "type cells key:bit and then the keys to read, for example: 3:1 7:0 5:1 7 3 5"
    symbols: int = 388
    classes: int = 3

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return (self.symbols - 1) // 3

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        batch = lengths_B.shape[0]
        cells_B = (lengths_B // 2).clamp(max=self.keys)
        shuffled_BK = rand((batch, self.keys), generator).argsort(dim=1)
        bits_BK = randint(0, 2, (batch, self.keys), generator)
        chance_BK = rand((batch, self.keys), generator)
        used_BK = torch.arange(self.keys, device=lengths_B.device) < cells_B[:, None]
        order_BK = torch.where(used_BK, chance_BK, 2.0).argsort(dim=1)  # a second shuffle, of the used keys only
        cells_BK = take(3 * shuffled_BK + bits_BK + 1, order_BK)
        column_BN = torch.arange(width, device=lengths_B.device).expand(batch, width)
        asked_BN = take(3 * shuffled_BK + 3, column_BN - cells_B[:, None])
        rows_BN = torch.where(column_BN < cells_B[:, None], take(cells_BK, column_BN), asked_BN)
        return crop(rows_BN, 2 * cells_B)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        is_cell_BN = inputs_BN % 3 > 0
        cells_B1 = is_cell_BN.sum(dim=1, keepdim=True)
        asked_BN = take(inputs_BN, columns(inputs_BN) + cells_B1)
        bits_BN = structured_values(2, cells_B1, inputs_BN.shape[1], generator)
        cells_BN, asked_BN = (nearly_sorted(rows_BN, cells_B1, generator) for rows_BN in (inputs_BN, asked_BN))
        cells_BN = (cells_BN - 1) // 3 * 3 + bits_BN + 1
        asked_BN = torch.where(inputs_BN == BLANK, BLANK, take(asked_BN, columns(inputs_BN) - cells_B1))
        return torch.where(is_cell_BN, cells_BN, asked_BN)

    def replace_values(self, inputs_BN: Tensor, draw: DrawValues) -> Tensor:
        """Other bits; the keys stay."""
        is_cell_BN = inputs_BN % 3 > 0
        bits_BN = draw(2, is_cell_BN.sum(dim=1, keepdim=True))
        return torch.where(is_cell_BN, (inputs_BN - 1) // 3 * 3 + 1 + bits_BN, inputs_BN)

    def families(self) -> dict[str, Split]:
        def order(cells: int, asked: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """Cells and keys asked for in ascending (1) or descending (-1) order of their keys, or as they are (0)."""
            is_cell_BN = rows_BN % 3 > 0
            sign_BN = torch.where(is_cell_BN, cells, asked)
            rank_BN = torch.where(sign_BN == 0, columns(rows_BN), sign_BN * ((rows_BN - 1) // 3))
            part_BN = torch.where(rows_BN == BLANK, 2, torch.where(is_cell_BN, 0, 1))
            spread = 2 * max(rows_BN.shape[1], self.keys) + 1
            return take(rows_BN, (part_BN * 2 * spread + rank_BN).argsort(dim=1, stable=True))

        def same_key(rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """The first key asked for is asked for every time."""
            asked_BN = (rows_BN != BLANK) & (rows_BN % 3 == 0)
            return torch.where(asked_BN, take(rows_BN, first_column(asked_BN)[:, None]), rows_BN)

        orders = {
            "rising": (1, 0),
            "falling": (-1, 0),
            "asked-rising": (0, 1),
            "both-rising": (1, 1),
            "crossed": (1, -1),
        }
        ordered: dict[str, Split] = {name: partial(order, *signs) for name, signs in orders.items()}
        return value_families(self.replace_values, BITS) | ordered | {"same-key": same_key}

    def answer(self, inputs_BN: Tensor) -> Tensor:
        key_BN, kind_BN = (inputs_BN - 1).clamp(min=0) // 3, (inputs_BN - 1) % 3
        cell_BN = (inputs_BN != BLANK) & (kind_BN < 2)
        memory_BK = torch.zeros_like(inputs_BN[:, :1]).expand(-1, self.keys + 1)  # the last one takes what is no cell
        memory_BK = memory_BK.scatter(1, torch.where(cell_BN, key_BN, self.keys), kind_BN + 1)
        cells_B = cell_BN.sum(dim=1)
        asked_BN = take(key_BN, columns(inputs_BN) + cells_B[:, None])
        return crop(take(memory_BK, asked_BN), row_lengths(inputs_BN) - cells_B)

    def solve(self, symbols: list[int]) -> list[int]:
        memory = {(symbol - 1) // 3: (symbol - 1) % 3 + 1 for symbol in symbols if symbol % 3}
        return trim([memory.get((symbol - 1) // 3, BLANK) for symbol in symbols if not symbol % 3])

    def parse(self, words: Sequence[str]) -> list[int]:
        pairs, asked = pairs_and_keys(words, self.syntax)
        memory: dict[int, int] = {}
        for pair in pairs:
            text, _, bit = pair.partition(":")
            key = parse_symbol(text, self.keys, self.syntax)
            if bit not in ("0", "1"):
                raise ValueError(f"{bit!r} in {pair!r} is not a bit 0 or 1; {self.syntax}")
            if key in memory:
                raise ValueError(f"key {key} has two cells; {self.syntax}")
            memory[key] = int(bit)
        cells = [3 * key + bit - 2 for key, bit in memory.items()]
        return cells + [3 * parse_symbol(text, self.keys, self.syntax) for text in asked]

    def write(self, symbols: list[int]) -> str:
        cells = [f"{(symbol + 2) // 3}:{(symbol - 1) % 3}" for symbol in symbols if symbol % 3]
        return " ".join([*cells, *(str(symbol // 3) for symbol in symbols if symbol % 3 == 0)])

    def render(self, output: list[int]) -> str:
        return " ".join(render_chars(output, "01"))

    def pieces(self, rendered: str) -> list[str]:
        return rendered.split()
