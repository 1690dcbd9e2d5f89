"""docs/routing.md says what the code does: its examples run, its command prints what it shows."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

from cli.riffle_command import succeed

from riffle.routing import message_positions, route

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_examples_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 14
    assert result.failed == 0


def test_the_command_prints_what_the_page_shows() -> None:
    command = re.search(r"```console\n\$ riffle (.*)\n```", TEXT)
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert command
    assert shown
    assert succeed(*shlex.split(command[1])).out == shown[1]


def test_the_loops_are_those_of_the_example() -> None:
    """Each row of the table: the message, its exit, and the network that the settings send it through."""
    permutation = [5, 3, 6, 2, 0, 1, 7, 4]
    behind_first = message_positions(route(permutation))[1]
    rows = re.findall(r"^\| (\d) \| (\d) \| (even|odd) \|", TEXT, re.MULTILINE)
    assert sorted(int(message) for message, _, _ in rows) == list(range(8))
    for message, end, network in rows:
        assert permutation[int(message)] == int(end)
        assert (behind_first[int(message)] < 4) == (network == "even")


def test_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT):
        assert (PAGE.parent / target).exists(), target
