"""A Chromium for tests: `browser_page` is a page that must not complain and must not ask the network for anything."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# WebGL2 in software, all else drawn without it, which takes a fifth less time; and no talk with its maker.
FLAGS = (
    "--no-sandbox --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader --ignore-gpu-blocklist "
    "--disable-gpu-compositing "
    "--disable-background-networking --disable-component-update --disable-sync --no-first-run --disable-dev-shm-usage"
).split()
# The pages behind the address bar, which nobody sees: to load them took half of the CPU time of opening a page of ours.
ADDRESS_BAR = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup")
# The second list of a command line holds instead of the first: these are what Playwright switches off.
PLAYWRIGHTS = (
    "AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades HttpsFirstBalancedModeAutoEnable "
    "LensOverlay MediaRouter PaintHolding ThirdPartyStoragePartitioning AvoidCorsURLLoaderRestartOnRedirect "
    "OptimizationHints NetworkTimeServiceQuerying AimEnabled PreconnectToSearch"
).split()
FLAGS.append(f"--disable-features={','.join((*PLAYWRIGHTS, *ADDRESS_BAR))}")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")  # as .ci/browser looks for them
LOCAL = ("file:", "data:", "blob:", "about:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests of this process; skips where there is none, but fails where CI says there must be."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed: `make setup` installs it")
    path = chromium_path()
    if path is None:
        _missing("no Chromium on this machine: `.ci/browser` installs one, or set CHROMIUM to its path")
    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()
    browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
    asyncio._set_running_loop(None)
    yield loop, browser
    with _awake(loop):
        browser.close()
        _end_driver()
        playwright.stop()


def chromium_path() -> str | None:
    """The browser of this machine, where there is one."""
    return next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *NAMES))), None)


def _end_driver() -> None:
    """End Playwright's driver, which `stop` would wait for without end where a forked process holds its pipe."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and b"playwright/driver" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:  # it has just ended
            continue


@pytest.fixture
def browser_page(browser: tuple[Any, Any]) -> Iterator[Any]:
    """A Playwright page of 1280×800, offline; the test fails when it logs an error or asks for more than files."""
    loop, chromium = browser
    with _awake(loop):
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, offline=True)
        complaints = watch(context)
        page = context.new_page()
        yield page
        context.close()
    assert complaints == []


def watch(context: Any) -> list[str]:
    """A list that grows with each error a page logs or throws, and each request that would leave the machine."""
    complaints: list[str] = []

    def logged(message: Any) -> None:
        if message.type == "error":
            complaints.append(f"console: {message.text}")

    def asked(request: Any) -> None:
        if not request.url.startswith(LOCAL):
            complaints.append(f"request: {request.url}")

    context.on("console", logged)
    context.on("weberror", lambda error: complaints.append(f"uncaught: {error.error}"))
    context.on("request", asked)
    return complaints


@contextmanager
def _awake(loop: Any) -> Iterator[None]:
    """Playwright's loop counts as running, in the whole thread, only while a page is in use.

    Without this, the first page of a session would break `asyncio.run` in every later test.
    """
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


def _missing(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
