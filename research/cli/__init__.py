"""``python -m research``: the commands of ``riffle``, and those that need a clone."""

from __future__ import annotations

import sys

from riffle import cli
from riffle.cli import Command

LAMBADA = {
    "prepare": Command("research.cli.prepare", "prepare"),
    "ship": Command("research.cli.reader", "ship"),
}
COMMANDS: cli.Commands = {
    **cli.COMMANDS,
    "lambada": cli.LAMBADA._replace(commands={**LAMBADA, **cli.LAMBADA.commands}),
    "reproduce": Command("research.cli.reproduce", "reproduce", "Measure"),
    "bench": Command("research.cli.bench", "bench", "Measure"),
    "plan": Command("research.cli.plan", "plan", "Measure"),
}


def main() -> None:
    """Run the command line with everything of the research registered."""
    if not {"-h", "--help"} & set(sys.argv):  # which needs no torch
        from research.registry import register

        register()
    cli.main(COMMANDS)
