"""Pages of the studio in a real browser, for tests: they must not complain, and ask nobody but their server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import _awake
from PIL import Image
from seams import Keys
from studio_serving import serving
from studio_stage import Stage, StagePlace, stage
from waiting import WAIT_SECS

OPEN = ".connection.open"
FILLED = {"plots": ".readout b", "tables": ".grid"}  # what a tab has when its first rows are drawn


class Pages:
    """Opens pages, each in a context of its own; `forgiven` are parts of complaints that are meant to be."""

    def __init__(self, chromium: Any) -> None:
        self._chromium, self._contexts, self._stages = chromium, list[Any](), ExitStack()
        self.complaints: list[str] = []
        self.forgiven: list[str] = []

    def __call__(self, url: str, *, tab: str = "", empty: bool = False, **options: Any) -> Any:
        """A connected page at `url`, on a tab that has been filled, but for one that is to stay empty."""
        options = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **options}
        context = self._chromium.new_context(**options)
        context.set_default_timeout(WAIT_SECS * 1000)
        self._contexts.append(context)
        self._watch(context, urlsplit(url).netloc)
        page = context.new_page()
        page.goto(f"{url}#{tab}" if tab else url)
        page.wait_for_selector(OPEN)
        if tab in FILLED and not empty:
            page.wait_for_selector(FILLED[tab])
        return settled(page)

    def stage(self, source: Stage | None = None, **options: Any) -> tuple[str, Stage]:
        """A stage that stands until all pages are closed: they would complain of its going."""
        return self._stages.enter_context(stage(source, **options))

    def until_closed(self, server: Any) -> Any:
        """Enter a server's context, which lasts until all pages are closed."""
        return self._stages.enter_context(server)

    def close(self) -> None:
        """Close them, and fail where one complained."""
        for context in self._contexts:
            context.close()
        self._stages.close()
        meant = [one for one in self.complaints if any(part in one for part in self.forgiven)]
        unmeant = [one for one in self.complaints if one not in meant]
        assert unmeant == [], unmeant

    def _watch(self, context: Any, ours: str) -> None:
        def logged(message: Any) -> None:
            if message.type == "error":
                self.complaints.append(f"console: {message.text} {message.location.get('url', '')}")

        def asked(request: Any) -> None:
            parts = urlsplit(request.url)
            if parts.netloc != ours and parts.scheme not in ("data", "blob"):
                self.complaints.append(f"request: {request.url}")

        context.on("console", logged)
        context.on("weberror", lambda error: self.complaints.append(f"uncaught: {error.error}"))
        context.on("request", asked)


@pytest.fixture(name="open_page")
def opened(browser: tuple[Any, Any]) -> Iterator[Pages]:
    """`open_page(url)` gives a page; they are closed, and their complaints counted, after the test."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_SECS * 1000)
    loop, chromium = browser
    with _awake(loop):
        pages = Pages(chromium)
        yield pages
        pages.close()


@pytest.fixture(scope="module", name="open_shared_page")
def opened_for_a_module(browser: tuple[Any, Any]) -> Iterator[Pages]:
    """The same for all tests of a module: pages that several facts are read from."""
    loop, chromium = browser
    with _awake(loop):
        pages = Pages(chromium)
        yield pages
        pages.close()


@contextmanager
def served(
    source: Stage, keys: Keys | None = None, port: int = 0, place: StagePlace | None = None
) -> Iterator[tuple[str, Keys]]:
    """The server, with keys that outlive it."""
    with running(source, keys, port, place) as (url, keys, _):
        yield url, keys


@contextmanager
def running(
    source: Stage | None, keys: Keys | None = None, port: int = 0, place: StagePlace | None = None
) -> Iterator[tuple[str, Keys, Any]]:
    """The same, and uvicorn's server itself."""
    with serving(place or StagePlace(source or Stage()), keys, port) as served:
        yield served


def settled(page: Any) -> Any:
    """The page, after all it wanted to draw has been drawn."""
    page.evaluate("""async () => {
        for (let frame = 0; frame < 3; frame++) {
            await new Promise((done) => requestAnimationFrame(done));
            await new Promise((done) => setTimeout(done));
        }
    }""")
    return page


def pixels(png: bytes) -> Any:
    """The colours of a PNG's pixels, row by row (pixels, 3)."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int).reshape(-1, 3)
