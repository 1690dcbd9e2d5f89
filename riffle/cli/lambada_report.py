"""``riffle lambada report``: a run's accuracy beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from riffle.cli.display import Json, errors, output, print_json
from riffle.cli.lambada_eval import RunOption
from riffle.quantities import format_percent


def report(
    run: RunOption = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="A file that riffle lambada eval wrote.", show_default="RUN/evaluation.json"),
    ] = None,
    json: Json = False,
) -> None:
    """Show the paper's table of accuracies on LAMBADA with those of a run in their place.

    The published figures are of LAMBADA's test set; a run's are of the splits it was evaluated on.
    """
    from riffle.lambada.evaluate import PUBLISHED, find_reader

    path = evaluation or find_reader(run).folder / "evaluation.json"
    rows: list[dict[str, Any]] = [{**each._asdict(), "split": "test", "published": True} for each in PUBLISHED]
    rows += [{**row, "published": False} for row in _measured(path)]
    rows.sort(key=lambda row: row["accuracy"])
    if json:
        print_json(rows)
        return
    table = Table("model", "split", title="LAMBADA", title_justify="left", header_style="bold")
    table.add_column("passages", justify="right")
    table.add_column("accuracy", justify="right")
    for row in rows:
        passages = "" if row["published"] else f"{row['passages']:,}"
        style = None if row["published"] else "bold green"
        table.add_row(row["model"], row["split"], passages, format_percent(row["accuracy"]), style=style)
    output.print(table)
    errors.print(f"this run: {path}; published figures are of the test set", markup=False, soft_wrap=True)


def _measured(path: Path) -> list[dict[str, Any]]:
    """The rows of an evaluation: every split by position and by word."""
    from json import JSONDecodeError, loads

    try:
        splits = loads(path.read_text())["splits"]
        return [
            {"model": f"this run, by {way}", "accuracy": scores["passages"]["all"][way], "split": split}
            | {"passages": scores["passages"]["all"]["passages"]}
            for split, scores in splits.items()
            for way in ("position", "word")
        ]
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: make it with riffle lambada eval") from None
    except (JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no evaluation of passages ({error!r}): make it with riffle lambada eval") from None
