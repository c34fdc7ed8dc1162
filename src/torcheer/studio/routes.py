"""The server's addresses, as one table, and what stands at each."""

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

from torcheer.studio.connections.auth import Guard, Keys, small_page
from torcheer.studio.connections.message_handlers import MOST_PAGES, Desk
from torcheer.studio.connections.page_connection import Page
from torcheer.studio.graph_page import graph_endpoint
from torcheer.studio.server_errors import report_error

SLOW_SECS: Final = 60.0  # a page that takes longer for one message is let go
_A_SECOND, _AT_ONCE = 200.0, 400.0  # messages of one page that are heard
_NOT_BUILT = small_page("The page is not built", "Run <code>make web</code> in the checkout, then load this again.")


@dataclass(frozen=True, slots=True)
class Way:
    """One address, and the file, the drawing or the socket that stands there."""

    path: str
    file: str = ""  # of the built page
    type: str = ""
    methods: tuple[str, ...] = ("GET", "HEAD")
    socket: bool = False


ROUTES: Final = (
    Way("/", "index.html", "text/html; charset=utf-8"),
    Way("/studio.js", "studio.js", "text/javascript; charset=utf-8"),
    Way("/studio.css", "studio.css", "text/css; charset=utf-8"),
    Way("/icon.svg", "icon.svg", "image/svg+xml"),
    Way("/graph"),
    Way("/ws", methods=("GET",), socket=True),
)


def make_app(desk: Desk, keys: Keys) -> Guard:
    """The whole server as one ASGI app: the guard around the routes."""
    from starlette.applications import Starlette
    from starlette.routing import Route, WebSocketRoute

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        news = asyncio.create_task(desk.run())
        yield
        news.cancel()
        with suppress(asyncio.CancelledError):
            await news

    def route(way: Way) -> Route | WebSocketRoute:
        if way.socket:
            return WebSocketRoute(way.path, _socket(desk))
        return Route(way.path, _file(way) if way.file else graph_endpoint(desk), methods=list(way.methods))

    app = Starlette(routes=[route(way) for way in ROUTES], lifespan=lifespan)
    app.router.redirect_slashes = False
    methods = frozenset(method for way in ROUTES for method in way.methods)
    sockets = frozenset(way.path for way in ROUTES if way.socket)
    paths = frozenset(way.path for way in ROUTES) - sockets
    return Guard(app, keys, methods=methods, paths=paths, sockets=sockets)


# -- files -------------------------------------------------------------------------------------------------------------


def page_file(name: str) -> bytes | None:
    """A file of the built page, None where it has not been built."""
    file = resources.files("torcheer.studio") / "page" / name
    return file.read_bytes() if file.is_file() else None


class Kept:
    """A file of the page, as it is and compressed; read again when it was built anew."""

    def __init__(self, name: str) -> None:
        self.name, self._stamp = name, (-1, -1)
        self.body, self.small = b"", b""
        self.read()

    def read(self) -> bool:
        """Whether there is one."""
        stamp = self._found()
        if stamp != self._stamp:
            body = page_file(self.name)
            self._stamp, self.body = stamp, body or b""
            self.small = gzip.compress(self.body, 6) if len(self.body) > 1000 else b""
        return bool(self.body)

    def _found(self) -> tuple[int, int]:
        try:
            status = os.stat(str(resources.files("torcheer.studio") / "page" / self.name))
        except OSError:
            return (0, 0)
        return status.st_mtime_ns, status.st_size


def _file(way: Way) -> Callable[[Any], Any]:
    """An endpoint that answers with a file."""
    from starlette.responses import Response

    kept = Kept(way.file)

    async def endpoint(request: Any) -> Any:
        if not kept.read():
            return Response(_NOT_BUILT, 503, media_type="text/html; charset=utf-8")
        headers = {"vary": "accept-encoding"}
        if kept.small and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(kept.small, headers={**headers, "content-encoding": "gzip"}, media_type=way.type)
        return Response(kept.body, headers=headers, media_type=way.type)

    return endpoint


# -- the socket --------------------------------------------------------------------------------------------------------


def _socket(desk: Desk) -> Callable[[Any], Any]:
    async def endpoint(websocket: Any) -> None:
        await websocket.accept()
        if len(desk.pages) >= MOST_PAGES:
            await websocket.close(1013, "too many pages are open")
            return
        await _serve(desk, websocket)

    return endpoint


async def _serve(desk: Desk, websocket: Any) -> None:
    """One page, until it goes away or stops reading."""

    async def send(message: str | bytes) -> None:
        async with asyncio.timeout(SLOW_SECS):
            await (websocket.send_text(message) if isinstance(message, str) else websocket.send_bytes(message))

    page = Page(send)
    desk.join(page)
    tasks = {asyncio.create_task(page.write()), asyncio.create_task(_listen(desk, page, websocket))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        desk.leave(page)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, _usual_ends()):
                report_error(result)


def _usual_ends() -> tuple[type[Exception], ...]:
    """How a page ends: it went away, or it was too slow."""
    from starlette.websockets import WebSocketDisconnect

    return WebSocketDisconnect, TimeoutError, OSError, RuntimeError


async def _listen(desk: Desk, page: Page, websocket: Any) -> None:
    """Hear what a page says, so many messages a second; more are left in the socket, where they wait."""
    allowed, since = _AT_ONCE, time.monotonic()
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        now = time.monotonic()
        allowed, since = min(_AT_ONCE, allowed + (now - since) * _A_SECOND) - 1, now
        if allowed < 0:
            await asyncio.sleep(-allowed / _A_SECOND)
        await page.room()
        desk.hear(page, message.get("text") or message.get("bytes") or "")
