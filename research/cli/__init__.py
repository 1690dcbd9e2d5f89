"""``python -m research``: the commands of ``riffle``, and ``reproduce``, ``bench``, ``plan``, ``lambada prepare``."""

from __future__ import annotations

from research.cli.bench import bench
from research.cli.plan import plan
from research.cli.prepare import prepare
from research.cli.reproduce import reproduce
from research.registry import register
from riffle import cli
from riffle.cli.lambada import app as lambada


def main() -> None:
    """Run the command line with everything of the research registered."""
    register()
    for command in (bench, reproduce, plan):
        cli.app.command(command.__name__, rich_help_panel="Measure")(command)
    lambada.command()(prepare)
    cli.main()
