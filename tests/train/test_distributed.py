"""Several processes train as one would: the same losses, the same weights everywhere, masks of their own."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from research.reproduce.synthetic import prepare_synthetic_corpus
from riffle import ShuffleExchange
from riffle.config import DataConfig, ModelConfig, RunConfig, TrainConfig, override
from riffle.recipes import lambada, with_model
from riffle.train import objective as objective_module
from riffle.train.checkpoint import read_checkpoint, write_checkpoint
from riffle.train.distributed import SINGLE_PROCESS, RankGroup, RankLost, local_device
from riffle.train.evaluate import symbol_loss
from riffle.train.loop import NonFiniteLoss
from riffle.train.loop import train as run_training
from riffle.train.run import Run
from riffle.train.step import TrainStep

from . import tiny
from .processes import Processes, together, train

QUIET = replace(tiny.TINY, model=ModelConfig(features=8, dropout=0.0))
"""Without random masks, the processes have nothing to differ in."""


def times_batch(config: RunConfig, size: int) -> RunConfig:
    return replace(config, data=replace(config.data, batch=size * config.data.batch))


def assert_close(one: Path, other: Path) -> None:
    """The same losses and weights to rounding, and the same counts."""
    pairs = list(zip(tiny.lines(one), tiny.lines(other), strict=True))
    assert pairs
    for a, b in pairs:
        assert a == pytest.approx(b, rel=1e-6)
    states = tiny.state(one), tiny.state(other)
    for name, tensor in states[0].items():
        if name.startswith(("model.", "schedule.")):
            torch.testing.assert_close(tensor, states[1][name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("size", [2, 4])
def test_as_one_process_with_a_larger_batch(size: int, tmp_path: Path) -> None:
    together(size, train, tmp_path / "many", QUIET)
    tiny.train(tmp_path / "one", times_batch(QUIET, size))
    assert_close(tmp_path / "many", tmp_path / "one")


def test_a_held_out_row_takes_weight_from_the_rows_of_all_ranks(tmp_path: Path) -> None:
    # One row in 16 is held out, so nearly every batch has ranks with different numbers of trained rows.
    config = replace(QUIET, data=DataConfig(bins=(16,), batch=8), train=replace(QUIET.train, steps=10))
    together(2, train, tmp_path / "many", config)
    tiny.train(tmp_path / "one", times_batch(config, 2))
    assert_close(tmp_path / "many", tmp_path / "one")


def test_the_neural_gpu_with_its_noise_cost_and_schedule(tmp_path: Path) -> None:
    config = with_model(replace(QUIET, train=replace(QUIET.train, steps=10, evaluate_every=0)), "dngpu")
    config = replace(config, model=replace(config.model, dropout=0.0))
    assert config.train.gradient_noise
    assert config.train.schedule == "plateau"
    together(2, train, tmp_path / "many", config)
    tiny.train(tmp_path / "one", times_batch(config, 2))
    assert float(tiny.state(tmp_path / "many")["model.saturation.period"][1]) > 0
    assert_close(tmp_path / "many", tmp_path / "one")


def test_passages_are_shared_out_too(tmp_path: Path) -> None:
    corpus = prepare_synthetic_corpus(tmp_path / "synthetic_corpus")
    config = override(
        lambada(),  # the rate is low: it multiplies what rounding makes of gradients that are 0, those of the last bias
        [
            "train.learning_rate=0.0001",
            *(f"data.corpus={corpus}", "data.bins=32", "data.batch=6", "data.word_dropout=0", "data.within=0.25"),
            *("model.features=8", "model.dropout=0", "train.precision=fp32", "train.steps=6", "train.warmup=0"),
            *("train.log_every=2", "train.evaluate_every=0", "train.checkpoint_every=3"),
        ],
    )
    together(2, train, tmp_path / "many", config)
    tiny.train(tmp_path / "one", times_batch(config, 2))
    assert_close(tmp_path / "many", tmp_path / "one")


def test_one_process_is_as_without_ranks(tmp_path: Path) -> None:
    tiny.train(tmp_path / "plain")
    together(1, train, tmp_path / "alone", tiny.TINY)
    tiny.assert_same_run(tmp_path / "plain", tmp_path / "alone")
    rows_BN = torch.zeros(4, 2)
    assert SINGLE_PROCESS.shard(rows_BN) is rows_BN


def test_ranks_drop_different_features() -> None:
    masks = []
    for rank in range(3):
        torch.manual_seed(0)
        RankGroup(rank, 3).seed(0)
        masks.append(F.dropout(torch.ones(64)))
    assert not any(torch.equal(masks[a], masks[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_every_rank_takes_its_own_rows() -> None:
    inputs_BN = torch.arange(12).view(6, 2)
    for dim, rows in ((0, inputs_BN), (1, inputs_BN.t())):
        owned = [RankGroup(rank, 3).shard(rows, dim) for rank in range(3)]
        assert torch.equal(torch.cat(owned, dim), rows)


def test_resumed_by_another_number_of_processes(tmp_path: Path) -> None:
    folder, steps = tmp_path / "run", TrainConfig(steps=30, log_every=4, evaluate_every=0, checkpoint_every=10)
    config = replace(tiny.TINY, train=steps)
    together(2, part_of, folder, config, 10)
    assert {"sums.1", "random.cpu.1"} <= tiny.state(folder).keys()
    together(4, part_of, folder, config, 20)
    assert {"sums.3", "random.cpu.3"} <= tiny.state(folder).keys()
    tiny.resume(folder, config)
    assert Run(folder).saved_step() == 30
    assert not {"sums.1", "random.cpu.1"} & tiny.state(folder).keys()
    assert [line["step"] for line in tiny.lines(folder)] == [4, 8, 12, 16, 20, 24, 28, 30]


def part_of(ranks: RankGroup, folder: Path, config: RunConfig, until: int) -> None:
    """Train up to a checkpoint, and go no further."""
    ranks.rank0_first(lambda: (Run.resume if folder.exists() else Run.create)(folder, config))
    run = Run(folder)
    save = run.save

    def last(step: TrainStep) -> None:
        save(step)
        if int(step.step) == until:
            raise KeyboardInterrupt

    run.save = last  # type: ignore[method-assign]
    try:
        run_training(run, ranks=ranks)
    except KeyboardInterrupt:
        ranks.close()


def test_ranks_with_different_checkpoints_are_refused(tmp_path: Path) -> None:
    together(2, train, tmp_path / "0", QUIET)
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    tensors = read_checkpoint(tmp_path / "1" / "checkpoint.safetensors")
    tensors["optimizer.0.exp_avg"] += 1e-6
    write_checkpoint(tmp_path / "1" / "checkpoint.safetensors", tensors)
    for outcome in Processes(2, each_its_own, tmp_path).outcomes():
        assert isinstance(outcome, ValueError)
        assert "the ranks have different weights or training states" in str(outcome)


def each_its_own(ranks: RankGroup, folder: Path) -> None:
    run_training(Run(folder / str(ranks.rank)), ranks=ranks)


def test_a_loss_that_is_not_finite_on_one_rank_ends_all(tmp_path: Path) -> None:
    for outcome in Processes(2, spoilt, tmp_path / "run").outcomes():
        assert "NonFiniteLoss: the loss is not finite at step 13" in str(outcome)
        assert "at step 10. Try a smaller learning rate" in str(outcome)


def spoilt(ranks: RankGroup, folder: Path) -> None:
    calls = 0

    def loss(logits_XC: Tensor, targets_X: Tensor, label_smoothing: float = 0.0) -> Tensor:
        nonlocal calls
        calls += 1
        return symbol_loss(logits_XC, targets_X, label_smoothing) * (math.nan if calls == 13 else 1)

    if ranks.rank == 1:
        objective_module.symbol_loss = loss
    try:
        train(ranks, folder, QUIET)
    except NonFiniteLoss as error:
        raise RuntimeError(f"NonFiniteLoss: {error}") from None


def test_a_mistake_of_rank_0_ends_all_and_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    first, second = Processes(2, begin, tmp_path).outcomes()
    assert isinstance(first, FileExistsError)
    assert isinstance(second, SystemExit)


def begin(ranks: RankGroup, folder: Path) -> None:
    ranks.rank0_first(lambda: Run.create(folder, QUIET))


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_device("cuda:1") == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert local_device("cuda") == torch.device("cuda:1")
    assert local_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="--device cuda:0 cannot be met: use --device cuda"):
        local_device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"no GPU for process 2 .* sees 2: use --nproc-per-node 2"):
        local_device("cuda")


def test_a_rank_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(RankLost, match="rank 1 of 2 stops: another rank"):
        RankGroup.from_environment(torch.device("cpu"), timeout=1)


PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def recipe(ranks: RankGroup) -> dict[str, np.ndarray]:
    """The gradients that the documentation's example leaves on this rank."""
    (text,) = re.findall(r"^## Both at once$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(text, PAGE, "exec"), names)
    assert (names["data"].size, names["sequence"].size) == (2, 2)
    return {name: parameter.grad.numpy() for name, parameter in names["net"].named_parameters()}


def test_the_documented_recipe_gives_the_gradients_of_one_device() -> None:
    torch.manual_seed(0)
    net = ShuffleExchange(16, blocks=2)
    x_BND = torch.rand(8, 64, 16, generator=torch.Generator().manual_seed(2))
    net(x_BND).square().mean().backward()
    for answer in together(4, recipe):
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            expected = parameter.grad.numpy()
            assert np.abs(answer[name] - expected).max() <= 1e-6 * np.abs(expected).max(), name
