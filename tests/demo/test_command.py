"""Mistakes of ``riffle demo`` end in a sentence."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from riffle.cli import main


def error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["riffle", "demo", "--no-open", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    return " ".join(capsys.readouterr().err.split())


def test_without_gradio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert "pip install 'riffle-nn[demo]'" in error(capsys, monkeypatch)


def test_no_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    assert str(tmp_path / "none") in error(capsys, monkeypatch, "--runs", tmp_path / "none").replace(" ", "")


def test_port_taken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gradio")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} is taken" in error(capsys, monkeypatch, "--port", port)


def test_no_address(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gradio")
    assert "no address of this machine" in error(capsys, monkeypatch, "--host", "no such host", "--port", 0)
