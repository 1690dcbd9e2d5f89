"""``riffle lambada`` as it is typed: ``prepare``, then ``eval``, ``solve`` and ``report`` with a trained run."""

from __future__ import annotations

import io
import json
import lzma
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed
from corpus.test_sources import official

from riffle.lambada import Corpus, load_vectors
from riffle.lambada.evaluate import PUBLISHED
from riffle.lambada.vectors import WordVectors, write_vectors

from .novels import write_novels

COMMANDS = ("prepare", "train", "eval", "solve", "report", "ship")
ROOT = Path(__file__).parents[2]
DOCS = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/lambada.md", "research/lambada/README.md"))
PASSAGE = "The cook was Alba. The guard was Otto. The smith was Ines. At noon the king waved to"
LIMIT = 0.9
"""The accuracy of a network that learned the corpus; one that knows names only would answer a third."""


def test_prepare(tmp_path: Path) -> None:
    novels = write_novels(tmp_path / "novels")
    options = ("--novels", novels, "--out", tmp_path / "out", "--workers", 1)
    result = succeed("lambada", "prepare", *options)
    assert "4 books" in result.out
    assert "million words a second" in result.out
    assert "validation" in result.out
    assert "The corpus is in" in result.err
    report = succeed("lambada", "prepare", *options, "--overwrite", "--any-word", "--json").json
    assert report["splits"]["train"]["passages"] == len(Corpus(tmp_path / "out").examples("train"))
    again = riffle("lambada", "prepare", *options)
    assert again.code == 1
    assert "exists already" in again.err


def test_the_official_archive(tmp_path: Path) -> None:
    novels = write_novels(tmp_path / "novels")
    archive = official(tmp_path / "lambada-dataset.tar.gz")
    options = ("--novels", novels, "--lambada", archive, "--out", tmp_path / "out", "--workers", 1, "--json")
    report = succeed("lambada", "prepare", *options).json
    assert report["books"] == 5
    assert list(report["splits"]) == ["train", "validation", "within", "development", "test"]


def test_help_says_what_to_download() -> None:
    text = " ".join(succeed("lambada", "prepare", "--help").out.replace("│", " ").split())
    assert "zenodo.org/records/2630551" in text
    assert "wiki-news-300d-1M.vec" in text


def test_mistakes(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    for arguments, message in (
        ((), "nothing to learn from"),
        (("--novels", tmp_path / "none"), "does not exist"),
        (("--download", tmp_path), "not downloaded without its checksum"),
        (("--novels", tmp_path, "--checksum", "md5:1"), "--checksum is for --download"),
        (("--novels", tmp_path, "--workers", 0), "workers is 0"),
    ):
        result = riffle("lambada", "prepare", *out, *arguments)
        assert result.code == 1
        assert message in " ".join(result.err.split())
        assert not (tmp_path / "out").exists()


def test_preparing_needs_no_torch() -> None:
    code = "import sys, research.lambada.prepare, research.lambada.books; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"^python -m research (lambada prepare .*)$", DOCS, re.MULTILINE)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    write_novels(tmp_path / "novels")
    (tmp_path / "lambada_development_plain_text.txt").write_text("zyx saw qux and zyx\n")
    (tmp_path / "glove.6B.300d.txt").write_text("the 1 2\nsaw 3 4\n")
    succeed(*command.group(1).split(), "--workers", 1)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
        exec(code, names)
    assert names["answer"] in names["context"]  # type: ignore[operator]
    options = set(re.findall(r"`(--[a-z-]+)", DOCS))
    monkeypatch.setenv("COLUMNS", "200")  # narrower, long options are cut
    shown = "".join(succeed("lambada", each, "--help").out for each in COMMANDS)
    assert {option for option in options if option not in shown} == {"--quick"}, "which is riffle reproduce's"


def test_what_was_learned_is_measured(run: Path, synthetic_corpus: Path) -> None:
    result = succeed("lambada", "eval", "--json").json
    assert result == json.loads((run / "evaluation.json").read_text())
    assert list(result["splits"]) == ["validation", "development"]
    development = result["splits"]["development"]
    assert development["passages"]["all"]["passages"] == 100
    assert development["passages"]["all"]["position"] > LIMIT
    assert development["rank"].keys() == {"unknown"}, "no name has a vector"
    assert sum(score["passages"] for score in development["distance"].values()) == 100
    shown = succeed("lambada", "eval", "--split", "development", "--corpus", synthetic_corpus).out
    assert "right by position" in shown
    assert "distance 1-10" in shown
    assert "validation" not in shown


def test_files_of_passages(run: Path) -> None:
    passages = [PASSAGE.replace(".", " .").lower() + " otto", "otto met ines and then one day he saw alba"]
    Path("some.txt").write_text("\n".join(passages) + "\n")
    Path("lambada_test_plain_text.txt.xz").write_bytes(lzma.compress(("\n".join(passages * 2) + "\n").encode()))
    files = ("--split", "some.txt", "--split", "lambada_test_plain_text.txt.xz")
    shutil.rmtree("nothing", ignore_errors=True)  # no corpus is needed
    splits = succeed("lambada", "eval", *files, "--corpus", "nothing", "--placements", 3, "--json").json["splits"]
    assert splits["some"]["passages"] == {
        "all": {"passages": 2, "position": 0.5, "word": 0.5},
        "answer in passage": {"passages": 1, "position": 1.0, "word": 1.0},
    }
    assert splits["test"]["passages"]["all"]["passages"] == 4


def test_long_passages_keep_their_end(run: Path) -> None:
    passage = PASSAGE.replace(".", " .").lower().split()
    Path("long.txt").write_text(" ".join([*["walked"] * 500, *passage, "otto"]) + "\n")
    score = succeed("lambada", "eval", "--split", "long.txt", "--json").json["splits"]["long"]
    assert score["passages"]["all"] == {"passages": 1, "position": 1.0, "word": 1.0}


def test_the_run_in_the_package_is_found_and_left_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").mkdir()
    shutil.move(run, tmp_path / "weights" / "lambada")
    monkeypatch.setattr("riffle.lambada.evaluate.SHIPPED", tmp_path / "weights")
    monkeypatch.setattr("riffle.train.shipped.SHIPPED", tmp_path / "weights")
    result = succeed("lambada", "eval", "--split", "development", "--json").json
    assert result["run"] == str(tmp_path / "weights" / "lambada")
    assert not (tmp_path / "weights" / "lambada" / "evaluation.json").exists()


def test_report(run: Path) -> None:
    missing = riffle("lambada", "report")
    assert "evaluation.json does not exist: make it with riffle lambada eval" in " ".join(missing.err.split())
    measured = succeed("lambada", "eval", "--split", "development", "--json").json["splits"]["development"]["passages"][
        "all"
    ]
    rows = succeed("lambada", "report", "--json").json
    assert [row["accuracy"] for row in rows] == sorted(row["accuracy"] for row in rows)
    ours = [row for row in rows if not row["published"]]
    assert [(row["split"], row["passages"], row["accuracy"]) for row in ours] == [
        ("development", 100, measured[way]) for way in sorted(("position", "word"), key=measured.__getitem__)
    ]
    assert len(rows) == len(PUBLISHED) + 2
    shown = succeed("lambada", "report", "--evaluation", run / "evaluation.json").out
    assert "52.16%" in shown
    assert "this run, by position" in shown
    (run / "evaluation.json").write_text('{"scores": []}')
    assert "is no evaluation of passages" in " ".join(riffle("lambada", "report").err.split())


def test_solve(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = succeed("lambada", "solve", f"{PASSAGE} ___.", "--json").json
    assert result["tokens"][8] == "otto"
    best = result["words"][0]
    assert (best["word"], best["positions"]) == ("otto", [8])
    assert 0.5 < best["probability"] <= 1
    assert len(result["words"]) == 5
    assert all(word["word"].isalpha() for word in result["words"]), "no marks"
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSAGE + "\n"))
    again = succeed("lambada", "solve", "-", "--top", 2, "--placements", 2, "--json").json
    assert again["words"][0]["word"] == "otto"
    assert len(again["words"]) == 2
    shown = succeed("lambada", "solve", *PASSAGE.split()).out
    assert shown.startswith(PASSAGE)
    assert "\x1b" not in shown


def test_the_documented_commands(run: Path) -> None:
    Path("lambada_test_plain_text.txt").write_text("zyx saw qux and then zyx\n")
    commands = re.findall(r"^riffle (lambada (?:eval|solve|report).*)$", DOCS, re.MULTILINE)
    assert {shlex.split(command)[1] for command in commands} == {"eval", "solve", "report"}
    for command in commands:
        succeed(*shlex.split(command))


@pytest.mark.parametrize(
    ("passage", "message"),
    [
        ("", "the passage is empty"),
        (" ___ ", "the passage is empty"),
        ("... !", "no words to choose from, only the marks ... !"),
        ("Otto met ___ and left", "has a blank before its end"),
    ],
)
def test_passages_that_cannot_be_ended(passage: str, message: str, run: Path) -> None:
    result = riffle("lambada", "solve", passage)
    assert result.code == 1
    assert message in " ".join(result.err.split())


def failure(*arguments: object) -> str:
    result = riffle("lambada", "solve", PASSAGE, *arguments)
    assert result.code == 1
    return " ".join(result.err.split())


def test_runs_that_cannot_read(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--steps", 1, "--features", 4, "--recipe", "small", "--device", "cpu")
    succeed("train", "reverse", *options, "--out", "other")
    assert "other was trained to 'reverse', not to read passages" in failure("--run", "other")
    assert "no run folder" in failure("--run", "nowhere")
    shutil.move(run, tmp_path / "elsewhere")
    monkeypatch.setattr("riffle.lambada.evaluate.SHIPPED", tmp_path / "no weights")
    assert "no run below runs reads passages" in failure()


def test_words_that_do_not_fit(run: Path) -> None:
    kept = run / "words.safetensors"
    vectors = load_vectors(kept)
    write_vectors(kept, WordVectors(vectors.words[::-1], vectors.table))
    assert "are not those the weights were trained with" in failure("--run", run)
    kept.write_bytes(kept.read_bytes()[:-10])
    assert "words.safetensors is damaged" in failure("--run", run)
    kept.write_bytes(b"")
    assert "words.safetensors is damaged" in failure("--run", run)


def test_splits_that_are_not_there(run: Path) -> None:
    for options, message in (
        (("--split", "tset"), "has no split 'tset'; it has train, validation, within, development"),
        (("--split", "tset", "--corpus", "nothing"), "tset is no file, and nothing holds no prepared corpus"),
        (("--corpus", "nothing"), "no passages were named, and nothing holds no prepared corpus"),
    ):
        result = riffle("lambada", "eval", *options)
        assert result.code == 1
        assert message in " ".join(result.err.split())
    assert not (run / "evaluation.json").exists()
