"""Requests that a browser with the page would not send: refused, in time and without growth."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from riffle.demo.server import MAX_LOG, MAX_MESSAGE, MAX_REQUEST_BYTES, BoundedLog

from .conftest import Server
from .test_load import GROWTH

CHUNK = b"40000\r\n" + b"a" * 0x40000 + b"\r\n"
SOLVE = "/gradio_api/call/solve"


def ask(server: Server, start: str, *headers: str, body: bytes = b"") -> str:
    """Send a request, headers and body as they are given; return the response's head."""
    address = server.address.removeprefix("http://")
    if not any(header.startswith("host:") for header in headers):
        headers = (f"host: {address}", *headers)
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall("\r\n".join((f"{start} HTTP/1.1", *headers, "", "")).encode() + body)
        return connection.recv(4096).decode("latin1")


def status(answer: str) -> int:
    return int(answer.split()[1])


def test_bodies_are_counted_as_they_arrive(server: Server) -> None:
    ask(server, "GET /")
    before = server.memory()
    chunks = CHUNK * (16 * MAX_REQUEST_BYTES // 0x40000) + b"0\r\n\r\n"
    json = "content-type: application/json"
    for _ in range(2):
        assert status(ask(server, f"POST {SOLVE}", json, "transfer-encoding: chunked", body=chunks)) == 413
        both = ("content-length: 2", "transfer-encoding: chunked")
        assert status(ask(server, f"POST {SOLVE}", json, *both, body=chunks)) == 400
        assert status(ask(server, f"POST {SOLVE}", json, f"content-length: {MAX_REQUEST_BYTES + 1}")) == 413
    assert server.memory() - before < GROWTH


def test_other_names_and_origins(server: Server) -> None:
    assert status(ask(server, "GET /config", "host: evil.example")) == 400
    port = server.address.rsplit(":", 1)[1]
    assert status(ask(server, "GET /config", f"host: localhost:{port}")) == 200
    answer = ask(server, "GET /config", "origin: http://evil.example")
    assert (status(answer), "access-control-allow-origin" in answer) == (200, False)
    preflight = ("origin: http://evil.example", "access-control-request-method: POST")
    assert status(ask(server, f"OPTIONS {SOLVE}", *preflight)) == 400


@pytest.mark.parametrize(
    "path",
    ["/openapi.json", "/docs", "/gradio_api/openapi.json", "/gradio_api/file=http://127.0.0.1/", "/gradio_api/upload"],
)
def test_what_the_page_does_not_need_is_not_served(server: Server, path: str) -> None:
    assert status(ask(server, f"GET {path}")) == 404


def test_the_log_is_bounded() -> None:
    written = io.StringIO()
    log = BoundedLog(written)
    log.write("a" * 10 * MAX_MESSAGE)
    assert written.getvalue() == "a" * MAX_MESSAGE + "…\n"
    for _ in range(2 * MAX_LOG // MAX_MESSAGE):
        log.write("b" * MAX_MESSAGE)
    assert len(written.getvalue()) <= MAX_LOG
    assert written.getvalue().endswith("nothing more is written to it.\n")


def test_half_open_connections_are_closed_and_ctrl_c_ends_streams(tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    code = "from riffle.demo import server; server.REQUEST_SECONDS = 0.5; from riffle.cli import main; main()"
    command = [sys.executable, "-c", code, "demo", "--port", "0", "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env={**os.environ, "COLUMNS": "200"}, cwd=tmp_path) as process:
        address = ("127.0.0.1", int(process.stdout.readline().rsplit(":", 1)[1]))
        silent, half = ([socket.create_connection(address, timeout=20) for _ in range(60)] for _ in range(2))
        for connection in half:
            connection.sendall(
                b"POST /gradio_api/call/solve HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"
            )
        stream = socket.create_connection(address, timeout=20)
        stream.sendall(b"GET /gradio_api/heartbeat/me HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert stream.recv(64).startswith(b"HTTP/1.1 200")
        for connection in (*silent, *half):
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
            connection.close()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=20)
        stream.close()
    print(f"ended after {time.monotonic() - began:.1f} s")
    assert process.returncode == 0
    assert printed.splitlines()[1:] == []
