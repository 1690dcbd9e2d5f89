"""Training by several processes at once: who takes part, what they add up, and what happens when one is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from riffle.parallel.sharding import weights_checksum

SEED_STRIDE = 1_000_003
"""How far apart the seeds of two ranks are."""


class RankLost(ConnectionError):
    """Another rank died, or does not answer."""


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them; by default it is alone, and nothing is sent.

    Every rank computes the gradient of its own rows, and all make the same update with the mean. So the weights, the
    optimiser and the generator of examples are the same everywhere, while torch's default random state, which dropout
    draws from, is each rank's own.
    """

    rank: int = 0
    """The number of this process."""
    size: int = 1
    """How many there are."""
    group: dist.ProcessGroup | None = None
    """Over which they talk; None is the group of all processes."""

    @classmethod
    def from_environment(cls, device: torch.device, *, timeout: float) -> World:
        """Join the processes that ``torchrun`` started; without it, or with one process, this one is alone.

        Args:
            device: Where this rank trains, see :func:`local_device`: GPUs talk over NCCL, CPUs over Gloo.
            timeout: Seconds to wait for another rank before :class:`RankLost` is raised.
        """
        if _processes() == 1:
            return SINGLE_PROCESS
        world, patience = cls(int(os.environ["RANK"]), _processes()), timedelta(seconds=timeout)
        # What the hosts agree on goes over Gloo in either case: they need not wait for their GPUs then.
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        with world._answered():
            store, rank, size = next(dist.rendezvous("env://", timeout=patience))
            # torchrun keeps its store when it restarts the processes: addresses of dead ones must not be found.
            store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
        return world

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> World:
        """The ranks of a group, such as the data dimension of a ``DeviceMesh``."""
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def is_rank0(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def close(self) -> None:
        """Part from the others, once all are done."""
        if self.size > 1:
            self.all_reduce_max(0)
            dist.destroy_process_group()

    def rank0_first(self, call: Callable[[], object]) -> None:
        """Let rank 0 do something before the others go on; where it fails, all end."""
        error = None
        if self.is_rank0:
            try:
                call()
            except Exception as failure:
                error = failure
        if self.all_reduce_max(int(error is not None)):
            self.exit_after_rank0()
            assert error is not None
            raise error

    def exit_after_rank0(self) -> None:
        """Leave the last word to rank 0: the others wait until it is gone, and end.

        Were they gone earlier, ``torchrun`` would stop rank 0 before it has saved and said why.
        """
        if not self.is_rank0:
            with suppress(RankLost):
                self.all_reduce_max(0)
            raise SystemExit(1)

    def seed(self, seed: int) -> None:
        """Give this rank random numbers of its own; rank 0 keeps those that one process alone would have."""
        if not self.is_rank0:
            torch.manual_seed(seed + SEED_STRIDE * self.rank)

    def shard_rows(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """This rank's rows of tensors with rows of all ranks.

        Weights of the rows have to be multiplied by :attr:`size`, so that the mean of all ranks' losses is the loss.
        """
        return tuple(tensor.chunk(self.size)[self.rank] for tensor in tensors) if self.size > 1 else tensors

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over the ranks, with one all-reduce of all of them in a row."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with self._answered():
            dist.all_reduce(flat, group=self.group)
        parts = (flat / self.size).split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view_as(own) for part, own in zip(parts, tensors, strict=True)])

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of all ranks' tensors."""
        if self.size == 1:
            return tensor
        total = tensor.clone()
        with self._answered():
            dist.all_reduce(total, group=self.group)
        return total

    def all_reduce_max(self, number: int) -> int:
        """The largest of all ranks' numbers; so they agree, and wait for each other."""
        if self.size == 1:
            return number
        agreed = torch.tensor(number)
        with self._answered():
            dist.all_reduce(agreed, dist.ReduceOp.MAX, group=self.group)
        return int(agreed)

    def check_equal(self, tensors: Iterable[Tensor]) -> None:
        """Raise a ``ValueError`` on every rank unless all have the same tensors."""
        if self.size == 1:
            return
        mine = weights_checksum(tensors)
        if self.all_reduce_max(mine) != -self.all_reduce_max(-mine):
            raise ValueError(
                "the ranks have different weights or training states: let all of them see the same run folder"
            )

    def gather(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every rank's named tensors: those of rank 0 as they are called, those of rank r as ``name.r``."""
        if self.size == 1:
            return dict(own)
        gathered: dict[str, Tensor] = {}
        for name, tensor in own.items():
            every = [torch.empty_like(tensor) for _ in range(self.size)]
            with self._answered():
                dist.all_gather(every, tensor, group=self.group)
            gathered |= {f"{name}.{rank}" if rank else name: each for rank, each in enumerate(every)}
        return gathered

    def restore_own(self, gathered: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What :meth:`gather` had from this rank, in its place; ``fresh`` where there were fewer ranks."""
        if self.is_rank0:
            return dict(gathered)
        return {**gathered, **{name: gathered.get(f"{name}.{self.rank}", tensor) for name, tensor in fresh.items()}}

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Say it in words when the others do not answer."""
        try:
            yield
        except RuntimeError as error:
            late = "hangs, it has not answered within the --timeout"
            what = late if "Timed out" in str(error) else "is gone"
            raise RankLost(f"rank {self.rank} of {self.size} stops: another rank {what}") from error


SINGLE_PROCESS = World()
"""One process by itself."""


def local_device(name: str) -> torch.device:
    """The device of this process: under ``torchrun`` each takes a GPU of its own."""
    device = torch.device(name)
    if device.type != "cuda" or _processes() == 1:
        return device
    local = int(os.environ["LOCAL_RANK"])
    if device.index is not None:
        raise ValueError(f"every process takes a GPU of its own, so --device {name} cannot be met: use --device cuda")
    if local >= torch.cuda.device_count():
        raise ValueError(
            f"there is no GPU for process {local} of this machine, torch sees {torch.cuda.device_count()}: "
            f"use --nproc-per-node {torch.cuda.device_count()}, or --device cpu"
        )
    return torch.device("cuda", local)


def _processes() -> int:
    """How many processes ``torchrun`` started; one without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))
