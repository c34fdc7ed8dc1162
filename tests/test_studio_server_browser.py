"""Ways to the page in a real browser: typed, from a link, a file or a notebook; and ways that must not lead there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import _awake
from fast_cases import fast_first
from seams import PageAddress, inline, page_file
from studio_stage import Stage, stage

pytestmark = pytest.mark.skipif(page_file("index.html") is None, reason="the page is not built: `make web`")

SCRIPT = "**/studio.js"
APP = "#app"  # what only our own page has
ASKS = """(address) => new Promise((done) => {
    const socket = new WebSocket(address);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
})"""


class Elsewhere:
    """Another site on this machine: a notebook, or somebody who means no good."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.pages.get(self.path, "<p>nothing</p>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *about: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def staged() -> Iterator[tuple[str, Stage]]:
    with stage(paused=True, states=3) as made:
        yield made


@pytest.fixture
def page(browser: tuple[Any, Any]) -> Iterator[Any]:
    loop, chromium = browser
    with _awake(loop):
        context = chromium.new_context()
        context.route(SCRIPT, lambda route: route.fulfill(body="", content_type="text/javascript"))  # nothing to draw
        yield context.new_page()
        context.close()


def address(url: str, host: str) -> str:
    """The same under another name."""
    return url.replace("127.0.0.1", host, 1)


@pytest.mark.parametrize("host", fast_first(["127.0.0.1", "localhost"]))
def test_a_typed_address_opens_the_page_and_loses_its_token(page: Any, staged: tuple[str, Stage], host: str) -> None:
    url = address(staged[0], host)
    page.goto(url)
    page.wait_for_selector(APP)
    assert page.url == url.partition("?")[0]
    page.reload()
    page.wait_for_selector(APP)
    assert page.evaluate("document.cookie") == ""  # no script can read it
    assert page.evaluate(ASKS, f"ws://{urlsplit(url).netloc}/ws") == "open"


@pytest.mark.parametrize("host", fast_first(["127.0.0.1", "localhost"]))
def test_a_link_on_another_page_opens_it(page: Any, staged: tuple[str, Stage], elsewhere: Elsewhere, host: str) -> None:
    elsewhere.pages["/link"] = f'<a href="{staged[0]}">the studio</a>'
    page.goto(f"http://{host}:{elsewhere.port}/link")
    page.click("a")
    page.wait_for_selector(APP)
    assert page.url == staged[0].partition("?")[0]


def test_the_private_file_opens_it(page: Any, staged: tuple[str, Stage], monkeypatch: Any) -> None:
    from seams import open_viewer

    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_viewer.browse(staged[0])
    page.goto(opened[0])
    page.wait_for_selector(APP)
    assert Path(urlsplit(opened[0]).path).exists()


@pytest.mark.parametrize("host", fast_first(["127.0.0.1", "localhost"]))
def test_a_notebook_shows_it_below_the_cell(
    page: Any, staged: tuple[str, Stage], elsewhere: Elsewhere, host: str
) -> None:
    elsewhere.pages["/notebook"] = f"<p>In [1]:</p>{inline(staged[0])}"
    page.goto(f"http://{host}:{elsewhere.port}/notebook")
    frame = page.frame_locator("iframe")
    frame.locator(APP).wait_for(state="attached")
    inner = page.frames[1]
    assert urlsplit(inner.url).hostname == host
    assert inner.evaluate(ASKS, f"ws://{urlsplit(inner.url).netloc}/ws") == "open"


def test_a_notebook_on_another_machine_gets_a_link_instead(
    page: Any, staged: tuple[str, Stage], elsewhere: Elsewhere
) -> None:
    elsewhere.pages["/far"] = inline(staged[0])
    page.goto(f"http://far.localhost:{elsewhere.port}/far")
    assert page.locator("iframe").count() == 0
    assert page.get_attribute("a", "href") == staged[0]


def test_a_notebook_elsewhere_whose_host_was_allowed_shows_it_through_its_proxy(
    page: Any, elsewhere: Elsewhere
) -> None:
    host = f"far.localhost:{elsewhere.port}"
    config = '<script id="jupyter-config-data" type="application/json">{"baseUrl": "/user/me/"}</script>'
    elsewhere.pages["/user/me/proxy/4321/?token=x"] = "<h1>the studio</h1>"
    elsewhere.pages["/lab"] = config + inline("http://127.0.0.1:4321/?token=x", PageAddress(allowed_hosts=(host,)))
    page.goto(f"http://{host}/lab")
    assert page.get_attribute("iframe", "src") == "/user/me/proxy/4321/?token=x"
    assert page.get_attribute("a", "href") == "/user/me/proxy/4321/?token=x"


def test_a_foreign_site_cannot_frame_the_page(page: Any, staged: tuple[str, Stage], elsewhere: Elsewhere) -> None:
    elsewhere.pages["/frame"] = f'<iframe src="{staged[0]}"></iframe>'
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.goto(f"http://evil.localhost:{elsewhere.port}/frame")
    assert page.frames[1].locator(APP).count() == 0


def test_a_site_on_another_port_has_the_cookie_sent_but_can_read_and_open_nothing(
    page: Any, staged: tuple[str, Stage], elsewhere: Elsewhere
) -> None:
    page.goto(staged[0])
    page.wait_for_selector(APP)
    page.context.unroute(SCRIPT)
    ours = urlsplit(staged[0]).netloc
    page.goto(f"http://127.0.0.1:{elsewhere.port}/")
    assert page.evaluate(ASKS, f"ws://{ours}/ws") == "refused"
    asked = "(address) => fetch(address, {credentials: 'include'}).then(() => 'read', () => 'refused')"
    assert page.evaluate(asked, f"http://{ours}/") == "refused"
    loads = """(address) => new Promise((done) => {
        const script = document.createElement("script");
        script.src = address; script.onload = () => done("ran"); script.onerror = () => done("refused");
        document.head.append(script);
    })"""
    assert page.evaluate(loads, f"http://{ours}/studio.js") == "refused"


def test_a_name_that_was_pointed_at_this_machine_is_refused(page: Any, staged: tuple[str, Stage]) -> None:
    answer = page.goto(address(staged[0], "rebound.localhost"))
    assert answer.status == 421
