"""``riffle lambada eval``, ``solve`` and ``report`` as they are typed, with a run that learned something."""

from __future__ import annotations

from pathlib import Path

from cli.riffle_command import succeed


def test_eval(run: Path) -> None:
    result = succeed("lambada", "eval", "--json").json
    print({k: v["passages"] for k, v in result["splits"].items()})
    assert 0
