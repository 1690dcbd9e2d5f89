"""The rival: a plain pre-norm transformer encoder on FlashAttention, of the same width."""

# B = batch, N = length, D = features per cell, H = heads, W = features of a head
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from riffle.bench.jobs import Job, Results, compiled, dtype_of, make_cells
from riffle.bench.workloads import Form, Workload
from riffle.nn.graphed import Graphed

HEAD = 64
"""Features of a head; it has to divide the width."""
CHECKED = 2**14
"""Up to this length the encoder is compared with itself in float32: beyond, that alone would take minutes."""
COMPARED = f"the output, up to {CHECKED} cells, with the same encoder in float32"
"""What is compared with the truth, for the record."""


class Block(nn.Module):
    """Attention and two layers of four times the width, each behind a norm and around a residual connection.

    It knows no positions: codes for them would only add to its time.

    Args:
        features: The width.
    """

    def __init__(self, features: int, *, device: torch.device) -> None:
        super().__init__()
        self.heads = features // HEAD
        self.attention_norm = nn.LayerNorm(features, device=device)
        self.qkv = nn.Linear(features, 3 * features, device=device)
        self.project = nn.Linear(features, features, device=device)
        self.widen_norm = nn.LayerNorm(features, device=device)
        self.widen = nn.Linear(features, 4 * features, device=device)
        self.narrow = nn.Linear(4 * features, features, device=device)

    def forward(self, x_BND: Tensor) -> Tensor:
        qkv_BN3HW = self.qkv(self.attention_norm(x_BND)).unflatten(-1, (3, self.heads, HEAD))
        q_BHNW, k_BHNW, v_BHNW = qkv_BN3HW.permute(2, 0, 3, 1, 4).unbind()
        mixed_BHNW = F.scaled_dot_product_attention(q_BHNW, k_BHNW, v_BHNW)
        x_BND = x_BND + self.project(mixed_BHNW.transpose(1, 2).flatten(-2))
        return x_BND + self.narrow(F.gelu(self.widen(self.widen_norm(x_BND))))


def truth(row: Workload, device: torch.device) -> Results | None:
    """The output in float32; None where that would take too long."""
    if row.lengths[0] > CHECKED:
        return None
    encoder = _encoder(row, "eager", device)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return {"output": encoder(make_cells(row, "eager", device))}


def job(row: Workload, form: Form, device: torch.device) -> Job:
    """One forward pass, by FlashAttention."""
    encoder = _encoder(row, form, device)
    x_BND = make_cells(row, form, device)
    run: nn.Module = compiled(encoder) if form == "compiled" else encoder
    graph = row.graph and device.type == "cuda"
    if graph:
        run = Graphed(run)

    def call() -> Tensor:
        with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return run(x_BND)

    return Job(call, lambda: {"output": call()}, graph)


def _encoder(row: Workload, form: Form, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    blocks = [Block(row.features, device=device) for _ in range(row.blocks)]
    encoder = nn.Sequential(*blocks, nn.LayerNorm(row.features, device=device))
    return encoder.to(torch.bfloat16).to(dtype_of(form)).eval()
