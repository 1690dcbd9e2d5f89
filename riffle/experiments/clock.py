"""How long the runs of an experiment took together: time.json, an entry for each time they were set going."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from riffle.train.checkpoint import read_json, write_json


@contextmanager
def timed(path: Path, about: Mapping[str, Any], ended: Counter[str]) -> Iterator[None]:
    """Add an entry of what happens meanwhile, also where it is stopped.

    Args:
        path: The file.
        about: What the entry says of its origin.
        ended: How many runs were finished, stopped or failed, once it is over.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        yield
    finally:
        entry = {"started": started, "seconds": round(time.monotonic() - began, 1), **ended, **about}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, [*(read_json(path) or []), entry])
