"""Random edits of JSON and binary files."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

NUMBERS: tuple[float, ...] = (0, 1, -1, 2, 3, 7, 64, 1000, 2**31, 2**53, 2**63, 10**30, 0.5, -0.5, 1e-300, 1e308)
JUNK = st.one_of(
    st.sampled_from((None, True, False, *NUMBERS, float("nan"), -float("inf"))),
    st.sampled_from(("", "8", "x", "reverse", "lambada", "..", "a" * 10_000, "\x1b[31m", "\ud800", "\0")),
    st.sampled_from(([], {}, [None], [[]], [1, 2], ["a"], {"a": 1}, {"": None})),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
)
"""What may stand in a JSON file where something else belongs."""


@st.composite
def damaged_json(draw: st.DrawFn, text: str) -> bytes:
    """A JSON text in which one or two values were replaced, removed or added, or which is none any more."""
    if draw(st.integers(0, 4)) == 0:
        return draw(damaged_bytes(text.encode()))
    tree = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from(_paths(tree) or [()])) or (None,)
        if last is None:
            tree = draw(JUNK)
            continue
        node = tree
        for key in way:
            node = node[key]
        match draw(st.sampled_from(("replace", "replace", "remove", "add", "nest"))):
            case "replace":
                node[last] = draw(JUNK)
            case "remove":
                del node[last]
            case "nest":
                node[last] = [node[last]]
            case "add" if isinstance(node, dict):
                node[draw(st.text(max_size=5))] = draw(JUNK)
            case "add":
                node.insert(last, draw(JUNK))
    return json.dumps(tree).encode()


def _paths(tree: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a tree but the root."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path for key, value in items for path in ((*way, key), *_paths(value, (*way, key)))]


@st.composite
def damaged_lines(draw: st.DrawFn, text: str) -> bytes:
    """A file of JSON lines, one of which is damaged."""
    lines = text.splitlines()
    index = draw(st.integers(0, len(lines) - 1))
    damaged = draw(damaged_json(lines[index]))
    return b"\n".join([*(line.encode() for line in lines[:index]), damaged, *(x.encode() for x in lines[index + 1 :])])


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """A file that was cut, filled, lengthened or changed at a few places."""
    size = len(content)
    match draw(st.sampled_from(("cut", "flip", "flip", "insert", "fill", "digits", "other"))):
        case "cut":
            return content[: draw(st.integers(0, max(size - 1, 0)))]
        case "insert":
            at = draw(st.integers(0, size))
            return content[:at] + draw(st.binary(min_size=1, max_size=64)) + content[at:]
        case "fill":
            at = draw(st.integers(0, size))
            filled = draw(st.sampled_from((b"\0", b"\xff", b"A"))) * draw(st.integers(1, 64))
            return content[:at] + filled + content[at + len(filled) :]
        case "digits":  # numbers in a header, as text
            places = [match.span() for match in re.finditer(rb"\d+", content[:4096])]
            start, end = draw(st.sampled_from(places or [(0, 0)]))
            number = draw(st.sampled_from((b"0", b"-1", b"7", b"99999999999", b"1e9", b"184467440737095516150")))
            return content[:start] + number + content[end:]
        case "other":
            return draw(
                st.sampled_from((b"", b"\n", b"\xff" * 100, b"[" * 100_000, b"null", b"{}", b"[]", b'""', b"7"))
            )
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        # Headers matter more than the numbers behind them.
        at = draw(st.one_of(st.integers(0, min(size, 400) - 1), st.integers(0, size - 1)))
        changed[at] = draw(st.integers(0, 255))
    return bytes(changed)


@st.composite
def damaged_safetensors(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with a damaged header before the same tensors, or damaged anyhow."""
    if draw(st.booleans()):
        return draw(damaged_bytes(content))
    size = int.from_bytes(content[:8], "little")
    header = draw(damaged_json(content[8 : 8 + size].decode()))
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def damaged(name: str, content: bytes) -> st.SearchStrategy[bytes]:
    """Edits of a file, by its kind."""
    if name.endswith(".jsonl"):
        return damaged_lines(content.decode())
    if name.endswith(".json"):
        return damaged_json(content.decode())
    return damaged_safetensors(content) if name.endswith(".safetensors") else damaged_bytes(content)
