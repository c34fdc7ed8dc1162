"""`/graph`: a recorded pass as the drawing room draws it, a page of its own that may run its own script and no more."""

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
from torcheer.studio.connections.message_handlers import FIRST, Desk
from torcheer.studio.server_errors import report_error


class Drawable(Protocol):
    """A source that has a graph: a recorded pass."""

    def graph(self) -> str:
        """The page of its drawing."""


_NONE = small_page("There is no graph here", "Recorded passes have one: <code>tl.show(model, inputs)</code>.")
_BROKEN = small_page("The graph could not be drawn", "What went wrong stands where the studio was started.")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def drawn(path: Path) -> str:
    """The interactive page of a saved history; works without torch."""
    from torcheer.archive import load
    from torcheer.drawing.draw import draw_history
    from torcheer.history import ModelHistory

    history = load(path)
    if not isinstance(history, ModelHistory):
        raise BadArgument(f"{path} holds no recorded pass, so there is no graph to draw")
    return draw_history(history).html()


def policy_of(page: str) -> str:
    """Its own script runs, by its hash, in an origin that is nobody's; nothing can be loaded or asked for."""
    hashes = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(page)]
    scripts = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; font-src data:; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {ANCESTORS}; sandbox allow-scripts allow-downloads"
    )


def graph_endpoint(desk: Desk) -> Callable[[Any], Any]:
    """Answers with the drawing of what a page looks at; each is drawn once, in a thread: a long one takes seconds."""
    from starlette.responses import Response

    pages: WeakKeyDictionary[Drawable, asyncio.Task[str]] = WeakKeyDictionary()

    async def endpoint(request: Any) -> Any:
        source = _source(desk, request.query_params.get("run", "-1"))
        if source is None:
            return Response(_NONE, 404, media_type="text/html")
        if source not in pages:
            pages[source] = asyncio.create_task(asyncio.to_thread(source.graph))
        try:
            page = await asyncio.shield(pages[source])
        except Exception as error:  # whatever a damaged archive does to the drawing
            report_error(error)
            return Response(_BROKEN, 500, media_type="text/html")
        return Response(page, headers={"content-security-policy": policy_of(page)}, media_type="text/html")

    return endpoint


def _source(desk: Desk, run: str) -> Drawable | None:
    """What a page looks at, by its run's number as `Hello` has it, where that is a recorded pass."""
    first = run in ("-1", str(desk.place.run))
    number = int(run) if run.isascii() and run.isdecimal() and len(run) < 9 else -1
    show = desk.shows.get(FIRST if first else ("run", number))
    source: Any = None if show is None else getattr(show.source, "current", show.source)
    return source if hasattr(source, "graph") else None
