"""What the ranks do in the tests; every function takes the group first."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fast_interpreter  # noqa: F401
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from riffle import ShuffleExchange
from riffle.parallel import SequenceSharding, sum_gradients
from riffle.parallel.exchange import exchange, make_redistribution, redistribute


def network(arguments: dict[str, Any], group: dist.ProcessGroup | None = None, seed: int = 1) -> ShuffleExchange:
    """The same weights wherever it is called, none of them at its initial value."""
    torch.manual_seed(seed)
    net = ShuffleExchange(**arguments, sharding=None if group is None else SequenceSharding(group))
    for name, parameter in net.named_parameters():
        if name.endswith("skip_scale"):
            torch.nn.init.uniform_(parameter, -0.3, 1.3)
        elif "bias" in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return net


def inputs(batch: int, length: int, features: int) -> tuple[Tensor, Tensor]:
    """Cells, and the weights of their outputs in the loss."""
    generator = torch.Generator().manual_seed(2)
    x_BND = torch.rand(batch, length, features, generator=generator) * 2 - 1
    return x_BND, torch.randn(batch, length, features, generator=generator)


def part(x_BND: Tensor, group: dist.ProcessGroup) -> Tensor:
    """This rank's cells."""
    return x_BND.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].contiguous()


def loss(y_BND: Tensor, weight_BND: Tensor) -> Tensor:
    return (y_BND * weight_BND).sum()


def train(group: dist.ProcessGroup, arguments: dict[str, Any], batch: int, length: int, lengths: Any = None) -> Any:
    """This rank's output with and without gradients, its input's gradient, and the weights' summed over ranks."""
    net, dtype = network(arguments, group), arguments.get("dtype", torch.float32)
    x_BND, weight_BND = (part(cells, group).to(dtype) for cells in inputs(batch, length, net.features))
    x_BND.requires_grad_()
    y_BND = net(x_BND, lengths=lengths)
    loss(y_BND, weight_BND).backward()
    sum_gradients(net, group)
    with torch.no_grad():
        inferred_BND = net(x_BND, lengths=lengths)
    gradients = {name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None}
    assert x_BND.grad is not None
    return arrays({"output": y_BND, "inferred": inferred_BND, "input": x_BND.grad, **gradients})


def data_parallel(
    group: dist.ProcessGroup | None, arguments: dict[str, Any], length: int, batches: int = 2
) -> dict[str, np.ndarray]:
    """Gradients by PyTorch's own data parallel training, each rank with a batch, or of all batches without a group."""
    net = network(arguments)
    x_BND = inputs(2 * batches, length, net.features)[0]
    wrapped = net if group is None else nn.parallel.DistributedDataParallel(net, process_group=group)
    mine_BND = x_BND if group is None else x_BND.chunk(batches)[dist.get_rank(group)]
    wrapped(mine_BND).square().mean().backward()
    return arrays({name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None})


def arrays(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


@contextmanager
def counted() -> Iterator[list[int]]:
    """A list that gets, for each all-to-all, how many numbers this rank sends to others."""
    original, sent = dist.all_to_all_single, []

    def counting(output: Tensor, source: Tensor, *splits: list[int], group: dist.ProcessGroup) -> Any:
        mine, ranks = dist.get_rank(group), dist.get_world_size(group)
        leaving = splits[1] if splits else [len(source) // ranks] * ranks
        sent.append((sum(leaving) - leaving[mine]) * source[:1].numel())
        return original(output, source, *splits, group=group)

    dist.all_to_all_single = counting
    try:
        yield sent
    finally:
        dist.all_to_all_single = original


def count(
    group: dist.ProcessGroup, arguments: dict[str, Any], batch: int, length: int, lengths: Any = None
) -> tuple[list[int], list[int]]:
    """The numbers sent by each all-to-all of a forward pass, and of the backward pass after it."""
    net = network(arguments, group)
    x_BND = part(inputs(batch, length, net.features)[0], group).requires_grad_()
    with counted() as forward:
        y_BND = net(x_BND, lengths=lengths)
    with counted() as backward:
        y_BND.sum().backward()
    with counted() as inference, torch.no_grad():
        net(x_BND, lengths=lengths)
    assert inference == forward
    return forward, backward


def mistake(group: dist.ProcessGroup, what: str) -> str:
    """The sentence by which a mistake is refused on this rank."""
    rank = dist.get_rank(group)
    odd = rank == dist.get_world_size(group) - 1
    x_BND = torch.zeros(2, 16, 4)
    try:
        arguments: dict[str, Any] = {"features": 4}
        if what == "blocks":
            arguments |= {"blocks": 3 if odd else 2, "sharing": "full"}
        if what == "another size":
            arguments |= {"sharing": "none", "length": 64}
        net = network(arguments, group, seed=rank if what == "weights" else 1)
        lengths = mask_BN = None
        match what:
            case "cells" if odd:
                x_BND = x_BND[:, :8]
            case "batch" if odd:
                x_BND = x_BND[:1]
            case "few":
                x_BND = x_BND[:, : dist.get_world_size(group) // 2]
            case "power":
                x_BND = x_BND[:, :12]
            case "lengths":
                lengths = [60, 61] if odd else [60, 60]
            case "own mask":  # of no padding: the ranks would agree, on rows of a quarter of the length
                mask_BN = torch.zeros(2, 16, dtype=torch.bool)
            case "long":
                lengths = [16 * dist.get_world_size(group), 65]
            case "another size":
                lengths = [64, 9]
            case "gradients" if odd:
                net.requires_grad_(False)
            case "input gradients" if odd:
                x_BND.requires_grad_()
        net(x_BND, lengths=lengths, key_padding_mask=mask_BN)
        assert net(x_BND[:0], lengths=[]).shape == x_BND[:0].shape
    except ValueError as error:
        return str(error)
    return "no complaint"


def dropout(group: dist.ProcessGroup, arguments: dict[str, Any], batch: int, length: int, lengths: Any = None) -> Any:
    """This rank's output in training, by masks of its own."""
    net = network(arguments, group)
    torch.manual_seed(100 + dist.get_rank(group))
    return net(part(inputs(batch, length, net.features)[0], group), lengths=lengths).detach().numpy()


def kept(group: dist.ProcessGroup, folder: str) -> dict[str, bool]:
    """Whether other ways to get at a network over a group give what the network gives."""
    net = network({"features": 4, "blocks": 2}, group).eval()
    x_BND = part(inputs(2, 64, 4)[0], group)
    mine = f"{folder}/{dist.get_rank(group)}"
    net.save_pretrained(mine)
    with torch.no_grad():
        y_BND = net(x_BND)
        whole_BND = ShuffleExchange.from_pretrained(mine)(inputs(2, 64, 4)[0])
        return {
            "batches": all(torch.equal(y_BND, each_BND) for each_BND in net.forward_batches([x_BND, x_BND])),
            "copy": torch.equal(y_BND, copy.deepcopy(net)(x_BND)),
            "saved": torch.equal(y_BND, ShuffleExchange.from_pretrained(mine, sharding=SequenceSharding(group))(x_BND)),
            "saved, on one device": torch.allclose(y_BND, part(whole_BND, group), rtol=0, atol=1e-6),
        }


def twice(group: dist.ProcessGroup, dealt: bool) -> bool:
    """Gradients of gradients through an exchange, or the deal of a row that lies on the first half of the ranks."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    x_CD = torch.rand(2 * size, 2, dtype=torch.float64, requires_grad=True)
    if dealt:
        y_CD = redistribute(x_CD, make_redistribution([size**2], 2 * size, rank, size, x_CD.device), group)
    else:
        y_CD = exchange(x_CD.unsqueeze(0), group)
    (first,) = torch.autograd.grad((y_CD**3).sum(), x_CD, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x_CD)
    moved = not dealt or rank < size // 2
    return torch.allclose(first, 3 * moved * x_CD**2) and torch.allclose(second, 6 * moved * x_CD)


def averaged(group: dist.ProcessGroup, arguments: dict[str, Any], batch: int, length: int) -> Any:
    """Gradients of the mean over all cells by DistributedDataParallel, on a mesh of data by sequence ranks."""
    mesh = dist.device_mesh.DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("data", "sequence"))
    sequence = mesh["sequence"].get_group()
    net = network(arguments, sequence)
    parallel = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
    x_BND, weight_BND = inputs(batch, length, net.features)
    rows = slice(mesh["data"].get_local_rank(), None, 2)
    (parallel(part(x_BND[rows], sequence)) * part(weight_BND[rows], sequence)).mean().backward()
    return arrays({name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None})
