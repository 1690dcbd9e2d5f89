"""The tab Solve: a network's answer beside the true one, symbol by symbol."""

from __future__ import annotations

from itertools import zip_longest

from riffle.demo.catalogue import Trained
from riffle.demo.html import escape, in_place, tag
from riffle.solving import Solution, solve
from riffle.tasks import Task, get_task
from riffle.tasks.arithmetic import Arithmetic
from riffle.tasks.bcd import MultiplyBCD
from riffle.tasks.dyck import Dyck
from riffle.tasks.lookup import MemoryIndex
from riffle.tasks.symbols import SymbolTask

MOST = 4096
"""The longest input, in symbols."""
MOST_CHARACTERS = 8 * MOST
"""The longest text that is read at all."""
MISSING = "·"
"""What stands where one of the two answers is shorter."""


def check_size(task: Task, words: list[str], most: int = MOST) -> list[int]:
    """The symbols that were typed; refuses more than the page takes."""
    characters = sum(map(len, words)) + len(words)
    if characters > MOST_CHARACTERS:
        raise ValueError(
            f"the input is too long: it has {characters} characters, and this page reads at most {most} symbols"
        )
    symbols = task.parse(words)
    if len(symbols) > most:
        raise ValueError(f"the input is too long: it has {len(symbols)} symbols, and this page takes at most {most}")
    return symbols


def answer(trained: Trained, text: str) -> Solution:
    """What ``riffle solve`` answers with this run; refuses an input over the page's limit."""
    words = text.split()
    check_size(get_task(trained.experiment.task), words)
    return solve(trained.experiment.task, words, trained)


@in_place
def show_answer(trained: Trained, text: str) -> str:
    """The answer as markup."""
    solution = answer(trained, text)
    pairs = compare(get_task(solution.task), solution.output, solution.expected)
    wrong = sum(got != right for got, right in pairs)
    cells = (
        tag("span", f"<b>{escape(got)}</b><i>{escape(right)}</i>", class_=None if got == right else "wrong")
        for got, right in pairs
    )
    return tag(
        "section",
        [
            tag("p", verdict(solution.correct, wrong, len(pairs)), class_="verdict"),
            tag(
                "div", tag("span", "<b>network</b><i>true answer</i>", class_="names") + "".join(cells), class_="cells"
            ),
        ],
        class_=f"answer {'right' if solution.correct else 'wrong'}",
        data_output=solution.output,
        data_expected=solution.expected,
    )


def verdict(correct: bool, wrong: int, symbols: int) -> str:
    """One sentence about an answer.

    >>> verdict(True, 0, 8), verdict(False, 2, 8)
    ('Right: all 8 symbols.', 'Wrong: 2 of 8 symbols.')
    """
    if correct:
        return f"Right: all {symbols} symbols." if symbols > 1 else "Right."
    if wrong == 0:
        return "Wrong: in blanks or leading zeros, which are not shown."
    return f"Wrong: {wrong} of {symbols} symbols." if symbols > 1 else "Wrong."


def compare(task: Task, got: str, right: str) -> list[tuple[str, str]]:
    """Both answers cut into symbols as people read them, side by side; numbers meet at their lowest digit."""
    ours, theirs = _cut(task, got), _cut(task, right)
    if isinstance(task, Arithmetic | MultiplyBCD):
        longest = max(len(ours), len(theirs))
        ours, theirs = ([MISSING] * (longest - len(row)) + row for row in (ours, theirs))
    return list(zip_longest(ours, theirs, fillvalue=MISSING))


def _cut(task: Task, text: str) -> list[str]:
    if isinstance(task, Dyck):
        return [text]
    if isinstance(task, SymbolTask | MemoryIndex):
        return text.split()
    return list(text.replace(" ", "␣"))
