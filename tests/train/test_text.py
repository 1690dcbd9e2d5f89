"""Learning a text: what is held out is never drawn, and a trained network continues what it is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli.riffle_command import riffle

from riffle.config import CausalConfig, ModelConfig, TextDataConfig, TextRunConfig
from riffle.train.run import Run, check_config
from riffle.train.text import TextObjective, decode, encode

from .tiny import train, with_train

LINE = b"the night was dark and full of storms\n"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TextRunConfig:
    file = tmp_path_factory.mktemp("text") / "lines.txt"
    file.write_bytes(LINE * 60)
    return TextRunConfig(
        model=CausalConfig(features=16, dropout=0.0),
        data=TextDataConfig(bins=(32,), batch=8, file=str(file)),
        train=with_train(steps=60, learning_rate=0.02, evaluate_every=30, evaluate_lengths=(), log_every=60).train,
    )


@pytest.fixture(scope="module")
def run(config: TextRunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("run") / "text", config)


def test_windows_are_of_the_trained_part(config: TextRunConfig) -> None:
    objective = TextObjective(config)
    trained, held_out = objective.parts
    assert bytes([*trained.tolist(), *held_out.tolist()]) == LINE * 60
    assert len(held_out) == len(LINE) * 3
    (windows_SBN,) = objective.draw(500, torch.Generator().manual_seed(0))
    assert windows_SBN.shape == (500, 8, 33)
    text = bytes(trained.tolist())
    assert all(bytes(window) in text for window in windows_SBN[0].tolist())
    assert len(windows_SBN.flatten(0, 1).unique(dim=0)) == len(LINE)


def test_a_text_is_its_symbols() -> None:
    text = "Être, ou ne pas être\0".encode()
    assert decode(encode(text)) == text
    assert encode(text).min() == 1


def test_a_network_learns_and_writes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, model = TextObjective(run.config), run.model()  # type: ignore[arg-type]
    assert objective.bits_per_byte(model) < 3  # the letters by themselves have 4
    assert objective.evaluate(model)["the end of the text"] > 0.3
    monkeypatch.chdir(run.folder.parent)
    options = ("--count", 12, "--run", run.folder)
    written = riffle("write", "the night", "was", *options, "--seed", 1)
    assert written.code == 0, written.err
    assert written.out.startswith("the night was")
    record = riffle("write", "the night was", *options, "--seed", 1, "--json").json
    assert record["beginning"] + record["text"] == written.out.removesuffix("\n")


def test_mistakes(run: Run, config: TextRunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line, message in (
        (("train", "text"), "needs a file of text, --data FILE, got none"),
        (("train", "sort", "--data", config.data.file), "--data is for riffle train text"),
        (("write", "it"), "there is no run on a text"),
        (("write", "", "--run", run.folder), "no text to continue"),
        (("eval", run.folder), "use riffle write"),
    ):
        assert message in riffle(*line).err
    for wrong, message in (
        (replace(config, data=TextDataConfig(bins=(8, 16))), "one number of bytes"),
        (replace(config, model=ModelConfig()), "sees it"),
    ):
        with pytest.raises(ValueError, match=message):
            check_config(wrong)
    with pytest.raises(ValueError, match="too few to hold out"):
        TextObjective(replace(config, data=replace(config.data, bins=(512,)))).parts  # noqa: B018
