"""Bins of lengths, and the line between training and test examples."""

from __future__ import annotations

import zlib

import pytest
import torch

from riffle.config import DataConfig
from riffle.tasks import TASKS, Batch, get_task
from riffle.train.data import (
    ALWAYS_TRAINED,
    held_out,
    move_right,
    sample_bin,
    sample_held_out,
    sample_lengths,
)

BINS = (8, 16, 32)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lengths_of(index: int, shorter: float, rows: int = 20_000) -> torch.Tensor:
    """Lengths of many examples of a bin; an input of ``reverse`` has as many symbols as it is long."""
    data = DataConfig(bins=BINS, shorter=shorter)
    batch = sample_bin(get_task("reverse"), data, index, rows, generator=seeded(index))
    assert batch.inputs.shape == batch.targets.shape == (rows, BINS[index])
    return (batch.inputs != 0).sum(dim=1)


def assert_uniform(lengths: torch.Tensor, low: int, high: int) -> None:
    counts = lengths.bincount(minlength=high + 1)
    assert counts[:low].sum() == 0
    assert len(counts) == high + 1
    expected = len(lengths) / (high - low + 1)
    spread = expected**0.5
    assert ((counts[low:] - expected).abs() < 5 * spread).all(), counts


@pytest.mark.parametrize("index", [1, 2])
def test_a_bin_has_its_own_lengths_and_a_few_shorter(index: int) -> None:
    lengths = lengths_of(index, 0.05)
    own = lengths > BINS[index - 1]
    assert 0.045 < (~own).double().mean() < 0.055
    assert_uniform(lengths[own], BINS[index - 1] + 1, BINS[index])
    assert_uniform(lengths[~own], 1, BINS[index - 1])


def test_bins_with_nothing_or_only_shorter() -> None:
    assert_uniform(lengths_of(0, 0.05), 1, BINS[0])
    assert_uniform(lengths_of(1, 0.0), 9, 16)
    assert_uniform(lengths_of(1, 1.0), 1, 8)
    assert (sample_lengths(50, 1, 1, 0.5, generator=seeded(0)) == 1).all()
    assert set(sample_lengths(50, 2, 2, 0.5, generator=seeded(0)).tolist()) == {1, 2}


def test_a_share_of_a_bin_is_as_long_as_it() -> None:
    lengths = sample_lengths(20_000, 17, 32, 0.1, 0.4, generator=seeded(0))
    assert 0.09 < (lengths < 17).double().mean() < 0.11
    full = 0.4 + 0.5 / 16  # by choice and by chance
    assert full - 0.01 < (lengths == 32).double().mean() < full + 0.01
    assert_uniform(lengths[(lengths >= 17) & (lengths < 32)], 17, 31)


def test_a_share_of_a_bin_is_a_little_longer_than_a_power_of_two() -> None:
    lengths = sample_lengths(20_000, 33, 64, 0.2, 0.1, 0.5, generator=seeded(0))
    just_above = 0.5 / 5 + 0.2 / 32  # one of five orders, and by chance
    assert abs((lengths == 33).double().mean() - just_above) < 0.01
    assert abs((lengths <= 32).double().mean() - 0.2) < 0.01
    wide = sample_lengths(20_000, 1, 64, 0.2, 0.0, 1.0, generator=seeded(0))  # a bin wider than any input
    assert set(wide.tolist()) == set(range(3, 64)) - {4, 8, 16, 32}
    for power in (2, 4, 8, 16, 32):
        assert abs(((wide > power) & (wide < 2 * power)).double().mean() - 1 / 5) < 0.01


def test_a_share_of_a_bin_has_no_room_for_its_answer() -> None:
    task, data = get_task("duplicate"), DataConfig(bins=(8, 16, 64), longest=16, cropped=0.5)
    for index, width in enumerate(data.bins):
        batch = sample_bin(task, data, index, 4000, generator=seeded(index))
        symbols = (batch.inputs != 0).sum(dim=1)
        cropped = 2 * symbols > width
        assert torch.equal(batch.targets, task.answer(batch.inputs))
        assert (batch.targets[cropped] != 0).all()
        assert (0.4 < cropped.double().mean() < 0.55) if width <= 16 else not cropped.any()
        assert symbols.max() == (width if width <= 16 else 8)


def test_bins_beyond_the_longest_input_hold_every_length() -> None:
    data = DataConfig(bins=(8, 16, 32, 64), longest=20, shorter=0.0)
    for index, low, high in ((1, 9, 16), (2, 17, 20), (3, 1, 20)):
        batch = sample_bin(get_task("reverse"), data, index, 20_000, generator=seeded(index))
        assert batch.inputs.shape == (20_000, data.bins[index])
        assert_uniform((batch.inputs != 0).sum(dim=1), low, high)
    assert (data.longest_input, DataConfig().longest_input) == (20, 64)


def test_a_share_of_a_bin_is_structured() -> None:
    task, rows = get_task("sort"), 4000
    drawn, mixed = (
        sample_bin(task, DataConfig(bins=BINS, structure=share), 2, rows, generator=seeded(3)).inputs
        for share in (0.0, 0.5)
    )
    assert torch.equal(drawn != 0, mixed != 0), "lengths stay as they are"
    assert 0.45 < (drawn != mixed).any(dim=1).double().mean() < 0.52
    different = torch.tensor([len(set(row) - {0}) for row in mixed[(drawn != mixed).any(dim=1)].tolist()])
    assert (different.bincount(minlength=12)[1:] > 0.005 * len(different)).all(), "every number of different symbols"


def test_examples_start_at_every_cell_with_room() -> None:
    task, rows = get_task("duplicate"), 20_000
    batch = task.sample(rows, 24, generator=seeded(0))
    batch = Batch(*(torch.nn.functional.pad(symbols, (0, 8)) for symbols in batch))
    moved = move_right(batch, 0.5, generator=seeded(1))
    starts = (moved.inputs != 0).int().argmax(dim=1)
    assert 0.5 - 0.5 / 9 - 0.02 < (starts > 0).double().mean() < 0.5
    assert_uniform(starts[starts > 0], 1, 8)
    for row in range(0, rows, 997):
        for before, after in zip(batch, moved, strict=True):
            assert torch.equal(after[row], before[row].roll(int(starts[row])))


EXAMPLES_BEFORE_STRUCTURE = {
    "duplicate": 3465741937,
    "reverse": 4138237356,
    "sort": 1218873188,
    "add": 2833316917,
    "multiply": 2922309309,
    "id": 2908545501,
    "left": 1295348224,
    "right": 2165264758,
    "rev2": 1593225531,
    "bit-reversal": 1173063031,
    "rotate": 3549842219,
    "kv-sort": 2119710759,
    "word-sort": 1641190147,
    "merge": 1923976755,
    "search": 564397228,
    "memory-index": 2108652441,
    "dyck": 362449690,
    "dyck-continue": 2431263584,
    "increment": 298047232,
    "add-base4": 1223314016,
    "add-decimal": 1259160167,
    "multiply-base4": 2598011983,
    "multiply-decimal": 703106300,
    "multiply-bcd": 1811415282,
    "divide": 3472061759,
}


@pytest.mark.parametrize("name", EXAMPLES_BEFORE_STRUCTURE)
def test_examples_of_earlier_recipes_stay_the_same(name: str) -> None:
    """Recorded before there were structured examples: a recipe without them trains on the same examples as then."""
    batch = sample_bin(TASKS[name], DataConfig(bins=BINS, full=0.2), 2, 48, generator=seeded(3))
    examples = batch.inputs.numpy().tobytes() + batch.targets.numpy().tobytes()
    assert zlib.crc32(examples) == EXAMPLES_BEFORE_STRUCTURE[name]


def test_drawing_depends_on_the_generator_alone() -> None:
    task = get_task("add")
    first = sample_bin(task, DataConfig(bins=BINS), 2, 16, generator=seeded(7))
    torch.manual_seed(99)
    again = sample_bin(task, DataConfig(bins=BINS), 2, 16, generator=seeded(7))
    other = sample_bin(task, DataConfig(bins=BINS), 2, 16, generator=seeded(8))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert torch.equal(first.targets, task.answer(first.inputs))
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("name", ["reverse", "sort", "duplicate", "add", "multiply", "dyck", "kv-sort"])
def test_a_sixteenth_is_held_out_whatever_the_padding(name: str) -> None:
    inputs_BN = get_task(name).sample(8192, 40, generator=seeded(1)).inputs
    held_B = held_out(inputs_BN)
    assert 0.85 / 16 < held_B.double().mean() < 1.15 / 16
    for blanks in (1, 24, 1000):
        assert torch.equal(held_out(torch.nn.functional.pad(inputs_BN, (0, blanks))), held_B)
    assert torch.equal(held_out(inputs_BN.flip(0)), held_B.flip(0))


@pytest.mark.parametrize("symbols", range(1, 20))
def test_short_examples_are_all_trained_on(symbols: int) -> None:
    rows_BN = torch.randint(1, 12, (2000, symbols), generator=seeded(symbols))
    held = held_out(torch.nn.functional.pad(rows_BN, (0, 30))).any()
    assert held == (symbols >= ALWAYS_TRAINED)


def test_order_and_every_symbol_matter() -> None:
    rows_BN = torch.randint(1, 12, (4096, 16), generator=seeded(0))
    held_B = held_out(rows_BN)
    for column in range(16):
        changed = rows_BN.clone()
        changed[:, column] = changed[:, column] % 11 + 1
        both = (held_B & held_out(changed)).double().mean()
        assert both < 3 / 256, f"symbol {column} hardly matters"
    assert (held_B & held_out(rows_BN.roll(1, 1))).double().mean() < 3 / 256


def test_the_line_never_moves() -> None:
    """Runs of earlier versions must not find their training examples among the test examples."""
    rows_BN = ((torch.arange(4096)[:, None] + 1) * (torch.arange(16) + 3) ** 5 >> 6) % 11 + 1
    held = held_out(rows_BN).nonzero().flatten().tolist()
    assert (len(held), held[:6]) == (343, [12, 59, 62, 75, 79, 92])


@pytest.mark.parametrize("name", ["reverse", "add", "sort"])
@pytest.mark.parametrize("length", [16, 33])
def test_only_held_out_examples_are_tested(name: str, length: int) -> None:
    task = get_task(name)
    for seed, batch in enumerate([1] * 40 + [2, 3, 8, 100]):
        drawn = sample_held_out(task, batch, length, generator=seeded(seed))
        assert drawn.inputs.shape == (batch, length)
        assert torch.equal(drawn.targets, task.answer(drawn.inputs))
        assert held_out(drawn.inputs).all(), f"batch {batch}, seed {seed}"


def test_held_out_examples_are_as_many_as_asked_where_there_are_none() -> None:
    drawn = sample_held_out(get_task("reverse"), 50, 5, generator=seeded(0))
    assert drawn.inputs.shape == (50, 5)
    assert not held_out(drawn.inputs).any()
