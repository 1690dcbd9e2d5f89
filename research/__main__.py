"""``python -m research``: every command of riffle, and those that need a clone."""

from __future__ import annotations

from research.cli import main

if __name__ == "__main__":
    main()
