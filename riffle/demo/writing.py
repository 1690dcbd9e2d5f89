"""Inputs as a person would type them: what a task's ``parse`` reads, written from symbols."""

from __future__ import annotations

import torch

from riffle.tasks import BLANK, Task
from riffle.tasks.arithmetic import Arithmetic, MultiplyBCD, decode
from riffle.tasks.base import render_chars, trim
from riffle.tasks.brackets import BracketTask
from riffle.tasks.division import OVER, Divide
from riffle.tasks.lookup import MemoryIndex, Search
from riffle.tasks.sequences import TURN, Rotate
from riffle.tasks.symbols import PairTask, SymbolTask
from riffle.tasks.words import Merge, WordTask

DIGITS = "0123456789"


def random_input(task: Task, length: int, *, generator: torch.Generator) -> str:
    """An input of about that length, as one would type it; the task's example where it cannot be written."""
    symbols = trim(task.sample(1, length, generator=generator).inputs[0].tolist())
    text = write(task, symbols)
    try:
        fits = text is not None and trim(task.parse(text.split())) == symbols
    except ValueError:  # a length too short for this task
        fits = False
    return text if fits and text is not None else " ".join(task.example)


def write(task: Task, symbols: list[int]) -> str | None:
    """What to type for these symbols; None for a task that is not known here."""
    match task:
        case MultiplyBCD():
            parts = (decode(part) for part in _cut(symbols, 12))
            return " ".join("".join(map(str, reversed(part))) for part in parts)
        case Arithmetic() | Divide():
            separator = OVER if isinstance(task, Divide) else task.separator
            return " ".join(render_chars(part, DIGITS)[::-1] for part in _cut(symbols, separator))
        case Rotate():
            bits = (len(symbols) + 1) // 2
            return f"{render_chars(symbols[:bits], '01')[::-1]} {symbols.count(TURN)}"
        case WordTask():
            return render_chars(symbols, f"{task.alphabet}/ " if isinstance(task, Merge) else f"{task.alphabet} ")
        case BracketTask():
            return render_chars(symbols, task.alphabet)
        case MemoryIndex():
            cells = [f"{(symbol + 2) // 3}:{(symbol - 1) % 3}" for symbol in symbols if symbol % 3]
            return " ".join([*cells, *(str(symbol // 3) for symbol in symbols if symbol % 3 == 0)])
        case Search():
            return " ".join([*_pairs(symbols[:-1]), str(symbols[-1])])
        case PairTask():
            return " ".join(_pairs(symbols))
        case SymbolTask():
            return " ".join(map(str, symbols))
    return None


def label(task: Task, symbol: int) -> str:
    """One symbol on a wire of the network."""
    if symbol == BLANK:
        return "·"
    match task:
        case Arithmetic():
            signs = {task.separator: task.signs[0]}
            return signs.get(symbol, str(symbol - 1))
        case Divide():
            return {OVER: "/"}.get(symbol, str(symbol - 1))
        case BracketTask() if task.classes == task.symbols:
            return render_chars([symbol], task.alphabet)
        case WordTask():
            return render_chars([symbol], task.alphabet).replace("?", "/" if symbol < task.divider else "␣")
    return str(symbol)


def _cut(symbols: list[int], separator: int) -> tuple[list[int], list[int]]:
    at = symbols.index(separator) if separator in symbols else len(symbols)
    return symbols[:at], symbols[at + 1 :]


def _pairs(symbols: list[int]) -> list[str]:
    return [f"{key}:{value}" for key, value in zip(symbols[::2], symbols[1::2], strict=True)]
