"""The browser that other tests use: it shows a page, and notices what a page should not do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from browser import watch


def test_a_page_runs_its_script(browser_page: Any) -> None:
    script = "document.querySelector('p').textContent += ' and well'"
    browser_page.goto(f"data:text/html,<p>here</p><script>{script}</script>")
    assert browser_page.inner_text("p") == "here and well"


def test_a_page_draws_with_webgl2(browser_page: Any) -> None:
    browser_page.goto("data:text/html,<canvas></canvas>")
    assert browser_page.evaluate("!!document.querySelector('canvas').getContext('webgl2')")


@pytest.mark.parametrize(
    ("markup", "complaint"),
    [
        ("<script>console.error('spilled')</script>", "console: spilled"),
        ("<script>throw new Error('tripped')</script>", "uncaught: tripped"),
        ("<img src='http://nowhere.invalid/x.png'>", "request: http://nowhere.invalid/x.png"),
        ("<script>fetch('http://nowhere.invalid/y').catch(() => 0)</script>", "request: http://nowhere.invalid/y"),
    ],
)
def test_what_a_page_should_not_do_is_noticed(browser_page: Any, markup: str, complaint: str) -> None:
    context = browser_page.context.browser.new_context(offline=True)  # its own: these complaints are wanted
    complaints = watch(context)
    page = context.new_page()
    page.goto(f"data:text/html,{markup}", wait_until="networkidle")
    context.close()
    assert complaint in complaints


def test_a_browser_that_waits_does_not_disturb_asyncio(browser: Any) -> None:
    async def three() -> int:
        return 3

    assert asyncio.run(three()) == 3
