"""Saving and loading: the same network comes back, from plain files, or nothing does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from riffle import ShuffleExchange
from riffle.nn import UNITS

from .golden import load

CONFIGS = [
    {"blocks": 2},
    {"blocks": 3, "sharing": "minimal", "dropout": 0.1},
    {"blocks": 2, "sharing": "full", "noise": 0.001},
    {"blocks": 1, "sharing": "none", "length": 16},
    *({"blocks": 2, "unit": unit} for unit in UNITS),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_round_trip(config: dict, tmp_path: Path) -> None:
    net = ShuffleExchange(6, **config)
    net.save_pretrained(tmp_path)
    loaded = ShuffleExchange.from_pretrained(tmp_path)
    for name in ("features", "blocks", "sharing", "unit", "dropout", "noise", "length", "order", "backend"):
        assert getattr(loaded, name) == getattr(net, name)
    assert not loaded.training
    x_BND = torch.randn(2, 16, 6)
    assert torch.equal(loaded(x_BND), net.eval()(x_BND))


def test_official_weights_keep_their_order(tmp_path: Path) -> None:
    golden = load("net_std_L8_m8_b1_B2")
    net = ShuffleExchange.from_official(golden.under("var/"))
    net.save_pretrained(tmp_path)
    x_BND = torch.from_numpy(golden["input"])
    assert torch.equal(ShuffleExchange.from_pretrained(tmp_path)(x_BND), net(x_BND))


def test_device_and_dtype_are_the_callers(tmp_path: Path) -> None:
    net = ShuffleExchange(6, 2, device="cpu", dtype=torch.float64)
    net.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "device": "cuda:7"}))
    loaded = ShuffleExchange.from_pretrained(tmp_path, dtype=torch.float64)
    for parameter, saved in zip(loaded.parameters(), net.parameters(), strict=True):
        assert torch.equal(parameter, saved)
    assert {parameter.dtype for parameter in ShuffleExchange.from_pretrained(tmp_path).parameters()} == {torch.float32}


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights_are_an_error(keep: int, tmp_path: Path) -> None:
    ShuffleExchange(6).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(SafetensorError):
        ShuffleExchange.from_pretrained(tmp_path)


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    ShuffleExchange(6).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["units.last.candidates_bias"]
    save_file(tensors, file)
    with pytest.raises(RuntimeError, match=r"units\.last\.candidates_bias"):
        ShuffleExchange.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        ShuffleExchange.from_pretrained(tmp_path)


def test_a_configuration_that_does_not_fit_the_weights_is_an_error(tmp_path: Path) -> None:
    ShuffleExchange(6, 2).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "blocks": 3}))
    with pytest.raises(RuntimeError, match="2_forward"):
        ShuffleExchange.from_pretrained(tmp_path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    ShuffleExchange(4).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="is a pickle, which could run any code"):
        ShuffleExchange._load_as_pickle(ShuffleExchange(4), str(tmp_path / "pytorch_model.bin"), "cpu", True)


def test_the_card_says_how_to_load_it(tmp_path: Path) -> None:
    ShuffleExchange(6).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "license: mit" in card
    assert "ShuffleExchange.from_pretrained" in card
    assert "papers.nips.cc" in card
    assert "More Information Needed" not in card
