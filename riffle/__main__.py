"""``python -m riffle`` is ``riffle``."""

from __future__ import annotations

from riffle.cli import main

main()
