"""The command line inside this process: the same ``main`` without the seconds that importing torch takes."""

from __future__ import annotations

import io
import json
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from riffle.cli import main

TINY = ("--features", "8", "--set", "data.bins=4,8", "--set", "train.evaluate_lengths=8", "--device", "cpu")


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def riffle(*arguments: object) -> Result:
    """Run a command; what is not turned into an exit code comes out as the exception it is."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["riffle", *map(str, arguments)]),
        patch.object(threading, "excepthook", threading.excepthook),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def succeed(*arguments: object) -> Result:
    result = riffle(*arguments)
    assert result.code == 0, result
    return result
