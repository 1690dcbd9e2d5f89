"""Atomic file writes, and JSON files."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: write a temporary file beside it, sync, rename.

    After a failure or a power cut the old file is still whole.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the user does not know the temporary name
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> Any:
    """The value in a JSON file, None if the file does not exist."""
    return json.loads(path.read_text()) if path.exists() else None


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
