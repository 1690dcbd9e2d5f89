"""``riffle lambada`` as it is typed: ``eval`` and ``solve`` with a trained run."""

from __future__ import annotations

import io
import json
import lzma
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli.riffle_command import riffle, succeed

from riffle.lambada import load_vectors
from riffle.lambada.vectors import WordVectors, write_vectors

DOCS = (Path(__file__).parents[2] / "docs" / "lambada.md").read_text(encoding="utf-8")
PASSAGE = "The cook was Alba. The guard was Otto. The smith was Ines. At noon the king waved to"
LIMIT = 0.9
"""The accuracy of a network that learned the corpus; one that knows names only would answer a third."""


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
    Path("long.txt").write_text(f"{'walked ' * 500}{passages[0]}\n")
    Path("lambada_test_plain_text.txt.xz").write_bytes(lzma.compress(("\n".join(passages * 2) + "\n").encode()))
    files = ("--split", "some.txt", "--split", "long.txt", "--split", "lambada_test_plain_text.txt.xz")
    shutil.rmtree("nothing", ignore_errors=True)  # no corpus is needed
    splits = succeed("lambada", "eval", *files, "--corpus", "nothing", "--placements", 3, "--json").json["splits"]
    assert splits["some"]["passages"] == {
        "all": {"passages": 2, "position": 0.5, "word": 0.5},
        "answer in passage": {"passages": 1, "position": 1.0, "word": 1.0},
    }
    assert splits["long"]["passages"]["all"]["word"] == 1, "the end of a long passage is read"
    assert splits["test"]["passages"]["all"]["passages"] == 4


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
    commands = re.findall(r"^riffle (lambada (?:eval|solve).*)$", DOCS, re.MULTILINE)
    assert {shlex.split(command)[1] for command in commands} == {"eval", "solve"}
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
