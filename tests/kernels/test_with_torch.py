"""The fused kernels with the rest of PyTorch: training, autocast, export, compile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from riffle import ShuffleExchange
from riffle.config import DataConfig, ModelConfig, Precision, RunConfig, TrainConfig
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.train.objective import SymbolObjective
from riffle.train.step import TrainStep

pytest.importorskip("triton", reason="Triton has no build for this platform")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
SHORT = RunConfig(
    task="reverse",
    model=ModelConfig(features=32 if GPU else 4, dropout=0.0),
    data=DataConfig(bins=(4, 8), batch=32 if GPU else 4),
    train=TrainConfig(steps=30 if GPU else 6),  # the interpreter takes its time
)


def losses(backend: str, precision: Precision, recompute: bool = True) -> list[float]:
    """The loss of every step of a short run."""
    config = replace(
        SHORT, model=replace(SHORT.model, backend=backend), train=replace(SHORT.train, precision=precision)
    )
    torch.manual_seed(0)
    model = build(config.model, get_task(config.task), device=DEVICE)
    model.network.recompute = recompute
    step = TrainStep(config, model, SymbolObjective(config))
    found = []
    for _ in range(config.train.steps):
        step()
        found.append(step.pop_metrics().loss)
    return found


@pytest.mark.parametrize("recompute", [True, *([False] if GPU else [])])
def test_a_run_learns_as_on_the_reference(recompute: bool) -> None:
    ours, theirs = losses("fused", "fp32", recompute), losses("reference", "fp32")
    assert theirs[-1] < theirs[0]
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.gpu
def test_a_run_in_bfloat16_learns_as_in_float32() -> None:
    exact = losses("reference", "fp32")
    for recompute in (True, False):
        assert losses("fused", "bf16", recompute) == pytest.approx(exact, rel=0.05)


def test_a_bad_gradient_reaches_no_other_group() -> None:
    net = ShuffleExchange(4, 2, backend="fused", device=DEVICE)
    xs_BND = [torch.rand(2, length, 4, device=DEVICE).requires_grad_() for length in (8, 4)]
    ys_BND = net.forward_batches(xs_BND)
    gradients = torch.autograd.grad(ys_BND, xs_BND, [torch.full_like(ys_BND[0], torch.nan), torch.ones_like(ys_BND[1])])
    assert gradients[0].isnan().any()
    assert gradients[1].isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype: torch.dtype) -> None:
    ours, theirs = (ShuffleExchange(64, 2, backend=backend, device="cuda") for backend in ("fused", "reference"))
    theirs.load_state_dict(ours.state_dict())
    xs_BND = [torch.rand(3, length, 64, device="cuda") * 2 - 1 for length in (64, 16)]
    exact = theirs.forward_batches(xs_BND)
    with torch.autocast("cuda", dtype):
        together = ours.forward_batches(xs_BND)
    for actual, expected in zip(together, exact, strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, expected, rtol=0, atol=0.03 * expected.abs().max().item())
    for ys_BND in (together, exact):
        # A sum, since float16 would lose the small gradients of a mean.
        sum(y_BND.square().sum() for y_BND in ys_BND).backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert a.grad.dtype == torch.float32, name
        assert (a.grad - b.grad).norm() <= 0.05 * b.grad.norm(), name


@pytest.mark.filterwarnings("ignore")  # of what an output in place would do
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_data_parallel_training(kind: str, tmp_path: Path) -> None:
    distributed = torch.distributed
    ours, theirs = (ShuffleExchange(4, 2, backend="fused", device=DEVICE) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    store, backend = f"file://{tmp_path}/store", "nccl" if GPU else "gloo"
    distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
    try:
        if kind == "fsdp":
            wrapped = fully_shard(ours, mesh=init_device_mesh(DEVICE, (1,)))
        else:
            wrapped = DistributedDataParallel(ours, device_ids=[0] if GPU else None)
        for _ in range(2):
            x_BND = torch.rand(2, 4, 4, device=DEVICE)
            for net in (wrapped, theirs):
                net(x_BND).square().sum().backward()
        for (name, actual), expected in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            gradient = actual.grad.full_tensor() if kind == "fsdp" else actual.grad
            torch.testing.assert_close(gradient, expected.grad, rtol=1e-4, atol=1e-5, msg=name)
    finally:
        distributed.destroy_process_group()
