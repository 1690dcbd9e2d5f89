"""Which input an output depends on, by the Jacobian, the routing that shows, and where errors fall."""

# B = batch, N = length, W = 2**k cells the network runs on, D = features per cell; C = features of an output (classes
# of a model, D of a network); R = outputs looked at, S = probes for each, Q = probes at once, T = test inputs
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.inspect.trace import network_input
from riffle.models.sequence import SequenceModel
from riffle.nn.execute import reference_layer, shuffled_layer, walk
from riffle.shuffle import bits
from riffle.tasks.task import BLANK, SymbolTask, Task
from riffle.train.data import sample_held_out
from riffle.train.evaluate import batch_rows

PROBES_AT_ONCE = 16
"""Gradients that :func:`dependence` computes in one backward pass."""


def dependence(
    net: nn.Module,
    x: Tensor,
    *,
    outputs: Sequence[int] | None = None,
    probes: int | None = 4,
    seed: int = 0,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Tensor:
    r"""How far each output depends on each input: ``[N, N]``, a row for each output.

    Entry :math:`(i, j)` is the Frobenius norm of the Jacobian block
    :math:`\partial\,\mathrm{output}_i / \partial\,\mathrm{cell}_j`. The outputs are the scores of a model, or the cells
    of a network; the inputs are the cells that enter the network.

    ``probes`` gradients are computed for each output, so the cost grows with :math:`n^2 \log n`. For 256 symbols, 48
    features and 4 probes it was 3 seconds on one core of a CPU.

    Args:
        net: A :class:`~riffle.SequenceModel` or :class:`~riffle.ShuffleExchange`, run as in evaluation mode.
        x: One sequence: symbols ``[N]`` or ``[1, N]``, or cells ``[N, D]`` or ``[1, N, D]``.
        outputs: The output positions to look at, all of them where None; the result has a row for each.
        probes: Orthogonal random directions in which each output is followed back. The squared norm is estimated
            without bias from them, and exactly if there are as many as an output has features; None for that.
        seed: Seed of the directions.
        on_progress: Called with the number of outputs just finished.
    """
    if x.dim() == (1 if isinstance(net, SequenceModel) else 2):
        x = x.unsqueeze(0)
    if x.shape[0] != 1:
        raise ValueError(f"dependence looks at one sequence at a time, got a batch of {x.shape[0]}")
    if probes is not None and probes < 1:
        raise ValueError(f"probes must be at least 1, got {probes}")
    length, k = x.shape[1], bits(x.shape[1])
    with torch.no_grad():
        network, cells_1WD = network_input(net, x)
    with torch.enable_grad():
        cells_1WD.requires_grad_()
        layer = reference_layer(network.units)  # type: ignore[arg-type]
        out_1WD = network.relabel(walk(network.layers(k), cells_1WD, shuffled_layer(layer)))
        out_NC = (net.output(out_1WD) if isinstance(net, SequenceModel) else out_1WD)[0, :length]
    classes = out_NC.shape[1]
    directions_SC = torch.eye(classes).to(out_NC)
    if probes is not None and probes < classes:
        normal_CS = torch.randn(classes, probes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        # So long that products with them keep the squared norm of a matrix on average.
        directions_SC = (torch.linalg.qr(normal_CS).Q * (classes / probes) ** 0.5).T.to(out_NC)
    count = len(directions_SC)
    position_R = torch.arange(length)[slice(None) if outputs is None else list(outputs)].to(x.device)
    squares_RN = out_NC.new_zeros(len(position_R), length)
    for start in range(0, len(position_R) * count, PROBES_AT_ONCE):
        probe_Q = torch.arange(start, min(start + PROBES_AT_ONCE, len(position_R) * count), device=x.device)
        row_Q = probe_Q // count
        probe_QNC = out_NC.new_zeros(len(probe_Q), *out_NC.shape)
        probe_QNC[torch.arange(len(probe_Q)), position_R[row_Q]] = directions_SC[probe_Q % count]
        (gradient_Q1WD,) = torch.autograd.grad(out_NC, cells_1WD, probe_QNC, retain_graph=True, is_grads_batched=True)
        squares_RN.index_add_(0, row_Q, gradient_Q1WD[:, 0, :length].square().sum(dim=-1))
        on_progress((start + len(probe_Q)) // count - start // count)
    return squares_RN.sqrt()


def strongest_source(dependence_NN: Tensor) -> Tensor:
    """The input on which each output depends most, ``[N]``.

    >>> strongest_source(torch.tensor([[0.1, 2.0], [1.5, 0.2]])).tolist()
    [1, 0]
    """
    return dependence_NN.argmax(dim=1)


def source_positions(task: Task, symbols: Sequence[int]) -> list[int | None] | None:
    """Where a task that only moves symbols takes each output from: an input position, or None for a blank.

    The task is asked, with the positions themselves written as symbols. None for a task that does more than move
    symbols, or that looks at them before it moves them, as sorting does.

    >>> from riffle.tasks import get_task
    >>> source_positions(get_task("reverse"), [7, 3, 9]), source_positions(get_task("duplicate"), [7, 3, 0, 0])
    ([2, 1, 0], [0, 1, 0, 1])
    >>> source_positions(get_task("left"), [7, 3]), source_positions(get_task("sort"), [7, 3, 9])
    ([0, None], None)
    """
    if not isinstance(task, SymbolTask):
        return None
    base = task.symbols - 1
    filled_N = torch.tensor(symbols) != BLANK
    position_N = torch.arange(len(symbols))
    digits = next(count for count in range(1, 64) if base**count >= len(symbols))
    weight_S1 = base ** torch.arange(digits)[:, None]
    written_SN = position_N // weight_S1 % base + 1
    mixed_RN = torch.randint(1, base + 1, (8, len(symbols)), generator=torch.Generator().manual_seed(0))
    inputs_TN = torch.cat((written_SN, mixed_RN)) * filled_N
    answers_TN = task.answer(inputs_TN)
    blank_N = (answers_TN == BLANK).any(dim=0)
    source_N = torch.where(blank_N, 0, ((answers_TN[:digits] - 1) * weight_S1).sum(dim=0))
    if source_N.min() < 0 or source_N.max() >= len(symbols):
        return None
    if not torch.equal(torch.where(blank_N, BLANK, inputs_TN[:, source_N]), answers_TN):
        return None
    return [None if blank else source for source, blank in zip(source_N.tolist(), blank_N.tolist(), strict=True)]


def errors_over_length(
    model: nn.Module,
    task: Task,
    lengths: Sequence[int],
    *,
    bins: int = 32,
    examples: int = 256,
    trained_length: int = 0,
    seed: int = 1,
    on_progress: Callable[[int], None] = lambda cells: None,
) -> Tensor:
    """Where errors fall as sequences grow: the share of wrong symbols by relative position, ``[lengths, bins]``.

    Counted where target or output is not blank, as the paper does; NaN where both always are. A length shorter than
    ``bins`` repeats each of its positions over several of them.

    Args:
        model: Maps symbols to scores; its mode is left as it was.
        task: What it should solve.
        lengths: Input lengths.
        bins: Parts into which every length is divided.
        examples: Examples for each length.
        trained_length: Up to here, examples are taken from those held out of training.
        seed: Seed of the examples.
        on_progress: Called with the number of cells just scored.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    rates = []
    with torch.inference_mode():
        for length in lengths:
            generator = torch.Generator(device).manual_seed(seed * 1_000_003 + length)
            draw = sample_held_out if length <= trained_length else type(task).sample
            counts_2N = torch.zeros(2, length, dtype=torch.int64, device=device)  # wrong symbols, counted symbols
            size = batch_rows(length, examples, device)
            for start in range(0, examples, size):
                rows = min(size, examples - start)
                inputs_BN, targets_BN = draw(task, rows, length, generator=generator)
                outputs_BN = model(inputs_BN).argmax(dim=-1)
                counts_2N[0] += (outputs_BN != targets_BN).sum(dim=0)
                counts_2N[1] += ((outputs_BN != BLANK) | (targets_BN != BLANK)).sum(dim=0)
                on_progress(rows * length)
            starts = [part * length // bins for part in range(bins)]
            ends = [max(start + 1, (part + 1) * length // bins) for part, start in enumerate(starts)]
            total_2N = F.pad(counts_2N.cumsum(1), (1, 0))
            wrong, counted = (total_2N[:, ends] - total_2N[:, starts]).double()
            rates.append(wrong / counted)
    model.train(was_training)
    return torch.stack(rates).cpu()
