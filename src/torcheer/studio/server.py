"""The viewer's process: `python -m torcheer.studio.server RUN_OR_FOLDER`; it has no torch, so it starts at once."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument, TorcheerError
from torcheer.studio.connections.auth import Keys
from torcheer.studio.connections.connection_limits import protocol_of
from torcheer.studio.connections.message_handlers import Desk
from torcheer.studio.connections.message_parsing import MOST_BYTES
from torcheer.studio.connections.source_pages import Place
from torcheer.studio.routes import make_app
from torcheer.wire.open_viewer import browse
from torcheer.wire.temporary_folders import TemporaryFolder
from torcheer.wire.viewer_process import CLOSE

Ready = Callable[[str], None] | None

_BACKLOG = 128  # connections that are accepted at once
_UNREAD_MS = 60_000  # bytes that nobody takes for so long end their connection


def main(arguments: Sequence[str]) -> int:
    """Serve a run, a folder of runs or a recording until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m torcheer.studio.server", description=main.__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--parent", type=int, default=0, help="end when this process does, or standard input")
    parser.add_argument("--browser", action="store_true", help="open one")
    parser.add_argument("--title", default="", help="what the page is called")
    parser.add_argument("--folder", type=Path, help="remove this temporary folder at the end")
    parser.add_argument("--folder-descriptor", type=int, default=-1, help="that holds it")
    chosen = parser.parse_args(arguments)
    ready = browse if chosen.browser else None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)  # what is to be done at the end is done
    folder = TemporaryFolder.inherited(chosen.folder, chosen.folder_descriptor) if chosen.folder else None
    try:
        about: Any = {"parent": chosen.parent, "title": chosen.title, "ready": ready}
        serve_path(chosen.path, port=chosen.port, address=chosen.host, **about)
    except TorcheerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if folder is not None:
            folder.remove()
    return 0


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def serve_path(
    path: Path, *, port: int = 0, address: str = "127.0.0.1", parent: int = 0, title: str = "", ready: Ready = None
) -> None:
    """Open what stands at a path and serve it; `ready(url)` is called when the server answers."""
    from torcheer.studio.sources.open_source import open_place

    listener, keys = listen(address, port)
    with listener:
        place = open_place(path, url=url_of(listener, keys), title=title)
        serve(place, listener, keys, parent=parent, ready=ready)


def listen(address: str = "127.0.0.1", port: int = 0) -> tuple[socket.socket, Keys]:
    """A socket that nobody is heard on yet, and the keys to it; port 0 is a free one."""
    _assert_installed()
    if not 0 <= port < 65536:
        raise BadArgument(f"there is no port {port}; ports go from 0, which means any free one, to 65535")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise BadArgument(
            f"{address}:{port} cannot be listened on: {error.strerror}; --port 0 takes a free port"
        ) from None
    _tune(listener)
    found = listener.getsockname()[1]
    named = f"[{address}]" if ":" in address else address
    return listener, Keys(found, () if _is_local(address) else (named,))


def _tune(listener: socket.socket) -> None:
    """What its connections inherit: nothing waits for more to send, and a page that does not read costs little."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)


def url_of(listener: socket.socket, keys: Keys) -> str:
    """The address to open, as it is printed."""
    address = listener.getsockname()[0]
    if address in ("0.0.0.0", "::"):
        address = "127.0.0.1"
    named = f"[{address}]" if ":" in address else address
    return f"http://{named}:{keys.port}/?token={keys.token}"


def serve(place: Place, listener: socket.socket, keys: Keys, *, parent: int = 0, ready: Ready = None) -> None:
    """Serve until a signal comes, or the parent goes away; `ready(url)` is called when the server answers."""
    asyncio.run(_serve(server_of(place, keys), listener, url_of(listener, keys), parent, ready))


def server_of(place: Place, keys: Keys) -> Any:
    """A uvicorn server that has not begun; `should_exit = True` ends it, `is_orphan` says that its parent is gone."""
    import uvicorn

    desk = Desk(place)

    class Server(uvicorn.Server):
        is_orphan = False

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await desk.part(expects_death=self.is_orphan)
            for connection in [one for one in self.server_state.connections if _is_leaving(one)]:
                self.server_state.connections.discard(connection)
            await super().shutdown(sockets)

    guarded = make_app(desk, keys)
    config = uvicorn.Config(
        guarded, http=protocol_of(guarded), backlog=_BACKLOG, ws="auto", lifespan="on", log_level="critical",
        access_log=False,
        ws_max_size=MOST_BYTES, ws_ping_interval=20, ws_ping_timeout=60, ws_per_message_deflate=False,
        timeout_graceful_shutdown=1, limit_concurrency=1000, server_header=False, date_header=False,
        proxy_headers=False,
    )  # fmt: skip
    return Server(config)


def _is_leaving(connection: Any) -> bool:
    """Whether a page has said goodbye to its socket: uvicorn would raise where it says so, too."""
    state = getattr(getattr(connection, "conn", None), "state", None)
    return getattr(state, "name", "") in ("CLOSING", "CLOSED")


async def _serve(server: Any, listener: socket.socket, url: str, parent: int, ready: Ready) -> None:
    if parent:
        _follow(parent, server)
    announced = asyncio.create_task(_announce(server, listener, url, ready))
    await server.serve([listener])
    announced.cancel()


async def _announce(server: Any, listener: socket.socket, url: str, ready: Ready) -> None:
    while not server.started:
        await asyncio.sleep(0.005)
    print(url, flush=True)
    address = listener.getsockname()[0]
    if not _is_local(address):
        warning = f"warning: others in the network can reach {address}; who has the address above can control the run"
        print(warning, file=sys.stderr, flush=True)
    if ready is not None:
        ready(url)


def _follow(parent: int, server: Any) -> None:
    """End with the process that started this one: it holds the other end of standard input.

    Its forks, such as a DataLoader's, may hold it too and live on for a while: so its number is looked at as well.
    """
    loop, number = asyncio.get_running_loop(), 0

    def end(is_orphan: bool) -> None:
        loop.remove_reader(number)
        server.is_orphan = is_orphan
        server.should_exit = True

    def readable() -> None:
        said = os.read(number, 4096)
        if not said or CLOSE in said:
            end(is_orphan=not said)

    def look() -> None:
        if os.getppid() != parent and not server.should_exit:
            end(is_orphan=True)
        loop.call_later(0.5, look)

    if stat.S_ISFIFO(os.fstat(number).st_mode):  # who gives no pipe is known by the number alone
        loop.add_reader(number, readable)
    look()


def _is_local(address: str) -> bool:
    return address in ("127.0.0.1", "::1", "localhost")


def _assert_installed() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise BadArgument(f"the studio needs {error.name}: pip install 'torcheer[all]'") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
