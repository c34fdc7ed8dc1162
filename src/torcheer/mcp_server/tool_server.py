"""The server of the tools, on the official package: over stdin and stdout, or over HTTP on this machine."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from torcheer import __version__
from torcheer.errors import BadArgument, TorcheerError
from torcheer.mcp_server.run_tools import RunTools
from torcheer.studio.connections.auth import Keys

MOST_SECS: Final = 60.0  # of one request
ABOUT = (
    "Training runs, saved histories, extractions and model files of one folder, read-only. list_runs names what is "
    "there; the others take such a name."
)


def tool_server(folder: Path) -> Any:
    """Return the server with the tools of a folder, not started."""
    try:
        from mcp.server.mcpserver import Image, MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise BadArgument("torcheer mcp needs the package mcp, version 2: pip install 'torcheer[mcp]'") from None
    tools = RunTools(folder).all
    server = MCPServer("torcheer", instructions=ABOUT, version=__version__, log_level="ERROR")
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for tool in tools:
        is_picture = inspect.signature(tool).return_annotation == "bytes"
        server.tool(annotations=hints, structured_output=False)(_explained(tool, Image if is_picture else None))
    return server


def _explained(tool: Callable[..., Any], image: Any) -> Callable[..., Awaitable[Any]]:
    """Return the tool with our errors as its answers; a picture as one.

    It runs in a thread, so that a slow request holds up no other, and is answered for after MOST_SECS.
    """
    import anyio
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        work = functools.partial(tool, *args, **kwargs)
        try:
            with anyio.fail_after(MOST_SECS):
                answer = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except TimeoutError:
            raise ToolError(f"{tool.__name__} took more than {MOST_SECS:.0f} s; ask for less at a time") from None
        except TorcheerError as error:
            raise ToolError(str(error)) from None
        except Exception as error:  # a file that cannot be read: an assistant can go on with another
            raise ToolError(f"{tool.__name__} failed: {type(error).__name__}: {error}") from error
        return answer if image is None else image(data=answer, format="png")

    if image is not None:
        call.__annotations__ = {**call.__annotations__, "return": Any}
        call.__signature__ = inspect.signature(tool).replace(return_annotation=Any)  # type: ignore[attr-defined]
    return call


class TokenGuard:
    """ASGI middleware: our own host and the token of this start, as the studio asks for them."""

    def __init__(self, app: Any, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        given = [value.removeprefix("Bearer ") for name, value in headers if name == b"authorization"]
        if len(hosts) != 1 or not self._keys.is_ours(hosts[0], scope.get("server")):
            await _refuse(send, 421, b"this server answers only to its own address")
        elif any(name == b"origin" for name, _ in headers):
            await _refuse(send, 403, b"no page of a browser may ask this server")
        elif len(given) != 1 or not self._keys.is_token(given[0]):
            await _refuse(send, 401, b"the token that was printed belongs into the header Authorization: Bearer TOKEN")
        else:
            await self._app(scope, receive, send)


async def _refuse(send: Any, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
