"""From novels to a corpus on disk."""

from __future__ import annotations

import json
import lzma
import os
import signal
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli.riffle_command import small_files

from research.lambada.passages import NgramIndex, PassageFilters
from research.lambada.prepare import PrepareConfig, prepare
from research.lambada.sources import source_bytes
from riffle.lambada import Corpus, tokenise

from .novels import novel, write_novels

PASSAGE = (
    "the rain had not stopped for days and the roof of the old mill let it in at three places , so that the miller "
    "slept in the cart . his daughter liked the mill all the same , because from its window one could see the sea and "
    "the ships . she would never leave the mill"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_novels(folder / "novels")
    (folder / "lambada_development_plain_text.txt").write_text(PASSAGE + "\nzyx saw qux and zyx\n")
    (folder / "vectors.txt").write_text("the 1 2\nsaw 3 4\nand 5 6\nmill 7 8\n")
    return folder


def plan(sources: Path, out: Path, **changed: Any) -> PrepareConfig:
    settings: dict[str, Any] = {
        "novels": [sources / "novels"],
        "evaluation": [sources / "lambada_development_plain_text.txt"],
        "vectors": sources / "vectors.txt",
        "workers": 1,
    }
    return PrepareConfig(out=out, **(settings | changed))


@pytest.fixture(scope="module")
def corpus(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    out = tmp_path_factory.mktemp("made") / "corpus"
    prepare(plan(sources, out))
    return Corpus(out)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "corpus.json"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_preparation_leaves_nothing_for_long(number: int, sources: Path, tmp_path: Path) -> None:
    config = plan(sources, tmp_path / "corpus", vectors=None)
    (tmp_path / ".corpus.backup").mkdir()
    child = os.fork()
    if child == 0:
        try:
            prepare(config, lambda consumed, words: os.kill(os.getpid(), number))
        finally:
            os._exit(9)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == (1 if number == signal.SIGTERM else 2)
    prepare(config)
    assert {path.name for path in tmp_path.iterdir()} == {".corpus.backup", "corpus"}
    assert Corpus(tmp_path / "corpus").splits
    before = os.umask(0)
    os.umask(before)
    assert (tmp_path / "corpus").stat().st_mode & 0o777 == 0o777 & ~before


def test_the_stream_is_the_text(corpus: Corpus, sources: Path) -> None:
    assert isinstance(corpus.tokens, np.memmap)
    text = [token for number in range(4) for token in tokenise((sources / f"novels/book{number}.txt").read_text())]
    assert [corpus.words[number] for number in corpus.tokens[: len(text)]] == text
    assert corpus.counts.sum() == len(text)
    assert (np.diff(corpus.counts) <= 0).all()


def test_splits(corpus: Corpus) -> None:
    assert corpus.splits == ["train", "validation", "within", "development"]
    train, validation = corpus.examples("train"), corpus.examples("validation")
    assert len(train) > 2 * len(validation) > 0
    # one of four books: all its examples lie in one part of the stream, where no training example is
    low, high = validation["start"].min(), (validation["start"] + validation["length"]).max()
    assert not ((train["start"] < high) & (train["start"] + train["length"] > low)).any()
    for example in (*train[:50], *validation[:50]):
        context, answer = corpus.passage(example)
        assert answer in context
        assert len(context) >= 50
    development = [corpus.passage(example) for example in corpus.examples("development")]
    assert [" ".join([*context, answer]) for context, answer in development] == [PASSAGE, "zyx saw qux and zyx"]


def test_report(corpus: Corpus) -> None:
    report = corpus.about["report"]
    assert (report["books"], report["words read"]) == (4, sum(len(novel(number).split()) for number in range(4)))
    assert 0.5 < report["unknown words"] < 1  # the table knows four words
    development = report["splits"]["development"]
    assert (development["passages"], development["answerable"], development["unknown answers"]) == (2, 1, 0.5)
    for split, numbers in report["splits"].items():
        assert sum(numbers["answers by rank"].values()) == numbers["passages"] == len(corpus.examples(split))
    counts = report["sentences and targets"]
    left_out = sum(counts[name] for name in ("too long", "function word", "answer not in passage", "near-duplicate"))
    found = sum(report["splits"][split]["passages"] for split in ("train", "validation"))
    assert counts["targets"] - left_out == found


def test_the_result_depends_neither_on_processes_nor_on_packing(corpus: Corpus, sources: Path, tmp_path: Path) -> None:
    seen = []
    prepare(plan(sources, tmp_path / "two", workers=2), lambda consumed, words: seen.append((consumed, words)))
    assert contents(tmp_path / "two") == contents(corpus.folder)
    assert seen == sorted(seen)
    assert seen[-1][0] == source_bytes(sources / "novels")
    with tarfile.open(tmp_path / "books.tar.xz", "w:xz") as tar:
        for number in range(4):
            tar.add(sources / f"novels/book{number}.txt", arcname=f"book{number}.txt")
    prepare(plan(sources, tmp_path / "packed", novels=[tmp_path / "books.tar.xz"]))
    assert contents(tmp_path / "packed")["tokens.npy"] == contents(corpus.folder)["tokens.npy"]


def test_evaluation_passages_are_kept_out(sources: Path, tmp_path: Path) -> None:
    text = novel(9)
    (tmp_path / "novels").mkdir()
    (tmp_path / "novels" / "a.txt.xz").write_bytes(lzma.compress(text.encode()))
    copied = " ".join(tokenise(text)[200:280])
    (tmp_path / "held.txt").write_text(copied + "\n")
    (tmp_path / "ready.txt").write_text(f"{copied}\nanna saw a boat and bought the boat\nhe met her and saw her\n")
    changed = {"novels": [tmp_path / "novels"], "evaluation": [tmp_path / "held.txt"]}
    report = prepare(plan(sources, tmp_path / "out", passages=[tmp_path / "ready.txt"], **changed))
    assert report["sentences and targets"]["near-duplicate"] > 1
    assert report["ready-made passages"] == 1
    made = Corpus(tmp_path / "out")
    words = [" ".join([*context, answer]) for context, answer in map(made.passage, made.examples("train"))]
    assert words[-1] == "anna saw a boat and bought the boat"
    ngrams = NgramIndex([copied.split()], 8)
    assert not any(ngrams.overlaps(passage.split()) for passage in words)


def test_at_most_so_many_of_one_answer(sources: Path, tmp_path: Path) -> None:
    prepare(plan(sources, tmp_path / "out", max_per_answer=3))
    made = Corpus(tmp_path / "out")
    answers = [made.passage(example)[1] for example in made.examples("train")]
    assert max(map(answers.count, answers)) == 3
    assert made.about["report"]["sentences and targets"]["same answer"] > 0


def test_failures_leave_nothing_behind(sources: Path, tmp_path: Path) -> None:
    novels = write_novels(tmp_path / "novels")
    (novels / "zz.txt").write_bytes(b"\xff\xfe")
    for workers in (1, 2):
        with pytest.raises(ValueError, match=r"zz\.txt is no text in UTF-8"):
            prepare(plan(sources, tmp_path / "out", novels=[novels], workers=workers))
    with pytest.raises(ValueError, match="no training passage was found in 4 books"):
        prepare(plan(sources, tmp_path / "out", filters=PassageFilters(context=5000, longest=5001)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there are no novels"):
        prepare(plan(sources, tmp_path / "out", novels=[tmp_path / "empty"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "novels"]


def test_what_is_there_is_kept(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    for overwrite, message in ((False, "exists already"), (True, "holds no prepared corpus")):
        with pytest.raises(ValueError, match=message):
            prepare(plan(sources, out, overwrite=overwrite))
    (out / "mine").unlink()
    prepare(plan(sources, out))
    (out / "mine").touch()
    prepare(plan(sources, out, overwrite=True))
    assert not (out / "mine").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_room_on_the_disk(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=source_bytes(sources / "novels") // 2))
    with pytest.raises(ValueError, match="0 MB at least, and 0 MB are free: make room"):
        prepare(plan(sources, tmp_path / "a" / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [1_000, 40_000])
def test_a_full_disk(limit: int, sources: Path, tmp_path: Path) -> None:
    """A limit of the size of a file acts like one of the disk, in the middle of ``tokens.npy``."""
    with small_files(limit), pytest.raises(OSError, match="File too large") as caught:
        prepare(plan(sources, tmp_path / "out"))
    assert caught.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_corpora_that_are_damaged(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(plan(sources, out))
    with pytest.raises(ValueError, match="no split 'test'; it has train, validation, within, development"):
        Corpus(out).examples("test")
    tokens, about = np.load(out / "tokens.npy"), json.loads((out / "corpus.json").read_text())
    cut_short = (out / "tokens.npy").read_bytes()[:-4]

    def read() -> None:
        corpus = Corpus(out)
        _ = corpus.tokens, corpus.words, corpus.examples("train"), corpus.examples("development")

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            read()

    for changed, message in (
        (tokens - 1, "tokens outside words"),
        (tokens + 1, "tokens outside words"),
        (tokens[:-1], r"development\.npy is not the file"),
        (tokens.astype(np.int64), "no list of int32"),
    ):
        np.save(out / "tokens.npy", changed)
        refused(message)
    (out / "tokens.npy").write_bytes(cut_short)
    refused(r"tokens\.npy is cut short")
    np.save(out / "tokens.npy", tokens)
    (out / "train.npy").unlink()
    refused(r"train\.npy is missing")
    (out / "words.txt").write_text("the\n")
    refused(r"words\.txt has 1 words")
    (out / "corpus.json").write_text(json.dumps(about | {"format": "other"}))
    refused("has the format 'other'")
    (out / "corpus.json").write_text("{")
    refused(r"corpus\.json is no record of a corpus")
