"""``riffle demo``: the web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from riffle.cli.display import errors, output

RUNS = Path("runs")


def demo(
    runs: Annotated[Path, typer.Option(help="Where to look for trained runs, beside the shipped ones.")] = RUNS,
    host: Annotated[str, typer.Option(help="Address to serve at; 0.0.0.0 serves other machines too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 7860,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Serve a web page to solve inputs, measure accuracy, look at the switches, and route permutations.

    riffle demo  ·  riffle demo --runs runs --port 8000
    """
    from importlib.util import find_spec

    if find_spec("gradio") is None:
        raise ImportError("the web page needs gradio, which is not installed: pip install 'riffle-nn[demo]'")
    if runs != RUNS and not runs.is_dir():
        raise ValueError(f"there is no folder {runs}")
    from riffle.demo.server import open_socket, serve
    from riffle.demo.solve import RunCatalogue

    catalogue = RunCatalogue(runs)
    with open_socket(host, port) as listening:
        shown = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        output.print(f"The page is at {escape(address)}", highlight=False, soft_wrap=True)
        errors.print(f"{len(catalogue.models)} trained models; Ctrl-C ends it", highlight=False)
        if not no_open:
            import webbrowser

            webbrowser.open(address)  # the request waits in the socket's queue until the server has started
        serve(catalogue, listening)
