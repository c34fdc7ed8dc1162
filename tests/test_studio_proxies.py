"""The studio behind a proxy: a path prefix, stripped or not, and hosts that were allowed by name; nobody else."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from children import Child
from seams import jupyter_entry
from studio_runs import fake
from studio_socket import Page, cookie_of
from test_studio_security import handshake

HOST, ORIGIN = "studio.example.org", "https://studio.example.org"


class Proxied(NamedTuple):
    """A server that `torcheer studio` started behind a proxy."""

    url: str
    port: int
    cookie: str
    printed: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    run = fake(tmp_path_factory.mktemp("runs") / "first", epochs=2)
    options = ("--base-path", "/x/{port}/y", "--allow-host", f"https://{HOST}", "--no-browser")
    with Child("-m", "torcheer", "studio", run, *options) as command:
        url, printed = command.line(), command.line()
        yield Proxied(url, urlsplit(url).port or 0, cookie_of(url), printed)


def asked(server: Proxied, path: str, host: str, cookie: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path, headers={"Host": host, "Cookie": cookie})
    return connection.getresponse()


def base(server: Proxied) -> str:
    return f"/x/{server.port}/y"


def test_the_page_is_below_its_prefix_and_the_proxys_address_is_printed(server: Proxied) -> None:
    token = urlsplit(server.url).query
    assert urlsplit(server.url).path == f"{base(server)}/"
    assert server.printed == f"through https://{HOST}{base(server)}/?{token}"
    with Page(server.url) as page:
        assert page.until("rows")["columns"]["loss"] == [0.5, 0.25]


@pytest.mark.parametrize("stripped", [False, True], ids=["as it is", "stripped"])
def test_a_proxy_may_strip_the_prefix_or_not(server: Proxied, stripped: bool) -> None:
    prefix = "" if stripped else base(server)
    for path in ("/", "/studio.js", "/studio.css", "/icon.svg"):
        assert asked(server, prefix + path, HOST, server.cookie).status == 200
        assert asked(server, prefix + path, HOST).status == 401
    answer = asked(server, f"{prefix}/?{urlsplit(server.url).query}", HOST)
    assert (answer.status, answer.getheader("location")) == (303, "./")
    assert "Path" not in (answer.getheader("set-cookie") or "")  # the browser takes that of the page it sees
    assert handshake(server.port, f"{prefix}/ws", HOST, ORIGIN, [f"Cookie: {server.cookie}"]) == 101


def test_without_its_last_slash_the_page_is_elsewhere_and_no_token_is_sent_back(server: Proxied) -> None:
    answer = asked(server, base(server), HOST, server.cookie)
    assert (answer.status, answer.getheader("location")) == (307, "y/")
    assert asked(server, f"{base(server)}?{urlsplit(server.url).query}", HOST).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", f"{HOST}:1234", f"{HOST}.evil.example", f"x.{HOST}", "example.org", "localhost"]
)
def test_a_host_that_was_not_allowed_is_refused(server: Proxied, host: str) -> None:
    assert asked(server, f"{base(server)}/", host, server.cookie).status == 421
    assert handshake(server.port, f"{base(server)}/ws", host, ORIGIN, [f"Cookie: {server.cookie}"]) == 421


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (HOST, ORIGIN, 101),
        ("127.0.0.1:{port}", ORIGIN, 101),  # nginx names the server behind it unless it is told otherwise
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 101),
        (HOST, f"http://{HOST}", 403),  # https was allowed
        (HOST, "https://evil.example", 403),
        (HOST, "http://127.0.0.1:{port}", 403),
        (HOST, None, 403),
        ("127.0.0.1:{port}", "http://localhost:{port}", 403),
        ("127.0.0.1:{port}", f"{ORIGIN}:8443", 403),
    ],
)
def test_a_socket_is_opened_by_our_own_page_only(server: Proxied, host: str, origin: str | None, status: int) -> None:
    named, said = host.format(port=server.port), origin and origin.format(port=server.port)
    cookie = [f"Cookie: {server.cookie}"]
    assert handshake(server.port, f"{base(server)}/ws", named, said, cookie) == status
    assert handshake(server.port, f"{base(server)}/ws", named, said, []) == 401


def test_the_policy_names_the_proxy_and_nobody_else(server: Proxied) -> None:
    policy = asked(server, f"{base(server)}/", HOST, server.cookie).getheader("content-security-policy") or ""
    assert "wss://studio.example.org;" in policy.split("img-src")[0]
    assert policy.split("frame-ancestors")[1].split() == [
        "'self'", "http://localhost:*", "http://127.0.0.1:*", ORIGIN,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "text"), [("--allow-host=*", "no host to allow"), ("--base-path=x", "no path prefix")]
)
def test_what_cannot_be_allowed_is_refused(tmp_path: Path, option: str, text: str) -> None:
    with Child("-m", "torcheer", "studio", tmp_path, option) as command:
        command.ends(1)
        assert text in command.error_text and "Traceback" not in command.error_text


@pytest.mark.parametrize("token", ["short", "x" * 42, "y" * 42 + "<"])
def test_a_token_from_elsewhere_must_be_as_long_as_ours(tmp_path: Path, token: str) -> None:
    with Child("-m", "torcheer", "studio", tmp_path, env={"TORCHEER_STUDIO_TOKEN": token}) as command:
        command.ends(1)
        assert "TORCHEER_STUDIO_TOKEN" in command.error_text and token not in command.error_text


def test_jupyters_launcher_starts_a_studio_that_only_its_own_token_opens(tmp_path: Path) -> None:
    entry = jupyter_entry()
    (run := tmp_path / "run").mkdir()
    (run / "run.json").write_text('{"format": 1}')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [part.format(port=port) for part in entry["command"][1:]]
    with Child(*command, cwd=tmp_path, env=entry["environment"]) as process:
        url = process.line()
        assert entry["launcher_entry"]["path_info"] == f"torcheer-studio/?{urlsplit(url).query}"
        headers = {name: text.format(port=port) for name, text in entry["request_headers_override"].items()}
        cookie = [f"Cookie: {cookie_of(url)}"]
        assert handshake(port, "/ws", headers["Host"], headers["Origin"], cookie) == 101
        assert handshake(port, "/ws", headers["Host"], headers["Origin"], []) == 401
    assert jupyter_entry()["environment"] != entry["environment"]
