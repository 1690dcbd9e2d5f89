"""Write the tables of README and docs, and the page's curves, from the result files, or check that they are up to date.

    python -m research.tables.readme [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath

from research.quantities import format_milliseconds
from research.registry import register
from research.tables import lambada, learning, speed
from research.tables.common import ROOT
from riffle.files import read_json
from riffle.quantities import format_bytes, format_percent


def facts() -> str:
    """What the network does, in three numbers."""
    adder = ROOT / "riffle" / "weights" / "add"
    scores = [score for score in read_json(adder / "evaluation.json")["scores"] if score["split"] == "uniform"]
    sums, record = max(scores, key=lambda score: score["length"]), read_json(speed.ATTENTION)
    million = read_json(speed.ONE_LAUNCH)["rows"]["infer-1m"]["forms"]["fused"]
    ours, encoder = (
        next(iter(record["attention"][f"{name}-262144"]["forms"].values())) for name in ("ours", "encoder")
    )
    return "\n".join(
        [
            f"- **{format_percent(sums['symbol_accuracy'])}** of the digits right in the sums of {sums['length']:,} "
            "cells it was tested on, by a [network](riffle/weights/add) that was trained on lengths up to 64.",
            f"- **{format_milliseconds(million['milliseconds'])}** for a sequence of a million cells, 192 maps, one "
            f"block, on one {record['device'].removeprefix('NVIDIA ')}, in {format_bytes(million['peak_bytes'])}.",
            f"- **{encoder['milliseconds'] / ours['milliseconds']:.0f} times** as fast at 256K cells, two blocks, as a "
            "six-layer encoder on FlashAttention.",
        ]
    )


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "facts": facts,
        "learns": learning.learns,
        "fast": speed.attention,
        "lambada": partial(lambada.lambada, short=True),
    },
    "docs/index.md": {"facts": facts},
    "docs/results.md": {
        "shipped": partial(learning.shipped, learning.OVER_LENGTH),
        "elsewhere": partial(learning.shipped, (*learning.ELSEWHERE, "8 times, carries over 31")),
    },
    "docs/speed.md": {
        "speed": speed.speed,
        "beside-attention": speed.beside_attention,
        "own-loop": speed.own_loop,
    },
    "docs/lambada.md": {"lambada": lambada.lambada},
    "docs/scaling.md": {"resident": speed.resident},
    "docs/when-to-use.md": {"cpu": speed.cpu},
    "research/accuracy.md": {
        "generalization": learning.generalization,
        "seeds": learning.seeds,
        "residual": learning.residual,
        "input-scale": learning.input_scale,
    },
    "research/benchmarks-of-others.md": {"chomsky": learning.chomsky, "listops": learning.listops},
    "research/deviations.md": {"historic": learning.historic},
    "research/rivals.md": {
        "rivals": learning.rivals,
        "timing-addition": partial(speed.timing, "timing-addition"),
        "timing-lambada": partial(speed.timing, "timing-lambada"),
    },
}
"""The tables of every page, by name."""
LINK = re.compile(r"\]\(([^)]+)\)")


def with_tables(page: str, text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with every table written anew; tables link to files by their paths in the repository."""
    folder = PurePath(page).parent
    for name, table in tables.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, marker, rest = text.partition(start)
        assert marker, f"the page has no place for the table {name}"
        lines = LINK.sub(lambda link: f"]({os.path.relpath(link[1], folder)})", table())
        text = before + start + (lines + "\n" if lines else "") + end + rest.partition(end)[2]
    return text


def main() -> None:
    register()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    check = parser.parse_args().check
    for page, tables in {**PAGES, "riffle/demo/rivals.json": None}.items():
        path = ROOT / page
        before = path.read_text()
        after = learning.page_rivals() if tables is None else with_tables(page, before, tables)
        if check and before != after:
            sys.exit(f"{page}'s tables are not those of the result files: run python -m research.tables.readme")
        path.write_text(after)


if __name__ == "__main__":
    main()
