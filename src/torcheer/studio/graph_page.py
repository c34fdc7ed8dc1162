"""`/graph`: a recorded pass drawn as a separate page, sandboxed to its own script."""

from __future__ import annotations

import asyncio
import hashlib
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torcheer.errors import BadArgument
from torcheer.studio.connections.auth import ANCESTORS, small_page
from torcheer.studio.connections.message_handlers import FIRST, Hub
from torcheer.studio.server_errors import report_error


class Drawable(Protocol):
    """A source that has a graph: a recorded pass."""

    def graph(self) -> str:
        """The HTML page of its drawing."""


_NONE = small_page("There is no graph here", "Recorded passes have one: <code>tl.show(model, inputs)</code>.")
_BROKEN = small_page("The graph could not be drawn", "What went wrong stands where the studio was started.")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def draw_saved_history(path: Path) -> str:
    """Draw a saved history as an interactive page; works without torch."""
    from torcheer.archive import load
    from torcheer.drawing.draw import draw_history
    from torcheer.history import ModelHistory

    history = load(path)
    if not isinstance(history, ModelHistory):
        raise BadArgument(f"{path} holds no recorded pass, so there is no graph to draw")
    return draw_history(history).html()


def policy_of(page: str) -> str:
    """The content security policy: only its own script (by hash), an opaque origin, no requests."""
    hashes = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(page)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; font-src data:; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {ANCESTORS}; sandbox allow-scripts allow-downloads"
    )


def graph_endpoint(hub: Hub) -> Callable[[Any], Any]:
    """Create the endpoint that serves a source's drawing.

    Each is drawn once, in a thread, as it takes seconds.
    """
    from starlette.responses import Response

    pages: WeakKeyDictionary[Drawable, asyncio.Task[str]] = WeakKeyDictionary()

    async def endpoint(request: Any) -> Any:
        source = _source(hub, request.query_params.get("run", "-1"))
        if source is None:
            return Response(_NONE, 404, media_type="text/html")
        if source not in pages:
            pages[source] = asyncio.create_task(asyncio.to_thread(source.graph))
        try:
            page = await asyncio.shield(pages[source])
        except Exception as error:  # a damaged archive may fail anywhere in the drawing
            report_error(error)
            return Response(_BROKEN, 500, media_type="text/html")
        return Response(page, headers={"content-security-policy": policy_of(page)}, media_type="text/html")

    return endpoint


def _source(hub: Hub, run: str) -> Drawable | None:
    """The source that a page shows, by its run's number from `Hello`.

    None unless it is a recorded pass.
    """
    first = run in ("-1", str(hub.catalog.run))
    number = int(run) if run.isascii() and run.isdecimal() and len(run) < 9 else -1
    channel = hub.channels.get(FIRST if first else ("run", number))
    source: Any = None if channel is None else channel.source
    return source if hasattr(source, "graph") else None
