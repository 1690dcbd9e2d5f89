"""The server: one address, no outside resources, bounded requests."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from riffle.demo.catalogue import Catalogue

LARGEST_REQUEST = 1 << 20
"""Bytes; a longer request is refused before it is read."""
HEADERS = {
    # Whatever a library may try to load, a browser fetches nothing from elsewhere.
    "content-security-policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """Refuse uploads and oversized requests, and tell browsers to stay on this server."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((k.encode(), v.encode()) for k, v in HEADERS.items()),
                ]
            await send(message)

        status = self.refusal(scope)
        if status is None:
            return await self.app(scope, receive, guarded)
        await guarded({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        await guarded({"type": "http.response.body", "body": b"This request is refused.\n"})

    @staticmethod
    def refusal(scope: Message) -> int | None:
        """The status with which a request is refused; None for one that is served."""
        if scope["path"].rstrip("/").endswith("/upload"):
            return 403
        if scope["method"] in ("POST", "PUT", "PATCH"):
            size = dict(scope["headers"]).get(b"content-length", b"")
            if not size.isdigit():
                return 411
            if int(size) > LARGEST_REQUEST:
                return 413
        return None


def open_socket(host: str, port: int) -> socket.socket:
    """Listen; a port that is taken and a host that is none are answered in a sentence."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except socket.gaierror:
        raise ValueError(_no_address(host)) from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(_no_address(host)) from None
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} is taken: choose another one with --port, or any free one with --port 0"
            ) from None
        raise


def _no_address(host: str) -> str:
    return f"{host!r} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for all of them"


def serve(catalogue: Catalogue, listening: socket.socket) -> None:
    """Serve the page until interrupted."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    import fastapi
    import gradio as gr
    import uvicorn

    from riffle.demo.app import build
    from riffle.demo.theme import ICON, STYLE, theme

    app = gr.mount_gradio_app(
        fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        build(catalogue),
        path="/",
        theme=theme(),
        css_paths=STYLE,
        head=ICON,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        max_file_size=1,
    )
    config = uvicorn.Config(Guard(app), log_level="warning", timeout_graceful_shutdown=1)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
