"""Who may speak with the server: Host, method, path, token or cookie, Origin, in this order, before all else.

A request comes from the user's own browser only if it names us as we are called (Host: no DNS name that was pointed at
us), and carries the cookie that the printed URL was changed for. A socket must also say that our own page opened it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

App = Callable[[Any, Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
ANCESTORS = "'self' http://localhost:* http://127.0.0.1:*"  # who may frame a page of ours: those on this machine


def small_page(heading: str, text: str) -> str:
    """A page of a sentence or two, in the browser's own looks, dark where the user likes that."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark"><title>torcheer studio</title>'
        f"<h1>{heading}</h1><p>{text}</p></html>\n"
    )


_UNKNOWN = small_page(
    "This address needs its token",
    "Open the address that was printed when the studio was started, with the token at its end. "
    "After a restart the old one is no longer good.",
)
_ON = small_page("The studio opens", '<a href="/">Here</a>, if it does not.')


class Keys:
    """What this start of the server can be opened with: the token in the printed URL, and a cookie made from it."""

    def __init__(self, port: int, addresses: Iterable[str] = ()) -> None:
        self.port = port
        self.token, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        names = ("127.0.0.1", "localhost", "[::1]", *addresses)
        self._everywhere = "0.0.0.0" in addresses or "[::]" in addresses
        self.hosts = frozenset(f"{name}:{port}".lower() for name in names)
        self.cookie_name = f"torcheer-studio-{port}"  # cookies know no ports: a second studio has another name

    def is_ours(self, host: str, server: Any) -> bool:
        """Whether a Host names this server: a name that it has, or the very address that the request came to."""
        if self._everywhere and server:
            named = f"[{server[0]}]" if ":" in server[0] else server[0]
            return host in self.hosts or host == f"{named}:{self.port}"
        return host in self.hosts

    def set_cookie(self) -> str:
        """The header that gives the cookie to a browser."""
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def is_token(self, text: str) -> bool:
        """Whether this is the token of this start."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, headers: Headers) -> bool:
        """Whether a request carries the cookie of this start."""
        lines = [value.decode("latin-1") for name, value in headers if name == b"cookie"]
        return any(hmac.compare_digest(found.encode(), self._cookie.encode()) for found in self._found(lines))

    def _found(self, lines: list[str]) -> list[str]:
        parts = [part.strip().partition("=") for line in lines for part in line.split(";")]
        return [value for name, _, value in parts if name == self.cookie_name]

    def policy(self) -> str:
        """What a page of ours may load: nothing from elsewhere; and who may frame it: pages on this machine."""
        sockets = " ".join(f"ws://{host}" for host in sorted(self.hosts) if "[" not in host)  # CSP has no IPv6
        return (
            f"default-src 'self'; connect-src 'self' {sockets}; img-src 'self' data: blob:; "
            "style-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors {ANCESTORS}"
        )


class Guard:
    """ASGI around the app: answers what may not pass, and gives every response its headers."""

    def __init__(
        self, app: App, keys: Keys, *, methods: frozenset[str], paths: frozenset[str], sockets: frozenset[str]
    ):
        self.app, self.keys = app, keys
        self.methods, self.paths, self.sockets = methods, paths, sockets

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is None:
            await self.app(scope, receive, self._with_headers(send))
        elif scope["type"] == "http":
            await _answer(self._with_headers(send), "http.response", *refused)
        else:
            await _answer(send, "websocket.http.response", *refused)

    def knows(self, scope: Any) -> bool:
        """Whether a request carries a key, be it good for what it asks or not."""
        tokens = _tokens(scope["query_string"])
        return self.keys.has_cookie(scope["headers"]) or any(self.keys.is_token(token) for token in tokens)

    def _refused(self, scope: Any) -> tuple[int, str, Headers] | None:
        """The status, text and headers to answer with, or None for a request that may pass."""
        headers, path = scope["headers"], scope["path"]
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self.keys.is_ours(hosts[0], scope.get("server")):
            return 421, "this server answers only to its own address, as it was printed", []
        if scope["type"] == "websocket":
            return self._refused_socket(headers, path, hosts[0])
        if scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            return 405, f"only {allowed} are understood", [(b"allow", allowed.encode())]
        if path not in self.paths:
            return 404, "there is nothing at this address", []
        return self._refused_request(scope, headers, path)

    def _refused_request(self, scope: Any, headers: Headers, path: str) -> tuple[int, str, Headers] | None:
        tokens = _tokens(scope["query_string"])
        if path == "/" and tokens:
            if len(tokens) == 1 and self.keys.is_token(tokens[0]):
                return self._welcomed(headers)
            return 401, _UNKNOWN, []
        return None if self.keys.has_cookie(headers) else (401, _UNKNOWN, [])

    def _welcomed(self, headers: Headers) -> tuple[int, str, Headers]:
        """The cookie, and the way on to a page without the token in its address.

        A browser that follows a link from elsewhere (a notebook, a file) sends no strict cookie to where a redirect
        leads; to where a page of ours leads, it does.
        """
        cookie = (b"set-cookie", self.keys.set_cookie().encode())
        if (b"sec-fetch-site", b"cross-site") in headers:
            return 200, _ON, [(b"refresh", b"0;url=/"), cookie]
        return 303, "", [(b"location", b"/"), cookie]

    def _refused_socket(self, headers: Headers, path: str, host: str) -> tuple[int, str, Headers] | None:
        if path not in self.sockets:
            return 404, "there is no socket at this address", []
        if not self.keys.has_cookie(headers):
            return 401, "open the printed address first", []
        origins = [value.decode("latin-1").lower() for name, value in headers if name == b"origin"]
        if origins != [f"http://{host}"]:
            return 403, "only the studio's own page may open its socket", []
        return None

    def _with_headers(self, send: Any) -> Any:
        always = [
            (b"content-security-policy", self.keys.policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
        ]

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                said = {name for name, _ in message["headers"]}  # the graph has a policy of its own
                message = {**message, "headers": [*message["headers"], *(one for one in always if one[0] not in said)]}
            await send(message)

        return with_headers


def _tokens(query: bytes) -> list[str]:
    try:
        return parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=20).get("token", [])
    except ValueError:  # a hundred of them
        return [""]


async def _answer(send: Any, kind: str, status: int, text: str, headers: Headers) -> None:
    type_of_text = b"text/html" if text.startswith("<") else b"text/plain"
    body = text.encode()
    always = [(b"content-type", type_of_text + b"; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.start", "status": status, "headers": [*always, *headers]})
    await send({"type": f"{kind}.body", "body": body, "more_body": False})
