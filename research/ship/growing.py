"""Run a program of this package with as many Beneš blocks as address bits: O(log² n) layers in place of O(log n).

    python benchmarks/growing.py -m riffle train multiply --set model.blocks=2 --set model.sharing=full ...
    python benchmarks/growing.py benchmarks/trials.py --measure FOLDER

All blocks have the same weights, so ``model.sharing`` must be full; ``model.blocks`` is then only the least number of
blocks. This is the depth that the paper's discussion proposes for multiplication.
"""

from __future__ import annotations

import functools
import runpy
import sys
from typing import Any

from riffle.kernels import plan
from riffle.nn import network
from riffle.shuffle import Layer, schedule


@functools.cache
def growing_schedule(k: int, blocks: int = 1, *arguments: Any, **options: Any) -> tuple[Layer, ...]:
    """The layers of a network of ``k`` Beneš blocks on ``2**k`` cells."""
    return schedule(k, max(k, blocks), *arguments, **options)


def main() -> None:
    """Run a script, or a module after ``-m``."""
    network.schedule = plan.schedule = growing_schedule
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
