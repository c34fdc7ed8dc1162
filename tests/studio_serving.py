"""The studio's server in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waiting import wait_until


@contextmanager
def serving(catalog: Any, keys: Any = None, port: int = 0) -> Iterator[tuple[str, Any, Any]]:
    """The URL with its token, the keys, and uvicorn's server; keys that are given outlive it."""
    from seams import listen, server_of, url_of  # needs uvicorn, as not every importer does

    listener, made = listen(port=port)
    keys = keys or made
    server = server_of(catalog, keys)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    try:
        yield url_of(listener, keys), keys, server
    finally:
        server.should_exit = True
        thread.join(20)
