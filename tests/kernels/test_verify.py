"""``riffle info --verify``: every form is compared with float64, and a miss is an exit status."""

from __future__ import annotations

import pytest
import torch
import typer

from riffle.cli import info
from riffle.nn import verify

pytest.importorskip("triton", reason="Triton has no build for this platform")

from .test_fused import DEVICE


@pytest.mark.parametrize("unit", ["gated", "residual"])
def test_every_form_is_compared_and_a_miss_is_seen(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (torch.device(DEVICE), (unit,), (4,), (32,), (torch.float32,))
    checks = list(verify.verify(*arguments))
    assert all(check.right for check in checks), "\n".join(map(str, checks))
    assert len({form for check in checks for form in check.forms}) >= 4
    monkeypatch.setattr(verify, "FACTOR", 1e-9)
    monkeypatch.setattr(verify, "ROUNDINGS", 1e-9)
    wrong = next(iter(verify.verify(*arguments)))
    assert str(wrong).startswith("WRONG")
    monkeypatch.setattr(verify, "verify", lambda device: iter([wrong]))
    with pytest.raises(typer.Exit) as exit_status:
        info._verify([DEVICE])
    assert exit_status.value.exit_code == 1
