"""``python -m riffle`` is ``riffle``."""

from riffle.cli import main

main()
