"""Mistakes of ``riffle demo`` end in a sentence."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from cli.riffle_command import riffle


def error(*arguments: object) -> str:
    result = riffle("demo", "--no-open", *arguments)
    assert (result.code, result.out) == (1, "")
    return result.err


def test_without_gradio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert "pip install 'riffle-nn[demo]'" in error()


def test_wrong_folder_port_and_host(tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    assert f"no folder {tmp_path / 'none'}" in error("--runs", tmp_path / "none")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} is taken" in error("--port", port)
    assert "no address of this machine" in error("--host", "no such host", "--port", 0)
