"""Data-parallel training: the group of ranks, its collectives, and what happens when a rank dies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported after a group exists, its default arguments would keep that alive
from torch import Tensor

Result = TypeVar("Result")
SEED_STRIDE = 1_000_003
"""Difference between the seeds of two consecutive ranks."""


class RankLost(ConnectionError):
    """Another rank died or does not answer."""


@dataclass(frozen=True)
class RankGroup:
    """The ranks that train together, seen from one of them; by default a single process, which communicates nothing.

    Every rank computes the gradient of its own rows, and all make the same update with the mean. So the weights, the
    optimiser and the generator of examples are equal on all ranks; torch's default random state, which dropout draws
    from, is different on each.
    """

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    """The process group, None for the default group of all processes."""

    @classmethod
    def from_environment(cls, device: torch.device, *, timeout: float) -> RankGroup:
        """Join the processes that ``torchrun`` started; without it, or with one process, a single process.

        GPUs communicate over NCCL, CPUs over Gloo; ``timeout`` is in seconds, after which :class:`RankLost` is raised.
        """
        if _world_size() == 1:
            return SINGLE_PROCESS
        ranks, wait = cls(int(os.environ["RANK"]), _world_size()), timedelta(seconds=timeout)
        # CPU tensors go over Gloo in either case: the hosts can then agree without waiting for their GPUs.
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        with ranks._reporting_lost_ranks():
            store, rank, size = next(dist.rendezvous("env://", timeout=wait))
            # torchrun keeps its store when it restarts the processes: addresses of dead ones must not be found.
            store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
        return ranks

    @classmethod
    def from_group(cls, group: dist.ProcessGroup) -> RankGroup:
        """The ranks of a process group, such as the data dimension of a ``DeviceMesh``."""
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def is_rank0(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def close(self) -> None:
        """Wait for all ranks and leave the process group."""
        if self.size > 1:
            self.all_reduce_max(0)
            dist.destroy_process_group()

    def rank0_first(self, call: Callable[[], Result]) -> Result | None:
        """Let rank 0 do something before the others continue, and return its result there; if it fails, all exit."""
        error = result = None
        if self.is_rank0:
            try:
                result = call()
            except Exception as failure:
                error = failure
        if self.all_reduce_max(int(error is not None)):
            self.exit_after_rank0()
            assert error is not None
            raise error
        return result

    def exit_after_rank0(self) -> None:
        """On all ranks but 0: wait until rank 0 has exited, then exit.

        ``torchrun`` stops rank 0 as soon as another rank exits, before rank 0 has saved and reported why.
        """
        if not self.is_rank0:
            with suppress(RankLost):
                self.all_reduce_max(0)
            raise SystemExit(1)

    def seed(self, seed: int) -> None:
        """Give every rank random numbers of its own; rank 0 keeps those of a single process."""
        if not self.is_rank0:
            torch.manual_seed(seed + SEED_STRIDE * self.rank)

    def shard(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """This rank's rows of a tensor that holds the rows of all ranks along ``dim``.

        Row weights must be multiplied by :attr:`size` beforehand: then the mean of all ranks' losses is the loss.
        """
        return tensor.chunk(self.size, dim)[self.rank] if self.size > 1 else tensor

    @torch.no_grad()
    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over the ranks, with one all-reduce for all of them."""
        if self.size == 1:
            return
        flat = self._all_reduce(torch.cat([tensor.flatten() for tensor in tensors]))
        parts = (flat / self.size).split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view_as(own) for part, own in zip(parts, tensors, strict=True)])

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """The sum of all ranks' tensors."""
        return self._all_reduce(tensor.clone()) if self.size > 1 else tensor

    def all_reduce_max(self, number: int) -> int:
        """The largest of all ranks' numbers; also serves as a barrier."""
        return int(self._all_reduce(torch.tensor(number), dist.ReduceOp.MAX)) if self.size > 1 else number

    def check_equal(self, tensors: Iterable[Tensor]) -> None:
        """Raise a ``ValueError`` on every rank unless all have the same tensors."""
        if self.size == 1:
            return
        from riffle.parallel.sharding import weights_checksum

        checksum = weights_checksum(tensors)
        if self.all_reduce_max(checksum) != -self.all_reduce_max(-checksum):
            raise ValueError("the ranks have different weights or training states: let all see the same run folder")

    def gather(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every rank's named tensors: those of rank 0 under their names, those of rank r under ``name.r``."""
        if self.size == 1:
            return dict(own)
        gathered: dict[str, Tensor] = {}
        for name, tensor in own.items():
            parts = [torch.empty_like(tensor) for _ in range(self.size)]
            with self._reporting_lost_ranks():
                dist.all_gather(parts, tensor, group=self.group)
            gathered |= {f"{name}.{rank}" if rank else name: part for rank, part in enumerate(parts)}
        return gathered

    def restore_own(self, gathered: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors from :meth:`gather` with this rank's under their plain names; ``fresh`` ones if it had none."""
        if self.is_rank0:
            return dict(gathered)
        return {**gathered, **{name: gathered.get(f"{name}.{self.rank}", tensor) for name, tensor in fresh.items()}}

    def _all_reduce(self, tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        with self._reporting_lost_ranks():
            dist.all_reduce(tensor, op, group=self.group)
        return tensor

    @contextmanager
    def _reporting_lost_ranks(self) -> Iterator[None]:
        """Turn a failed collective into a :class:`RankLost`."""
        try:
            yield
        except RuntimeError as error:
            late = "hangs, it has not answered within the --timeout"
            reason = late if "Timed out" in str(error) else "is gone"
            raise RankLost(f"rank {self.rank} of {self.size} stops: another rank {reason}") from error


SINGLE_PROCESS = RankGroup()


def local_device(name: str) -> torch.device:
    """The device of this process: under ``torchrun`` each process has a GPU of its own."""
    device = torch.device(name)
    if device.type != "cuda" or _world_size() == 1:
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


def _world_size() -> int:
    """The number of processes that ``torchrun`` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))
