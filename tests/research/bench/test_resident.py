"""The measurement of a sequence in one buffer: right results pass, wrong ones are detected."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest
import torch

from research.bench import resident


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "resident.json"
    monkeypatch.setattr(sys, "argv", ["resident", "--log2", "10", "--maps", "8", "--out", str(path)])
    resident.main()
    result = json.loads(path.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert (result["cells"], result["maps"], result["layers"], result["right"]) == (1024, 8, 19, True)
    assert result["seconds"] > 0
    assert result["buffer_bytes"] == 1024 * 8 * (2 if torch.cuda.is_available() else 4)


@pytest.mark.gpu
def test_beyond_32_bits_of_address() -> None:
    gc.collect()
    torch.cuda.empty_cache()  # of what earlier tests left
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of GPU memory")
    held = torch.cuda.memory_allocated()
    result = resident.measure_resident(27, 32, torch.device("cuda"), torch.bfloat16)  # 2^32 numbers
    assert result["right"], result
    assert result["peak_bytes"] - held < 1.2 * result["buffer_bytes"]
