"""The built site: `make docs` ends without a warning, pages load nothing from elsewhere, the search finds things."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build/site"

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def site() -> Path:
    """Build it; `--strict` fails at a link that leads nowhere, docs/_site/pages.py at a load from elsewhere."""
    built = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return SITE


PAGES = ("index", "config-reference", "api/torcheer", "notebooks/capture", "rules")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_as_a_file_and_asks_the_network_for_nothing(page: str, site: Path, browser_page: Any) -> None:
    browser_page.goto((site / f"{page}.html").as_uri())
    assert browser_page.locator("h1").first.inner_text()
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_search_finds_a_key_without_a_server(site: Path, browser_page: Any) -> None:
    browser_page.goto((site / "index.html").as_uri() + "?q=checkpoint_secs")  # asked as soon as the index is there
    found = browser_page.locator(".md-search-result__item", has_text="Config reference").first
    found.wait_for(timeout=300_000, state="attached")


def test_formulas_are_mathml_and_no_dollars_are_left(site: Path, browser_page: Any) -> None:
    browser_page.goto((site / "rules.html").as_uri())
    assert browser_page.locator("math").count() > 300
    assert "$" not in browser_page.locator("article").inner_text()


def test_a_table_of_two_columns_fits_a_phone(site: Path, browser_page: Any) -> None:
    browser_page.set_viewport_size({"width": 390, "height": 844})
    browser_page.goto((site / "studio.html").as_uri())
    right = browser_page.locator("td", has_text="a recorded pass: every value").first.bounding_box()
    assert right["x"] >= 0 and right["x"] + right["width"] <= 390


def test_headers_of_a_table_of_many_columns_keep_their_words_whole(site: Path, browser_page: Any) -> None:
    browser_page.goto((site / "selection.html").as_uri())
    header = browser_page.locator("th code", has_text="checkpoint").first.bounding_box()
    assert header["width"] < 40 < header["height"] < 160  # upright, not one letter below the other
