"""Authentication of requests, before anything else.

Host, method, path, token or cookie, and Origin are checked, in this order.

A request comes from the user's own browser only if its Host is one of our names, or one that was allowed (against DNS
rebinding), and it carries the cookie that the printed URL was exchanged for. A socket's Origin must also be our own
page, or one of an allowed host. All redirects are relative: behind a proxy nobody here knows the page's whole path.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from torcheer.wire.page_address import parse_host

App = Callable[[Any, Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
ANCESTORS = "'self' http://localhost:* http://127.0.0.1:*"  # pages that may frame ours: those on this machine


def small_page(heading: str, text: str) -> str:
    """A page of a sentence or two, in the browser's default style, light or dark."""
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
_FOREIGN = (
    "this server answers only to its own address, as it was printed; where that is reached by another name (a proxy, a "
    "tunnel to another port), start it with --allow-host NAME"
)
_ON = small_page("The studio opens", '<a href="./">Here</a>, if it does not.')


class Keys:
    """The secrets of one server start: the printed URL's token, and the cookie it is exchanged for."""

    def __init__(
        self, port: int, addresses: Iterable[str] = (), *, allowed: Iterable[str] = (), base_path: str = "",
        token: str = "",
    ) -> None:  # fmt: skip
        """`allowed` are hosts of proxies (`page_address.parse_host`), `base_path` the prefix that they may leave on.

        `token` is one that another program of this user has made, which hands it out.
        """
        self.port, self.base_path = port, base_path
        self.token, self._cookie = token or secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        proxies = [parse_host(name) for name in allowed]
        self._proxies = frozenset(host for host, _ in proxies)
        self.origins = frozenset(origin for _, origins in proxies for origin in origins)
        names = ("127.0.0.1", "localhost", "[::1]", *addresses)
        self._everywhere = "0.0.0.0" in addresses or "[::]" in addresses
        self.hosts = frozenset(f"{name}:{port}".lower() for name in names)
        self.cookie_name = f"torcheer-studio-{port}"  # cookies ignore ports: a second studio needs another name

    def is_ours(self, host: str, server: Any) -> bool:
        """True if a Host header is one of our names, an allowed one, or the address the request came to."""
        if host in self._proxies:
            return True
        if self._everywhere and server:
            named = f"[{server[0]}]" if ":" in server[0] else server[0]
            return host in self.hosts or host == f"{named}:{self.port}"
        return host in self.hosts

    def is_our_page(self, origins: list[str], host: str) -> bool:
        """True if the Origin of a socket's request is the page that we serve, here or through an allowed host."""
        if len(origins) != 1:
            return False
        return origins[0] in self.origins or (host not in self._proxies and origins[0] == f"http://{host}")

    def set_cookie(self) -> str:
        """The Set-Cookie header; without a Path browsers send it below the page's own path only."""
        return f"{self.cookie_name}={self._cookie}; HttpOnly; SameSite=Strict"

    def is_token(self, text: str) -> bool:
        """True for the token of this start; compared in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, headers: Headers) -> bool:
        """True if a request carries the cookie of this start."""
        lines = [value.decode("latin-1") for name, value in headers if name == b"cookie"]
        return any(hmac.compare_digest(value.encode(), self._cookie.encode()) for value in self._cookie_values(lines))

    def _cookie_values(self, lines: list[str]) -> list[str]:
        parts = [part.strip().partition("=") for line in lines for part in line.split(";")]
        return [value for name, _, value in parts if name == self.cookie_name]

    def policy(self) -> str:
        """The content security policy: load only from here, framed only by pages on this machine."""
        sockets = " ".join(
            f"ws://{host}" for host in sorted(self.hosts) if "[" not in host
        )  # CSP cannot express IPv6 addresses
        proxied = sorted(origin for origin in self.origins if "[" not in origin)
        sockets = " ".join([sockets, *(f"ws{origin.removeprefix('http')}" for origin in proxied)])
        ancestors = " ".join([ANCESTORS, *proxied])
        return (
            f"default-src 'self'; connect-src 'self' {sockets}; img-src 'self' data: blob:; "
            "style-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors {ancestors}"
        )


class RequestGuard:
    """ASGI middleware: rejects unauthorized requests, adds security headers to every response."""

    def __init__(
        self, app: App, keys: Keys, *, methods: frozenset[str], paths: frozenset[str], sockets: frozenset[str]
    ):
        self.app, self.keys = app, keys
        self.methods, self.paths, self.sockets = methods, paths, sockets

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope = self._without_base(scope)
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, self._with_headers(send))
        elif scope["type"] == "http":
            await _respond(self._with_headers(send), "http.response", *refusal)
        else:
            await _respond(send, "websocket.http.response", *refusal)

    def _without_base(self, scope: Any) -> Any:
        """The request without the path prefix, which some proxies strip and others do not."""
        path, base = scope["path"], self.keys.base_path
        if not base or not path.startswith(f"{base}/"):
            return scope
        inner = path.removeprefix(base)
        return {**scope, "path": inner, "raw_path": inner.encode(), "root_path": ""}

    def has_key(self, scope: Any) -> bool:
        """True if a request carries a valid token or cookie, whatever it requests."""
        tokens = _tokens(scope["query_string"])
        return self.keys.has_cookie(scope["headers"]) or any(self.keys.is_token(token) for token in tokens)

    def _refusal(self, scope: Any) -> tuple[int, str, Headers] | None:
        """The status, text and headers of the rejection, or None for an allowed request."""
        headers, path = scope["headers"], scope["path"]
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self.keys.is_ours(hosts[0], scope.get("server")):
            return 421, _FOREIGN, []
        if scope["type"] == "websocket":
            return self._socket_refusal(headers, path, hosts[0])
        if scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            return 405, f"only {allowed} are understood", [(b"allow", allowed.encode())]
        if self.keys.base_path and path == self.keys.base_path and not scope["query_string"]:  # no token is sent back
            return 307, "", [(b"location", path.rpartition("/")[2].encode() + b"/")]
        if path not in self.paths:
            return 404, "there is nothing at this address", []
        return self._request_refusal(scope, headers, path)

    def _request_refusal(self, scope: Any, headers: Headers, path: str) -> tuple[int, str, Headers] | None:
        tokens = _tokens(scope["query_string"])
        if path == "/" and tokens:
            if len(tokens) == 1 and self.keys.is_token(tokens[0]):
                return self._exchange_token(headers)
            return 401, _UNKNOWN, []
        return None if self.keys.has_cookie(headers) else (401, _UNKNOWN, [])

    def _exchange_token(self, headers: Headers) -> tuple[int, str, Headers]:
        """Set the cookie, and forward to the page without the token in its URL.

        After a link from another site (a notebook, a file) a browser sends no SameSite=Strict cookie to the target of a
        redirect; it does so for a refresh by a page of ours.
        """
        cookie = (b"set-cookie", self.keys.set_cookie().encode())
        if (b"sec-fetch-site", b"cross-site") in headers:
            return 200, _ON, [(b"refresh", b"0;url=./"), cookie]
        return 303, "", [(b"location", b"./"), cookie]

    def _socket_refusal(self, headers: Headers, path: str, host: str) -> tuple[int, str, Headers] | None:
        if path not in self.sockets:
            return 404, "there is no socket at this address", []
        if not self.keys.has_cookie(headers):
            return 401, "open the printed address first", []
        origins = [value.decode("latin-1").lower() for name, value in headers if name == b"origin"]
        if not self.keys.is_our_page(origins, host):
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
                present = {name for name, _ in message["headers"]}  # the graph sets its own policy
                missing = [header for header in always if header[0] not in present]
                message = {**message, "headers": [*message["headers"], *missing]}
            await send(message)

        return with_headers


def _tokens(query: bytes) -> list[str]:
    try:
        return parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=20).get("token", [])
    except ValueError:  # too many fields
        return [""]


async def _respond(send: Any, kind: str, status: int, text: str, headers: Headers) -> None:
    type_of_text = b"text/html" if text.startswith("<") else b"text/plain"
    body = text.encode()
    always = [(b"content-type", type_of_text + b"; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.start", "status": status, "headers": [*always, *headers]})
    await send({"type": f"{kind}.body", "body": body, "more_body": False})
