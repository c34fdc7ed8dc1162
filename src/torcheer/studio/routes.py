"""The server's routes as one table, and their endpoints."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from torcheer.studio.connections.auth import Keys, RequestGuard, small_page
from torcheer.studio.connections.message_handlers import MOST_PAGES, Hub
from torcheer.studio.connections.page_connection import PageConnection
from torcheer.studio.server_errors import report_error

_MESSAGES_PER_SEC, _BURST = 200.0, 400.0  # rate limit of one page's messages
_NOT_BUILT = small_page("The page is not built", "Run <code>make web</code> in the checkout, then load this again.")


@dataclass(frozen=True, slots=True)
class StudioRoute:
    """One path, and the file or the socket that it serves."""

    path: str
    file: str = ""  # of the built page
    type: str = ""
    methods: tuple[str, ...] = ("GET", "HEAD")
    socket: bool = False


ROUTES: Final = (
    StudioRoute("/", "index.html", "text/html; charset=utf-8"),
    StudioRoute("/studio.js", "studio.js", "text/javascript; charset=utf-8"),
    StudioRoute("/studio.css", "studio.css", "text/css; charset=utf-8"),
    StudioRoute("/icon.svg", "icon.svg", "image/svg+xml"),
    StudioRoute("/ws", methods=("GET",), socket=True),
)


def make_app(hub: Hub, keys: Keys) -> RequestGuard:
    """Create the ASGI app: the guard around the routes."""
    from starlette.applications import Starlette
    from starlette.routing import Route, WebSocketRoute

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        updates = asyncio.create_task(hub.run())
        yield
        updates.cancel()
        with suppress(asyncio.CancelledError):
            await updates

    def build_route(entry: StudioRoute) -> Route | WebSocketRoute:
        if entry.socket:
            return WebSocketRoute(entry.path, _socket(hub))
        return Route(entry.path, _file(entry), methods=list(entry.methods))

    app = Starlette(routes=[build_route(entry) for entry in ROUTES], lifespan=lifespan)
    app.router.redirect_slashes = False
    methods = frozenset(method for entry in ROUTES for method in entry.methods)
    sockets = frozenset(entry.path for entry in ROUTES if entry.socket)
    paths = frozenset(entry.path for entry in ROUTES) - sockets
    return RequestGuard(app, keys, methods=methods, paths=paths, sockets=sockets)


# -- files -------------------------------------------------------------------------------------------------------------


def page_file(name: str) -> bytes | None:
    """Read a file of the built page; None if the page has not been built."""
    file = resources.files("torcheer.studio") / "page" / name
    return file.read_bytes() if file.is_file() else None


class PageFile:
    """A cached file of the page, plain and compressed; reloaded when it was rebuilt."""

    def __init__(self, name: str) -> None:
        self.name, self._stamp = name, (-1, -1)
        self.body, self.small = b"", b""
        self.read()

    def read(self) -> bool:
        """Reload the file if it changed; True if it exists."""
        stamp = self._file_stamp()
        if stamp != self._stamp:
            body = page_file(self.name)
            self._stamp, self.body = stamp, body or b""
            self.small = gzip.compress(self.body, 6) if len(self.body) > 1000 else b""
        return bool(self.body)

    def _file_stamp(self) -> tuple[int, int]:
        try:
            status = os.stat(str(resources.files("torcheer.studio") / "page" / self.name))
        except OSError:
            return (0, 0)
        return status.st_mtime_ns, status.st_size


def _file(entry: StudioRoute) -> Callable[[Any], Any]:
    """Create the endpoint that serves a file."""
    from starlette.responses import Response

    file = PageFile(entry.file)

    async def endpoint(request: Any) -> Any:
        if not file.read():
            return Response(_NOT_BUILT, 503, media_type="text/html; charset=utf-8")
        headers = {"vary": "accept-encoding"}
        if file.small and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.small, headers={**headers, "content-encoding": "gzip"}, media_type=entry.type)
        return Response(file.body, headers=headers, media_type=entry.type)

    return endpoint


# -- the socket --------------------------------------------------------------------------------------------------------


def _socket(hub: Hub) -> Callable[[Any], Any]:
    async def endpoint(websocket: Any) -> None:
        await websocket.accept()
        if len(hub.pages) >= MOST_PAGES:
            await websocket.close(1013, "too many pages are open")
            return
        await _serve(hub, websocket)

    return endpoint


async def _serve(hub: Hub, websocket: Any) -> None:
    """Serve one page until it disconnects or stops reading."""
    page = PageConnection(websocket)
    hub.join(page)
    tasks = {asyncio.create_task(page.write()), asyncio.create_task(_receive(hub, page, websocket))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hub.leave(page)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, _usual_ends()):
                report_error(result)


def _usual_ends() -> tuple[type[Exception], ...]:
    """The exceptions that normally end a page's connection: disconnected, or too slow."""
    from starlette.websockets import WebSocketDisconnect

    return WebSocketDisconnect, TimeoutError, OSError, RuntimeError


async def _receive(hub: Hub, page: PageConnection, websocket: Any) -> None:
    """Receive a page's messages at a limited rate; the excess waits in the socket."""
    allowed, since = _BURST, time.monotonic()
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        now = time.monotonic()
        allowed, since = min(_BURST, allowed + (now - since) * _MESSAGES_PER_SEC) - 1, now
        if allowed < 0:
            await asyncio.sleep(-allowed / _MESSAGES_PER_SEC)
        await page.wait_for_room()
        hub.handle(page, message.get("text") or message.get("bytes") or "")
