"""The tools over HTTP: on the loopback address, with a token of this start."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.errors import BadArgument
from torcheer.mcp_server.tool_server import TokenGuard
from torcheer.studio.connections.auth import Keys


def serve(server: Any, port: int) -> None:
    """Serve until Ctrl-C; the address and the token are printed to stderr."""
    import uvicorn

    class Server(uvicorn.Server):
        """A server that SIGTERM ends at once, whatever it does: there is nothing to be saved."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            with super().capture_signals():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                yield

    config = uvicorn.Config(
        server.streamable_http_app(json_response=True), host="127.0.0.1", port=port, log_level="error"
    )
    try:
        listener = config.bind_socket()
    except SystemExit:
        raise BadArgument(f"port {port} is in use; --port 0 takes a free one") from None
    listener.listen()  # before anybody is told of it
    port = listener.getsockname()[1]
    keys = Keys(port)
    config.app = TokenGuard(config.app, keys)
    print(f"http://127.0.0.1:{port}/mcp\nAuthorization: Bearer {keys.token}", file=sys.stderr, flush=True)
    Server(config).run([listener])
