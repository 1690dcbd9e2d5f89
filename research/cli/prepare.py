"""``python -m research lambada prepare``: novels to training passages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import TextColumn
from rich.table import Table

from riffle.cli.display import Json, errors, output, print_json, print_next, program, progress_bar
from riffle.quantities import format_percent


def prepare(
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    novels: Annotated[
        list[Path] | None, typer.Option(help="Novels: .txt, .txt.xz, .tar.xz, or a folder of them. Can be repeated.")
    ] = None,
    passages: Annotated[
        list[Path] | None, typer.Option(help="Ready-made training passages, one a line, the answer last.")
    ] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="Passages to measure by, one a line; training examples that overlap them are removed."),
    ] = None,
    lambada: Annotated[
        Path | None, typer.Option(help="LAMBADA's archive or its unpacked folder: novels and evaluation passages.")
    ] = None,
    download: Annotated[
        Path | None,
        typer.Option(help="Download LAMBADA's archive to this folder and use it; needs --checksum.", metavar="DIR"),
    ] = None,
    checksum: Annotated[
        str | None, typer.Option(help="Checksum that the archive must have: md5:DIGITS or sha256:DIGITS.")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors: fastText .vec, GloVe .txt or int8 .npz; kept for fast loading.")
    ] = None,
    context: Annotated[int, typer.Option(help="Fewest tokens before the target sentence.", min=0)] = 50,
    longest: Annotated[int, typer.Option(help="Most tokens of a passage.", min=2)] = 203,
    shortest_target: Annotated[int, typer.Option(help="Fewest tokens of the target sentence.", min=1)] = 2,
    stride: Annotated[int, typer.Option(help="1 of this many sentences can be a target.", min=1)] = 1,
    content: Annotated[
        bool, typer.Option("--content/--any-word", help="Leave out answers that are function words.")
    ] = True,
    in_passage: Annotated[
        bool, typer.Option("--in-passage/--anywhere", help="Leave out answers that are not in their passage.")
    ] = True,
    within: Annotated[
        bool, typer.Option(help="Also cut passages that end inside a sentence: many more to learn from.")
    ] = True,
    most: Annotated[int | None, typer.Option(help="Most training passages with the same answer.", min=1)] = None,
    run: Annotated[
        int, typer.Option(help="Words in a row shared with an evaluation passage that exclude a training passage.")
    ] = 8,
    validation: Annotated[float, typer.Option(help="Share of the books kept for validation.", min=0, max=1)] = 0.02,
    workers: Annotated[int | None, typer.Option(help="Processes.", show_default="one for each core, up to 8")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a corpus that is there.")] = False,
    json: Json = False,
) -> None:
    """Turn novels into passages to learn from.

    The folder holds one stream of tokens and an index of passages for train, validation (other books) and every
    evaluation file. It appears only when everything is done.

    What to download by hand: lambada-dataset.tar.gz (LAMBADA's novels and passages) from
    https://zenodo.org/records/2630551, for --lambada; word vectors, for --vectors: wiki-news-300d-1M.vec from
    fasttext.cc or glove.6B.300d.txt from nlp.stanford.edu/projects/glove.
    """
    from research.lambada.corpus import check_replaceable
    from research.lambada.passages import PassageFilters
    from research.lambada.prepare import PrepareConfig
    from research.lambada.prepare import prepare as prepare_corpus
    from research.lambada.sources import download_archive, source_bytes

    check_replaceable(out, overwrite)  # before minutes of work
    if checksum is not None and download is None:
        raise ValueError("--checksum is for --download, which was not given")
    archives = [path for path in (lambada, download_archive(download, checksum) if download else None) if path]
    config = PrepareConfig(
        out=out,
        novels=[*(novels or []), *archives],
        passages=passages or [],
        evaluation=[*(evaluation or []), *archives],
        vectors=vectors,
        filters=PassageFilters(
            context=context,
            longest=longest,
            shortest_target=shortest_target,
            stride=stride,
            content=content,
            in_passage=in_passage,
            within=within,
        ),
        ngram=run,
        validation=validation,
        max_per_answer=most,
        workers=min(os.cpu_count() or 1, 8) if workers is None else workers,
        overwrite=overwrite,
    )
    with progress_bar(TextColumn("MB, {task.fields[words]:.1f} million words")) as bar:
        job = bar.add_task("novels", total=round(sum(map(source_bytes, config.novels)) / 1e6), words=0.0)
        report = prepare_corpus(
            config, lambda consumed, words: bar.update(job, completed=round(consumed / 1e6), words=words / 1e6)
        )
    if json:
        return print_json(report)
    _print_report(report)
    errors.print(f"The corpus is in {out}.", markup=False, soft_wrap=True)
    print_next(f"{program()} lambada train --corpus {out}")


def _print_report(report: dict[str, Any]) -> None:
    rate = f"{report['words per second'] / 1e6:.2f} million words a second"
    output.print(f"{report['books']:,} books, {report['words read']:,} words in {report['seconds']:.0f} s: {rate}")
    unknown = format_percent(report["unknown words"])
    output.print(f"{unknown} of the tokens are unknown words; known are {report['known words']}", highlight=False)
    share = format_percent(report["answer in passage"])
    output.print(f"{share} of the target sentences end with a word of their passage, function words included")
    left_out = Table("sentences", "number", title="targets and what was left out", header_style="bold")
    for name, number in report["sentences and targets"].items():
        left_out.add_row(name, f"{number:,}")
    output.print(left_out)
    splits = report["splits"].values()
    table = Table("passages", *report["splits"], title="passages", header_style="bold")
    for name in ("passages", "mean length", "answer in passage", "answerable", "unknown answers"):
        table.add_row(name, *(_cell(split.get(name)) for split in splits))
    for rank in next(iter(splits)).get("answers by rank", {}):
        table.add_row(f"answer ranks {rank}", *(_cell(split.get("answers by rank", {}).get(rank)) for split in splits))
    output.print(table)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return format_percent(value) if value <= 1 else f"{value:.1f}"
