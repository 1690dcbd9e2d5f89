"""The server: the page at one address, in its theme, without outside resources, with bounded requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from riffle.demo.solve import RunCatalogue

if TYPE_CHECKING:
    import gradio as gr

LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 40">'
    '<g fill="none" stroke-width="4" stroke-linecap="round">'
    '<path d="M4 6H60" stroke="#6d7cff"/><path d="M4 15C30 15 34 25 60 25" stroke="#2fb5a0"/>'
    '<path d="M4 25C30 25 34 15 60 15" stroke="#f2a33a"/><path d="M4 34H60" stroke="#e2557a"/></g></svg>'
)
ICON = f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml,{quote(LOGO)}">'
COLOURS = {
    "body_background_fill": ("#f5f6fa", "#0e1220"),
    "block_background_fill": ("white", "#171d2e"),
    "input_background_fill": ("white", "#10162a"),
    "input_border_color": ("#cdd3e0", "#33405e"),
    "button_primary_background_fill": ("#4453c8", "#5b6ae0"),
    "button_primary_background_fill_hover": ("#3845ad", "#4d5bd0"),
    "button_primary_border_color": ("#4453c8", "#5b6ae0"),
    "button_primary_text_color": ("white", "white"),
    "button_secondary_background_fill": ("white", "#1f2740"),
    "button_secondary_border_color": ("#cdd3e0", "#33405e"),
    "button_border_width": ("1px", "1px"),
}
"""Values of gradio's theme variables in the light and in the dark theme."""
MAX_REQUEST_BYTES = 1 << 20
"""A longer request is refused as soon as more has arrived."""
REQUEST_SECONDS = 10.0
"""How long a connection may take to send a whole request; it is closed before twice that."""
MAX_MESSAGE, MAX_LOG = 2_000, 4 << 20
"""Characters of one message in the log, and of all: gradio logs what a wrong request contains."""
SERVED_PATHS = re.compile(
    r"/((config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|static/.*|assets/.*|svelte/.*)"
    r"|gradio_api/(info|app_id|startup-events|heartbeat|queue|call|run|cancel|reset)(/.*)?)?/?"
)
"""What the page and its programs ask for; gradio's files, uploads, proxy, schema and editor are not served."""
HEADERS = {
    # A browser fetches nothing from other servers, whatever a library may try to load.
    "content-security-policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def theme() -> gr.themes.Base:
    """Light and dark, with one accent colour; the system's own fonts, so that nothing is fetched from elsewhere."""
    import gradio as gr

    light = {name: values[0] for name, values in COLOURS.items()}
    dark = {f"{name}_dark": values[1] for name, values in COLOURS.items()}
    return gr.themes.Base(
        primary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        font=("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica", "Arial", "sans-serif"),
        font_mono=("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"),
    ).set(**light, **dark, block_border_color_dark="#2a3247", input_border_width="1px")


class RequestGuard:
    """ASGI middleware that refuses what the page does not ask for, and adds :data:`HEADERS` to every response."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        status = self.refusal(scope)
        if status is None:
            return await self.app(scope, receive, send_with_headers)
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
        await send_with_headers(start)
        await send_with_headers({"type": "http.response.body", "body": b"This request is refused.\n"})

    @staticmethod
    def refusal(scope: Message) -> int | None:
        """The HTTP status with which a request is refused; None for one that is served."""
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            return 400  # servers differ in which of the two they believe
        return None if SERVED_PATHS.fullmatch(scope["path"]) else 404


class BoundedLog(io.TextIOBase):
    """Passes on at most :data:`MAX_MESSAGE` characters of each text and :data:`MAX_LOG` of all."""

    def __init__(self, log: TextIO) -> None:
        self.log, self.left = log, MAX_LOG

    def write(self, text: str) -> int:
        if self.left > 0:
            shown = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…\n"
            self.left -= len(shown)
            self.log.write(shown if self.left > 0 else "This log is full: nothing more is written to it.\n")
            self.log.flush()
        return len(text)


def open_socket(host: str, port: int) -> socket.socket:
    """Listen at an address; the errors for a taken port and a wrong host say what to do."""
    no_address = f"{host!r} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for all of them"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except socket.gaierror:
        raise ValueError(no_address) from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(no_address) from None
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} is taken: choose another one with --port, or --port 0 for any") from None
        raise


def serve(catalogue: RunCatalogue, listening: socket.socket, host: str) -> None:
    """Serve the page until interrupted, under the name or address that was asked for and those of this machine."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    import fastapi
    import gradio as gr
    import uvicorn
    from starlette.middleware import Middleware
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from riffle.demo.app import build_page

    class Connection(H11Protocol):
        """uvicorn's connection, closed if a request does not arrive in time, and when the server ends."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.loop.call_later(REQUEST_SECONDS, self.close_if_waiting, None)

        def close_if_waiting(self, last: object) -> None:
            """Close the connection if it waits for the same request as one period before."""
            waits = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
            waiting_for = (self.cycle,) if waits else None
            if self.transport.is_closing() or (waits and waiting_for == last):
                return self.transport.abort()
            self.loop.call_later(REQUEST_SECONDS, self.close_if_waiting, waiting_for)

        def shutdown(self) -> None:
            super().shutdown()
            self.transport.close()  # streams would stay open until they are cancelled

    # Another name would be somebody else's that points here, so that their page could read this one (DNS rebinding).
    names = ("localhost", "127.0.0.1", "::1", host, listening.getsockname()[0])
    served = [f"[{name}]" if ":" in name else name for name in names]
    guards = [
        Middleware(RequestGuard),
        Middleware(TrustedHostMiddleware, allowed_hosts=["*"] if host in ("0.0.0.0", "::") else served),
        Middleware(RequestBodyLimitMiddleware, max_body_size=MAX_REQUEST_BYTES),
        Middleware(CORSMiddleware),  # allows no other origin; gradio would allow those of its host
    ]
    with contextlib.redirect_stderr(BoundedLog(sys.stderr)), contextlib.suppress(KeyboardInterrupt):
        api = fastapi.FastAPI(openapi_url=None, middleware=guards)
        looks = {"theme": theme(), "css_paths": Path(__file__).parent / "style.css", "head": ICON, "footer_links": []}
        # Its own error messages would repeat the request.
        off = dict.fromkeys(("show_error", "run_history", "ssr_mode", "pwa", "mcp_server"), False)
        app = gr.mount_gradio_app(api, build_page(catalogue), path="/", max_file_size=1, **looks, **off)
        config = uvicorn.Config(app, http=Connection, ws="none", log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])
