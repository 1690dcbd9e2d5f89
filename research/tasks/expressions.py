"""Arithmetic modulo 5: expressions without and with brackets, and equations with one unknown.

Numbers 0 to 4 are the symbols 1 to 5. An expression with brackets is a number or its negative, in brackets or not (1 to
4 symbols), or two expressions with a + or - between them in brackets.
"""

# B = batch, N = width of the padded rows, M = N + 1 cells, Q = expressions of a row to divide
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.brackets import previous_at_level
from riffle.tasks.rows import (
    columns,
    crop,
    last_column_so_far,
    rand,
    randint,
    randint_below,
    row_lengths,
    shift_right,
    take,
)
from riffle.tasks.task import BLANK
from riffle.tasks.token_tasks import ClassTask

MODULUS = 5
PLUS, MINUS, TIMES = 6, 7, 8


def is_number(rows_BN: Tensor) -> Tensor:
    """Which cells hold a number, bool ``[B, N]``."""
    return (rows_BN != BLANK) & (rows_BN <= MODULUS)


class ModularArithmetic(ClassTask):
    """Give the value modulo 5 of numbers with +, - and * between them, * before + and -.

    An input of length ``l`` has ``(l + 1) // 2`` numbers.
    """

    name = "modular-arithmetic"
    summary = "Give the value modulo 5 of an expression of +, - and *."
    example = ("1", "+", "2", "*", "3", "-", "4")
    syntax = "type numbers 0 to 4 with +, - or * between them, separated by spaces, for example: 1 + 2 * 3 - 4"
    alphabet = "0 1 2 3 4 + - *"
    answers = "0 1 2 3 4"
    free = (range(1, PLUS), range(PLUS, TIMES + 1))
    symbols: int = 9
    classes: int = 6

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        shape = (len(lengths_B), width)
        numbers_BN, signs_BN = randint(1, PLUS, shape, generator), randint(PLUS, TIMES + 1, shape, generator)
        rows_BN = torch.where(columns(numbers_BN) % 2 == 0, numbers_BN, signs_BN)
        return crop(rows_BN, (lengths_B + 1) // 2 * 2 - 1)

    def classify(self, inputs_BN: Tensor) -> Tensor:
        # A product is a power of 2, whose exponent is the sum of exponents, and 0 where one of its numbers is.
        exponent_BN = (inputs_BN == 2 + 1) + 3 * (inputs_BN == 3 + 1) + 2 * (inputs_BN == 4 + 1)
        exponents_BN = exponent_BN.cumsum(dim=1)
        zeros_BN = (inputs_BN == 1).long().cumsum(dim=1)
        is_sign_BN = (inputs_BN == PLUS) | (inputs_BN == MINUS)
        start_BN = last_column_so_far(is_sign_BN)  # the sign before the term, -1 for the first term
        before_BN = start_BN.clamp(min=0)
        exponent_BN = exponents_BN - torch.where(start_BN < 0, 0, take(exponents_BN, before_BN))
        zero_BN = zeros_BN > torch.where(start_BN < 0, 0, take(zeros_BN, before_BN))
        product_BN = torch.where(zero_BN, 0, 1 << exponent_BN % (MODULUS - 1))
        negative_BN = (start_BN >= 0) & (take(inputs_BN, before_BN) == MINUS)
        next_BN = F.pad(is_sign_BN[:, 1:], (0, 1))
        end_BN = is_number(inputs_BN) & (next_BN | (columns(inputs_BN) == row_lengths(inputs_BN)[:, None] - 1))
        return torch.where(end_BN, torch.where(negative_BN, -product_BN, product_BN), 0).sum(dim=1) % MODULUS

    def class_of(self, symbols: list[int]) -> int:
        if len(symbols) % 2 == 0 or any((symbol <= MODULUS) == (i % 2) for i, symbol in enumerate(symbols)):
            raise ValueError("this is no sequence of numbers with signs between them")
        total, term, sign = 0, symbols[0] - 1, 1
        for symbol, following in zip(symbols[1::2], symbols[2::2], strict=True):
            if symbol == TIMES:
                term *= following - 1
            else:
                total, term, sign = total + sign * term, following - 1, 1 if symbol == PLUS else -1
        return (total + sign * term) % MODULUS


OPEN, CLOSE, UNKNOWN, EQUALS = 8, 9, 10, 11


def draw_expressions(lengths_B: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Expressions with brackets of exactly the given lengths, blank-padded to ``[B, width]``.

    One of 5 symbols or more is two in brackets, the first of which has 1 to ``length - 4`` symbols, each as likely.
    Such expressions of a row wait in a queue, and the next ones of all rows are divided at once.
    """
    shape, batch, queue = (len(lengths_B), width), len(lengths_B), (width - 1) // 4
    shares_QB = rand((queue, batch), generator)
    start_QB, size_QB = torch.zeros(2, queue + 1, batch, dtype=torch.int64, device=lengths_B.device)
    size_QB[0] = lengths_B
    first_QB, waiting_B = torch.zeros_like(start_QB), torch.ones_like(lengths_B)
    for place in range(queue):
        start_B, size_B = start_QB[place], size_QB[place]
        first_B = first_QB[place] = 1 + torch.minimum((shares_QB[place] * (size_B - 4)).long(), size_B - 5)
        for begin_B, part_B in ((start_B + 1, first_B), (start_B + first_B + 2, size_B - first_B - 3)):
            long_B = (size_B >= 5) & (part_B >= 5)
            place_1B = torch.where(long_B, waiting_B, queue)[None]  # the last place is for what does not wait
            start_QB.scatter_(0, place_1B, begin_B[None])
            size_QB.scatter_(0, place_1B, part_B[None])
            waiting_B += long_B
    rows_BM = torch.zeros(batch, width + 1, dtype=torch.int64, device=lengths_B.device)
    signs_BN = randint(PLUS, MINUS + 1, shape, generator)
    divided_QB = size_QB[:queue] >= 5
    start_QB, size_QB, first_QB = start_QB[:queue], size_QB[:queue], first_QB[:queue]
    for column_QB, symbols in (
        (start_QB, OPEN),
        (start_QB + size_QB - 1, CLOSE),
        (start_QB + first_QB + 1, signs_BN[:, :queue]),
    ):
        column_BQ = torch.where(divided_QB, column_QB, width).T
        rows_BM = rows_BM.scatter(1, column_BQ, symbols)
    return _fill_short(crop(rows_BM[:, :width], lengths_B), lengths_B, generator)


def _fill_short(rows_BN: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
    """Expressions of 1 to 4 symbols in the gaps between the others: ``d``, ``-d``, ``(d)`` or ``(-d)``."""
    column_N, width = columns(rows_BN), rows_BN.shape[1]
    outside_BN = (rows_BN != BLANK) | (column_N >= lengths_B[:, None])
    before_BN = column_N - 1 - last_column_so_far(outside_BN)
    after_BN = width - 1 - last_column_so_far(outside_BN.flip(1)).flip(1) - column_N - 1
    bracketed_BN = before_BN + after_BN >= 2
    numbers_BN = randint(1, MODULUS + 1, rows_BN.shape, generator)
    outer_BN = torch.where(before_BN == 0, OPEN, torch.where(after_BN == 0, CLOSE, MINUS))
    short_BN = torch.where(after_BN == bracketed_BN.long(), numbers_BN, torch.where(bracketed_BN, outer_BN, MINUS))
    return torch.where(outside_BN, rows_BN, short_BN)


def negated(rows_BN: Tensor) -> Tensor:
    """Whether the number in a cell is subtracted from the whole, bool ``[B, N]``; for cells with one."""
    is_minus_BN = rows_BN == MINUS
    # Up to two minus signs stand before a number or a bracket.
    before_BN, second_BN = shift_right(is_minus_BN.long()), shift_right(is_minus_BN.long(), 2)
    minus_BN = (before_BN + before_BN * second_BN) % 2
    opens_BN, closes_BN = rows_BN == OPEN, rows_BN == CLOSE
    level_BN = (opens_BN.long() - shift_right(closes_BN.long())).cumsum(dim=1)
    opener_BN = previous_at_level(torch.where(opens_BN | closes_BN, level_BN, 0))
    within_BN = torch.where(opens_BN, minus_BN, torch.where(closes_BN, -take(minus_BN, opener_BN), 0)).cumsum(dim=1)
    return (within_BN + minus_BN) % 2 == 1


def signed_sum(rows_BN: Tensor) -> Tensor:
    """The sum of all numbers, subtracted where they are negated; the value of an expression before ``=``, ``[B]``."""
    numbers_BN = torch.where(is_number(rows_BN), rows_BN - 1, 0)
    return torch.where(negated(rows_BN), -numbers_BN, numbers_BN).sum(dim=1)


def evaluate(symbols: list[int], unknown: int = 0) -> int:
    """The value of an expression with brackets, in plain Python; raises ``ValueError`` where it is none."""

    def symbol() -> int:
        if not rest:
            raise ValueError("the expression ends too early")
        return rest.pop(0)

    def expression() -> int:
        first = symbol()
        if first == MINUS:
            return -expression()
        if first <= MODULUS:
            return first - 1
        if first == UNKNOWN:
            return unknown
        if first != OPEN:
            raise ValueError("a number or a bracket is missing")
        value = expression()
        following = symbol()
        if following in (PLUS, MINUS):
            value += expression() if following == PLUS else -expression()
            following = symbol()
        if following != CLOSE:
            raise ValueError("a closing bracket is missing")
        return value

    rest = list(symbols)
    value = expression()
    if rest:
        raise ValueError("the expression goes on after its end")
    return value % MODULUS


class ModularBrackets(ClassTask):
    """Give the value modulo 5 of an expression with brackets, + and -."""

    name = "modular-brackets"
    summary = "Give the value modulo 5 of an expression with brackets."
    example = ("(", "-", "2", "+", "(", "1", "-", "4", ")", ")")
    syntax = "type numbers 0 to 4, + - ( and ), separated by spaces, for example: ( - 2 + ( 1 - 4 ) )"
    alphabet = "0 1 2 3 4 + - ( )"
    answers = "0 1 2 3 4"
    free = (range(1, PLUS),)
    symbols: int = 10
    classes: int = 6

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        return draw_expressions(lengths_B, width, generator)

    def classify(self, inputs_BN: Tensor) -> Tensor:
        return signed_sum(inputs_BN) % MODULUS

    def class_of(self, symbols: list[int]) -> int:
        return evaluate(symbols)


class Equation(ClassTask):
    """Give the number x for which an expression with brackets has the value that stands after ``=``.

    An input of length ``l`` has an expression of ``l - 2`` symbols; inputs shorter than 3 are blank.
    """

    name = "equation"
    summary = "Solve an equation modulo 5 with brackets for x."
    example = ("(", "x", "+", "(", "1", "-", "4", ")", ")", "=", "3")
    syntax = "type an expression with one x, = and a number, for example: ( x + ( 1 - 4 ) ) = 3"
    alphabet = "0 1 2 3 4 + - ( ) x ="
    answers = "0 1 2 3 4"
    free = (range(1, PLUS),)
    symbols: int = 12
    classes: int = 6

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        size_B = (lengths_B - 2).clamp(min=0)
        rows_BN = draw_expressions(size_B, width, generator)
        column_N, size_B1 = columns(rows_BN), size_B[:, None]
        # The first number from a random cell on, or the first one of all.
        begin_B1 = randint_below(size_B, generator)[:, None]
        turn_BN = torch.where(is_number(rows_BN), (column_N - begin_B1) % size_B1.clamp(min=1), rows_BN.shape[1])
        unknown_BN = (turn_BN == turn_BN.amin(dim=1, keepdim=True)) & is_number(rows_BN)
        value_B1 = signed_sum(rows_BN)[:, None] % MODULUS + 1
        rows_BN = torch.where(unknown_BN, UNKNOWN, rows_BN)
        rows_BN = torch.where(column_N == size_B1, EQUALS, torch.where(column_N == size_B1 + 1, value_B1, rows_BN))
        return crop(rows_BN, torch.where(lengths_B < 3, 0, lengths_B))

    def classify(self, inputs_BN: Tensor) -> Tensor:
        lengths_B1 = row_lengths(inputs_BN)[:, None]
        value_B = take(inputs_BN, lengths_B1 - 1)[:, 0] - 1
        rest_B = signed_sum(crop(inputs_BN, lengths_B1[:, 0] - 2))
        negated_B = (negated(inputs_BN) & (inputs_BN == UNKNOWN)).any(dim=1)
        return torch.where(negated_B, rest_B - value_B, value_B - rest_B) % MODULUS

    def class_of(self, symbols: list[int]) -> int:
        if symbols.count(UNKNOWN) != 1 or symbols[-2:-1] != [EQUALS] or symbols[-1] > MODULUS:
            raise ValueError("an expression with one x, = and a number are needed")
        return next(x for x in range(MODULUS) if evaluate(symbols[:-2], x) == symbols[-1] - 1)
