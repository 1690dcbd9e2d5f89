"""The command line inside this process: the same ``main`` without the seconds that importing torch takes."""

from __future__ import annotations

import io
import json
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
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


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file can grow beyond ``limit`` bytes, as if the disk were full: a write ends in ``OSError``."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
