"""``riffle route``: what it prints, draws and refuses; docs/routing.md says the same."""
# ruff: noqa: RUF001 (crossed switches are drawn with strokes that look like slashes)

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from riffle.routing import message_positions, permutation_of, route
from riffle.shuffle import schedule

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"
TEXT = PAGE.read_text(encoding="utf-8")
WRITTEN = [("3 1 0 2",), ("3", "1", "0", "2"), ("3,1,0,2",), ("3, 1,", "0 2")]


@pytest.mark.parametrize("words", WRITTEN, ids=" ".join)
def test_json(words: tuple[str, ...]) -> None:
    result = succeed("route", *words, "--json")
    assert result.err == ""
    assert result.json == {
        "permutation": [3, 1, 0, 2],
        "layers": 3,
        "switches": 6,
        "crossed": 2,
        "bits": [layer.bit for layer in schedule(2)],
        "settings": [list(layer) for layer in route([3, 1, 0, 2])],
        "verified": True,
        "drawing": None,
    }


def test_table() -> None:
    result = succeed("route", "3 1 0 2")
    assert [" ".join(line.split()) for line in result.out.splitlines()] == [
        "bit 0 1 0 out",
        "0 ══ 0 ╲╱ 2 ══ 2",
        "1 ══ 2 ╱╲ 1 ══ 1",
        "2 ══ 1 ══ 0 ╲╱ 3",
        "3 ══ 3 ══ 3 ╱╲ 0",
        "3 layers, 6 switches, 2 of them crossed",
    ]
    assert "verified" in result.err


def test_random() -> None:
    results = [succeed("route", "--random", 64, "--seed", seed, "--json").json for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0]["permutation"] != results[2]["permutation"]
    assert permutation_of(results[0]["settings"]) == results[0]["permutation"]
    assert results[0]["bits"] == [layer.bit for layer in schedule(6)]


@pytest.mark.parametrize(("n", "lines"), [(2, 4), (32, 34), (64, 1)])
def test_long_ones_are_summed_up(n: int, lines: int) -> None:
    result = succeed("route", "--random", n)
    assert len(result.out.splitlines()) == lines
    assert ("too many to show" in result.err) == (n > 32)
    assert "verified" in result.err


@pytest.mark.parametrize(("kind", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_draw(kind: str, magic: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"a[b].{kind}"
    assert f"drawn to {file}" in succeed("route", "1 0", "--draw", file).err
    assert file.read_bytes().startswith(magic)
    assert succeed("route", "1 0", "--draw", file, "--json").json["drawing"] == str(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either a permutation, for example `riffle route 3 1 0 2`, or --random N"),
        (("1 0", "--random", 2), "either a permutation"),
        (("1 b",), "whole numbers from 0, got 'b'"),
        (("1 \u0660",), "whole numbers from 0, got '\u0660'"),
        (("9" * 5000, "0"), "consists of 0..1, but this one has 1"),
        (("1 0 2",), "got 3; add messages that stay where they are, up to 4"),
        (("--random", 12), "got 12"),
        (("1 0", "--draw", "no/folder.svg"), "No such file or directory (no/folder.svg)"),
        (("--random", 128, "--draw", "x.svg"), "up to 64 messages, got 128"),
    ],
)
def test_mistakes(arguments: tuple[object, ...], message: str) -> None:
    result = riffle("route", *arguments)
    assert (result.code, result.out) == (1, "")
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("error: ")
    assert message in result.err


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
