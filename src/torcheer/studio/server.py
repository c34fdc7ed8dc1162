"""The viewer's process: `python -m torcheer.studio.server RUN_OR_FOLDER`.

Starts fast, as it never imports torch.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument, TorcheerError
from torcheer.network.heads.token_names import TokenNames, read_token_names
from torcheer.studio.connections.auth import Keys
from torcheer.studio.connections.connection_limits import protocol_of
from torcheer.studio.connections.message_handlers import Hub
from torcheer.studio.connections.message_parsing import MOST_BYTES
from torcheer.studio.connections.source_pages import SourceCatalog
from torcheer.studio.routes import make_app
from torcheer.studio.viewer_owner import Owner
from torcheer.wire.open_viewer import browse
from torcheer.wire.page_address import (
    ADDRESS_OPTIONS,
    LOCAL,
    PageAddress,
    allowed_by_environment,
    check_base,
    chosen_address,
    ways_to,
)
from torcheer.wire.page_lifetime import free_port
from torcheer.wire.parent import Parent
from torcheer.wire.temporary_folders import TemporaryFolder

Ready = Callable[[str], None] | None

_BACKLOG = 128  # of the listening socket
_FREE_SECS = 5.0  # for a viewer that gives way to end
_UNREAD_MS = 60_000  # unacknowledged bytes older than this end their connection


def main(arguments: Sequence[str], parent: Parent | None = None) -> int:
    """Serve a run, a folder of runs or a recording until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m torcheer.studio.server", description=main.__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("other", type=Path, nargs="?", help="compare with this")
    for name, settings in ADDRESS_OPTIONS.items():
        parser.add_argument(name, **settings)
    parser.add_argument("--browser", action="store_true", help="open one")
    parser.add_argument("--title", default="", help="what the page is called")
    add_token_names(parser)
    parser.add_argument("--folder", type=Path, help="hold this temporary folder, and remove it at the end")
    parser.add_argument("--stays", type=float, default=0.0, help="seconds without a page after the parent's end")
    options = parser.parse_args(arguments)
    ready = browse if options.browser else None
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), _end)  # exit normally, so that cleanup runs
    fds = list(parent.fds) if parent is not None else []
    folder = TemporaryFolder.inherited(options.folder, fds.pop(0)) if fds and options.folder else None
    owner = Owner(parent, stays_secs=options.stays, terminal=fds.pop(0) if fds else -1) if parent is not None else None
    try:
        names = read_token_names(options.token_names)
        serve_path(
            options.path,
            chosen_address(options),
            other=options.other,
            owner=owner,
            title=options.title,
            token_names=names,
            ready=ready,
        )
    except TorcheerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if owner is not None:
            owner.close()
        if folder is not None:
            folder.remove()
    return 0


def add_token_names(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the tokens of attention heads."""
    parser.add_argument(
        "--token-names", default="", metavar="NAMES",
        help="at the rows and columns of attention heads: names between spaces, a file with one on each line, or JSON",
    )  # fmt: skip


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def serve_path(
    path: Path, address: PageAddress | None = None, *, other: Path | None = None, owner: Owner | None = None,
    title: str = "", token_names: TokenNames = (), ready: Ready = None,
) -> None:  # fmt: skip
    """Open a path and serve it, side by side with `other` if given; `ready(url)` is called once the server answers."""
    from torcheer.studio.comparison.open_comparison import ComparisonCatalog
    from torcheer.studio.sources.open_source import open_catalog

    address = address or PageAddress()
    listener, keys = listen(
        address.host, address.port, base_path=address.base_path,
        allowed=[*address.allowed_hosts, *allowed_by_environment()], token=_given_token(),
    )  # fmt: skip
    with listener:
        catalog: SourceCatalog = (
            open_catalog(path, url=url_of(listener, keys), title=title, token_names=token_names)
            if other is None
            else ComparisonCatalog(path, other, title=title)
        )

        def announce(url: str) -> None:
            if owner is None:  # else the process that started this one prints it
                print(url, *ways_to(url, address), sep="\n", flush=True)
            if ready is not None:
                ready(url)

        serve(catalog, listener, keys, owner=owner, ready=announce)


def _given_token() -> str:
    """The token that JupyterLab's launcher knows (`jupyter_entry`); it must be as long as one of ours."""
    token = os.environ.pop("TORCHEER_STUDIO_TOKEN", "")
    if token and not re.fullmatch(r"[\w-]{43,}", token):
        raise BadArgument("TORCHEER_STUDIO_TOKEN has fewer than 43 letters, or others than letters, digits, - and _")
    return token


def listen(
    address: str = LOCAL, port: int = 0, *, base_path: str = "", allowed: Sequence[str] = (), token: str = ""
) -> tuple[socket.socket, Keys]:
    """Bind a listening socket, not yet served, and create its keys; port 0 picks a free one."""
    _assert_installed()
    if not 0 <= port < 65536:
        raise BadArgument(f"there is no port {port}; ports go from 0, which means any free one, to 65535")
    try:
        listener = _bind(address, port)
    except OSError as error:
        raise BadArgument(
            f"{address}:{port} cannot be listened on: {error.strerror}; --port 0 takes a free port"
        ) from None
    _tune(listener)
    bound_port = listener.getsockname()[1]
    named = f"[{address}]" if ":" in address else address
    base = check_base(base_path, bound_port)
    addresses = () if _is_local(address) else (named,)
    return listener, Keys(bound_port, addresses, allowed=allowed, base_path=base, token=token)


def _bind(address: str, port: int) -> socket.socket:
    """Bind a port; a viewer of this user that has outlived its program gives way."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    deadline = time.monotonic() + _FREE_SECS
    while True:
        try:
            return socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not free_port(port) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _tune(listener: socket.socket) -> None:
    """Set socket options that connections inherit.

    No Nagle delay, a small send buffer, and a timeout for stalled readers.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)


def url_of(listener: socket.socket, keys: Keys) -> str:
    """The URL to open, with its token."""
    address = listener.getsockname()[0]
    if address in ("0.0.0.0", "::"):
        address = "127.0.0.1"
    named = f"[{address}]" if ":" in address else address
    return f"http://{named}:{keys.port}{keys.base_path}/?token={keys.token}"


def serve(
    catalog: SourceCatalog, listener: socket.socket, keys: Keys, *, owner: Owner | None = None, ready: Ready = None
) -> None:
    """Serve until a signal arrives, a page closes the studio, or its owner ends it.

    `ready(url)` is called once the server answers.
    """
    asyncio.run(_serve(server_of(catalog, keys), listener, url_of(listener, keys), owner, ready))


def server_of(catalog: SourceCatalog, keys: Keys) -> Any:
    """Create a uvicorn server, not started.

    `should_exit = True` ends it, `is_orphan`: its parent has exited; `hub` has its pages, served at `port`.
    """
    import uvicorn

    hub = Hub(catalog)

    class Server(uvicorn.Server):
        is_orphan = False

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await hub.shut_down(expects_death=self.is_orphan)
            for connection in [each for each in self.server_state.connections if _is_closing(each)]:
                self.server_state.connections.discard(connection)
            await super().shutdown(sockets)

    guarded = make_app(hub, keys)
    config = uvicorn.Config(
        guarded, http=protocol_of(guarded), backlog=_BACKLOG, ws="auto", lifespan="on", log_level="critical",
        access_log=False,
        ws_max_size=MOST_BYTES, ws_ping_interval=20, ws_ping_timeout=60, ws_per_message_deflate=False,
        timeout_graceful_shutdown=1, limit_concurrency=1000, server_header=False, date_header=False,
        proxy_headers=False,
    )  # fmt: skip
    server: Any = Server(config)
    server.hub, server.port, hub.end = hub, keys.port, lambda: setattr(server, "should_exit", True)
    return server


def _is_closing(connection: Any) -> bool:
    """True if a page has already closed its socket: uvicorn would raise when closing it again."""
    state = getattr(getattr(connection, "conn", None), "state", None)
    return getattr(state, "name", "") in ("CLOSING", "CLOSED")


async def _serve(server: Any, listener: socket.socket, url: str, owner: Owner | None, ready: Ready) -> None:
    if owner is not None:
        owner.watch(server)
    announced = asyncio.create_task(_announce(server, listener, url, owner, ready))
    await server.serve([listener])
    announced.cancel()


async def _announce(server: Any, listener: socket.socket, url: str, owner: Owner | None, ready: Ready) -> None:
    while not server.started:
        await asyncio.sleep(0.005)
    if owner is not None:
        owner.parent.wire.send({"kind": "url", "url": url})
    if ready is not None:
        ready(url)
    address = listener.getsockname()[0]
    if not _is_local(address):
        warning = f"warning: others in the network can reach {address}; who has the address above can control the run"
        print(warning, file=sys.stderr, flush=True)


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
