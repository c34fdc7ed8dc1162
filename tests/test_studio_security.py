"""Who may speak with the server: a matrix of real requests, made from its table of routes.

What each case must get is worked out here from the rules, not asked of the server's own code.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from seams import ROUTES, page_file
from studio_socket import Page, cookie_of
from studio_stage import MARKUP, stage

PATHS = [way.path for way in ROUTES if not way.socket]
SOCKETS = [way.path for way in ROUTES if way.socket]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"]
STRANGE_PATHS = [
    "/index.html", "/nope", "/studio.js/", "//", "/./", "/page/studio.js", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/",
    "/studio.js%00.css", "/STUDIO.JS", "/ws/", "/static/../studio.js", "/%3Cimg%20src=x%20onerror=alert(1)%3E",
    "/<script>alert(1)</script>", "/favicon.ico", "/openapi.json", "/docs", "/graph", "/graph/1", "/graph.html",
]  # fmt: skip
GOOD_HOSTS = ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"]
BAD_HOSTS = [
    "evil.example:{port}", "evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1:{port}0",
    "0.0.0.0:{port}",
    "127.0.0.1.evil.example:{port}", "localhost.evil.example:{port}", "user@127.0.0.1:{port}", "127.1:{port}",
    "127.0.0.1:{port}, evil.example", "2130706433:{port}", "::1:{port}", MARKUP,
]  # fmt: skip
GOOD_KEYS = ["cookie", "cookie among others"]
BAD_KEYS = [
    "nothing", "bad token", "empty token", "two tokens", "old cookie", "token as cookie", "cookie of another name",
    "bearer", "sec-fetch", "empty cookie", "many tokens",
]  # fmt: skip
OWN_ORIGIN = "http://{host}"
BAD_ORIGINS = [
    None, "null", "", "http://evil.example", "http://evil.example:{port}", "https://{host}", "http://127.0.0.1",
    "http://127.0.0.1:1", "http://{host}.evil.example", "ws://{host}", "http://{host}/", "http://user@{host}", MARKUP,
]  # fmt: skip


class Server(NamedTuple):
    """One server, and all that opens it or does not."""

    port: int
    token: str
    cookie: str
    old_cookie: str


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with stage(paused=True) as (old_url, _):
        old = cookie_of(old_url)
    with stage(paused=True, markup=True) as (url, _):
        parts = urlsplit(url)
        assert parts.port is not None
        cookie = cookie_of(url)
        old_value = old.partition("=")[2]  # as after a restart on the same port
        yield Server(parts.port, parts.query.removeprefix("token="), cookie, f"{cookie.partition('=')[0]}={old_value}")


def keyed(server: Server, key: str) -> tuple[str, list[str]]:
    """The query and the headers that go with a way of showing who one is."""
    name, _, value = server.cookie.partition("=")
    return {
        "nothing": ("", []),
        "token": (f"?token={server.token}", []),
        "bad token": (f"?token={server.token[:-1]}x", [f"Cookie: {server.cookie}"]),
        "empty token": ("?token=", []),
        "two tokens": (f"?token={server.token}&token=x", []),
        "many tokens": ("?" + "&".join(["a=1"] * 30 + [f"token={server.token}"]), []),
        "cookie": ("", [f"Cookie: {server.cookie}"]),
        "cookie among others": ("?a=1", [f"Cookie: a=b; {name}=wrong; {server.cookie}; c"]),
        "old cookie": ("", [f"Cookie: {server.old_cookie}"]),
        "token as cookie": ("", [f"Cookie: {name}={server.token}"]),
        "cookie of another name": ("", [f"Cookie: {name}0={value}"]),
        "empty cookie": ("", [f"Cookie: {name}="]),
        "bearer": ("", [f"Authorization: Bearer {server.token}"]),
        "sec-fetch": ("", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-User: ?1"]),
    }[key]


def expected(method: str, path: str, host_is_good: bool, key: str) -> int:
    """The rules: Host first, then the method, then the path, then who it is."""
    if not host_is_good:
        return 421
    if method not in ("GET", "HEAD"):
        return 405
    if path not in PATHS:
        return 404
    if key == "token" and path == "/":
        return 303
    if key == "bad token" and path != "/":  # it carries a cookie, and a token is no concern of other paths
        return 200
    return 200 if key in GOOD_KEYS else 401


class Asker:
    """Requests over one connection, as long as the server keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, headers: list[str]) -> http.client.HTTPResponse:
        for _ in range(2):
            try:
                if self._connection.sock is None:
                    self._connection.connect()
                lines = [f"{method} {path} HTTP/1.1", *headers, "", ""]
                self._connection.sock.sendall("\r\n".join(lines).encode("latin-1"))
                answer = http.client.HTTPResponse(self._connection.sock, method=method)
                answer.begin()
            except (ConnectionError, http.client.BadStatusLine):
                self._connection.close()
                continue
            answer.body = answer.read()  # type: ignore[attr-defined]
            if answer.will_close:
                self._connection.close()
            return answer
        raise ConnectionError("the server does not answer")

    def close(self) -> None:
        self._connection.close()


def cases() -> Iterator[tuple[str, str, str, str]]:
    """method, path, host, key: every pair of rules meets."""
    keys, paths = [*GOOD_KEYS, *BAD_KEYS, "token"], [*PATHS, *SOCKETS, *STRANGE_PATHS]
    yield from itertools.product(["GET"], [*PATHS, "/nope"], [*GOOD_HOSTS, *BAD_HOSTS], keys)
    yield from itertools.product(METHODS, paths, [GOOD_HOSTS[0]], ["cookie", "nothing"])
    yield from itertools.product(["GET", "HEAD"], paths, [GOOD_HOSTS[0], BAD_HOSTS[0]], keys)


def socket_cases() -> Iterator[tuple[str, str, str | None, str]]:
    """path, host, origin, key."""
    keys = [*GOOD_KEYS, *BAD_KEYS, "token"]
    yield from itertools.product(SOCKETS, [*GOOD_HOSTS, *BAD_HOSTS], [OWN_ORIGIN, *BAD_ORIGINS[:4]], keys[:4])
    yield from itertools.product(SOCKETS, GOOD_HOSTS[:2], [OWN_ORIGIN, *BAD_ORIGINS], keys)
    yield from itertools.product([*PATHS, "/nope", "/ws/"], GOOD_HOSTS[:1], [OWN_ORIGIN], keys[:3])


def test_the_matrix_is_large_and_holds_every_route() -> None:
    asked, opened = set(cases()), set(socket_cases())
    assert len(asked) + len(opened) >= 300
    assert {path for _, path, _, _ in asked} >= {way.path for way in ROUTES}
    assert {path for path, _, _, _ in opened} >= {way.path for way in ROUTES}


@pytest.mark.skipif(page_file("index.html") is None, reason="the page is not built: `make web`")
def test_every_request_gets_what_the_rules_say(server: Server) -> None:
    asker, wrong = Asker(server.port), []
    for method, path, host, key in sorted(set(cases())):
        query, headers = keyed(server, key)
        named = host.format(port=server.port)
        answer = asker.ask(method, path + query, [f"Host: {named}", *headers])
        allowed = [expected(method, path, host in GOOD_HOSTS, key)]
        allowed += [400] if host not in GOOD_HOSTS else []  # what HTTP itself refuses
        problems = list(odd(answer, server))
        if answer.status not in allowed or problems:
            wrong.append((method, path, named, key, answer.status, allowed, problems))
    asker.close()
    assert wrong == []


def odd(answer: Any, server: Server) -> Iterator[str]:
    """What must be true of every response."""
    headers = {name.lower(): value for name, value in answer.getheaders()}
    body = answer.body.decode("utf-8", "replace")
    if answer.status != 400:  # those are from the HTTP parser
        policies = [value for name, value in answer.getheaders() if name.lower() == "content-security-policy"]
        if len(policies) != 1 or "default-src 'self'" not in policies[0]:
            yield "no policy, or two"
        elif "unsafe" in policies[0]:
            yield "a script or a style of anybody's"
        if headers.get("x-content-type-options") != "nosniff" or headers.get("referrer-policy") != "no-referrer":
            yield "no nosniff, or a referrer"
        if headers.get("cache-control") != "no-store":
            yield "may be kept"
    if any(name.startswith("access-control-") for name in headers) or "server" in headers:
        yield "CORS, or the name of the server"
    if server.token in body or "alert(1)" in body or MARKUP in body or "token=" in headers.get("location", ""):
        yield "says back what was asked, or a secret"
    if ("set-cookie" in headers) != (answer.status == 303):
        yield "a cookie for the wrong one"


def test_every_socket_gets_what_the_rules_say(server: Server) -> None:
    wrong = []
    for path, host, origin, key in sorted(set(socket_cases()), key=repr):
        named = host.format(port=server.port)
        said = None if origin is None else origin.format(host=named, port=server.port)
        query, headers = keyed(server, key)
        status = handshake(server.port, path + query, named, said, headers)
        has_cookie = key in GOOD_KEYS or key == "bad token"  # that one carries a cookie; tokens open no socket
        if host not in GOOD_HOSTS:
            allowed = [421, 400]
        elif path not in SOCKETS:
            allowed = [404]
        elif not has_cookie:
            allowed = [401]
        else:
            allowed = [101] if origin == OWN_ORIGIN else [403]
        if status not in allowed:
            wrong.append((path, named, said, key, status, allowed))
    assert wrong == []


def handshake(port: int, path: str, host: str, origin: str | None, headers: list[str]) -> int:
    """The status that an upgrade to a socket is answered with."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", *headers]
    lines += [] if origin is None else [f"Origin: {origin}"]
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        first = connection.recv(4096).split(b"\r\n")[0]
    return int(first.split()[1])


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1:{port}", "evil.example"], ["evil.example", "127.0.0.1:{port}"]])
def test_a_request_with_no_host_or_two_is_refused(server: Server, hosts: list[str]) -> None:
    asker = Asker(server.port)
    lines = [f"Host: {host.format(port=server.port)}" for host in hosts]
    assert asker.ask("GET", "/", [*lines, f"Cookie: {server.cookie}"]).status in (400, 421)
    asker.close()


def test_a_forwarded_host_is_not_believed(server: Server) -> None:
    asker = Asker(server.port)
    said = [f"X-Forwarded-Host: 127.0.0.1:{server.port}", f"Forwarded: host=127.0.0.1:{server.port}"]
    assert asker.ask("GET", "/", ["Host: evil.example", *said, f"Cookie: {server.cookie}"]).status == 421
    asker.close()


def test_the_token_is_changed_for_a_cookie_that_scripts_and_other_sites_cannot_use(server: Server) -> None:
    asker = Asker(server.port)
    answer = asker.ask("GET", f"/?token={server.token}", [f"Host: 127.0.0.1:{server.port}"])
    cookie = answer.getheader("set-cookie") or ""
    assert (answer.status, answer.getheader("location")) == (303, "./")
    assert re.fullmatch(
        rf"torcheer-studio-{server.port}=[\w-]{{43}}; HttpOnly; SameSite=Strict", cookie
    )  # its name has the port: cookies have none; no Path: it is sent below the page's own path only
    assert server.token not in cookie
    asker.close()


def test_one_who_follows_a_link_from_elsewhere_is_led_on_by_a_page_of_ours(server: Server) -> None:
    asker = Asker(server.port)
    said = [f"Host: 127.0.0.1:{server.port}", "Sec-Fetch-Site: cross-site"]
    answer = asker.ask("GET", f"/?token={server.token}", said)
    assert (answer.status, answer.getheader("refresh")) == (200, "0;url=./")
    assert "SameSite=Strict" in (answer.getheader("set-cookie") or "")
    assert asker.ask("GET", "/?token=wrong", said).status == 401
    asker.close()


def test_who_has_no_token_is_told_where_to_find_it(server: Server) -> None:
    asker = Asker(server.port)
    answer = asker.ask("GET", "/", [f"Host: localhost:{server.port}"])
    assert answer.status == 401
    assert b"Open the address that was printed" in answer.body  # type: ignore[attr-defined]
    asker.close()


def test_names_with_markup_are_data_to_the_server() -> None:
    with stage(paused=True, markup=True, states=2) as (url, _), Page(url) as page:
        names = [placed["layer"]["name"] for placed in page.hello["net"]["layers"]]
        assert MARKUP in names
        frames, _ = page.state(look=1, variable="Act")
        assert frames[MARKUP][0].layer == MARKUP
        page.say("ask_value", question=7, layer=f"{MARKUP}?", unit=0, variable="Act", moment=0)
        assert json.dumps(MARKUP)[1:-1] in json.dumps(page.until("problem")["text"])


def test_a_socket_that_says_more_than_64_kilobytes_at_once_is_closed(server: Server) -> None:
    from websockets.exceptions import ConnectionClosed

    url = f"http://127.0.0.1:{server.port}/?token={server.token}"
    with Page(url) as page:
        page.send("x" * 70_000)
        with pytest.raises(ConnectionClosed) as closed:
            page.quiet(20)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    with Page(url) as page:  # and the server is still there
        assert page.hello["version"] == 2
