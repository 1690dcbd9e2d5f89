"""The dependence map is the Jacobian, and a trained reversal's is an antidiagonal, eight times past its training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from riffle import SequenceModel, ShuffleExchange
from riffle.inspect import dependence, source_positions, strongest_source
from riffle.models.sequence import EMBEDDING_SCALE
from riffle.tasks import TASKS, get_task
from riffle.tasks.task import SymbolTask
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED


def exact(model: SequenceModel, symbols_N: Tensor) -> Tensor:
    """By definition, for a length that is a power of two."""
    cells_1ND = torch.tanh(EMBEDDING_SCALE * model.embedding(symbols_N[None])).detach()
    jacobian = torch.func.jacrev(lambda cells_1ND: model.output(model.network(cells_1ND)))(cells_1ND)
    return jacobian[0, :, :, 0].square().sum(dim=(1, 3)).sqrt()


@pytest.mark.parametrize("unit", ["gated", "swap-gate", "two-fc-gate", "no-benes"])
def test_all_probes_are_exact(unit: str) -> None:
    model = SequenceModel(5, 7, 6, 2, unit=unit, dtype=torch.float64)  # type: ignore[arg-type]
    symbols_N = torch.randint(1, 5, (8,))
    for probes in (None, 7, 70):
        torch.testing.assert_close(dependence(model, symbols_N, probes=probes), exact(model, symbols_N))


def test_few_probes_are_right_on_average() -> None:
    model = SequenceModel(5, 7, 6, dtype=torch.float64)
    symbols_N = torch.randint(1, 5, (8,))
    squares = torch.stack([dependence(model, symbols_N, probes=2, seed=seed).square() for seed in range(200)])
    error = (squares.mean(dim=0) - exact(model, symbols_N).square()).abs()
    assert (error <= 5 * squares.std(dim=0) / len(squares) ** 0.5).all()


def test_cells_of_a_network() -> None:
    net, x = ShuffleExchange(4, dtype=torch.float64), torch.rand(5, 4, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda x_ND: net(x_ND[None])[0])(x)
    torch.testing.assert_close(dependence(net, x, probes=None), jacobian.square().sum(dim=(1, 3)).sqrt())
    torch.testing.assert_close(dependence(net, x[None], probes=None), dependence(net, x, probes=None))


def test_some_outputs_alone() -> None:
    model, symbols_N = SequenceModel(5, 7, 6), torch.randint(1, 5, (11,))
    rows: list[int] = []
    part = dependence(model, symbols_N, outputs=[10, 3], on_progress=rows.append)
    torch.testing.assert_close(part, dependence(model, symbols_N)[[10, 3]])
    assert sum(rows) == 2


def test_it_looks_at_a_model_as_it_is_used() -> None:
    model, symbols_N = SequenceModel(5, 7, 6, dropout=0.5).eval(), torch.randint(1, 5, (8,))
    still = dependence(model, symbols_N)
    with torch.no_grad():
        assert torch.equal(dependence(model.train(), symbols_N), still)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_mistakes() -> None:
    model = SequenceModel(5, 7, 6)
    with pytest.raises(ValueError, match="one sequence at a time, got a batch of 2"):
        dependence(model, torch.ones(2, 8, dtype=torch.int64))
    with pytest.raises(ValueError, match="probes must be at least 1, got 0"):
        dependence(model, torch.ones(8, dtype=torch.int64), probes=0)


@pytest.mark.timeout(600)
def test_reversal_is_an_antidiagonal_at_eight_times_the_trained_length() -> None:
    run = Run(SHIPPED / "reverse")
    length = 8 * run.config.data.longest_input
    symbols_N = get_task("reverse").sample(1, length, generator=torch.Generator().manual_seed(0)).inputs[0]
    outputs = [9 * index % length for index in range(length // 8)]  # an eighth of them, of every kind
    routing_R = strongest_source(dependence(run.model(), symbols_N, outputs=outputs, probes=2))
    right = (routing_R == length - 1 - torch.tensor(outputs)).float().mean()
    assert right >= 0.95  # a few depend still more on the last symbol, which says where the input ends


PLAIN = ("id", "reverse", "duplicate", "rev2", "left", "right", "bit-reversal")
MOVING = (*PLAIN, "duplicate-bits", "odds-first", "reverse-bits")


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("length", [1, 2, 6, 16, 130])
def test_tasks_that_move_symbols(name: str, length: int) -> None:
    task = get_task(name)
    inputs = task.sample(1, length, generator=torch.Generator().manual_seed(length)).inputs[0].tolist()
    sources = source_positions(task, inputs)
    assert sources is not None
    assert isinstance(task, SymbolTask)
    moved = [0 if source is None else inputs[source] for source in sources]
    expected = task.answer(torch.tensor([inputs]))[0].tolist()
    assert moved == expected


@pytest.mark.parametrize("name", sorted(TASKS.keys() - set(MOVING)))
def test_tasks_that_do_more(name: str) -> None:
    task = get_task(name)
    inputs = task.sample(1, 16, generator=torch.Generator().manual_seed(0)).inputs[0].tolist()
    assert source_positions(task, inputs) is None
