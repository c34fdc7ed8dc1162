"""The Runs tab in a browser: the list, its filter and order, curves, names and tags, the trash, a run and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_runs import logged, sweep
from playwright.sync_api import expect
from studio_pages import Pages, opened, settled  # noqa: F401
from waiting import wait_until

from torcheer.studio.server import listen, server_of, url_of
from torcheer.studio.sources.open_source import open_catalog

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of seven runs, served."""
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    sweep(tmp_path / "runs", 6)
    logged(tmp_path / "runs" / HOSTILE, rate=2.0, config={"lr": 5.0, "seed": 0})
    listener, keys = listen()
    server = server_of(open_catalog(tmp_path / "runs"), keys)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    yield url_of(listener, keys)
    server.should_exit = True
    thread.join(20)


def names(page: Any) -> list[str]:
    return page.locator(".runs-pane .grid tbody tr:not(.spare) td:nth-child(2)").all_inner_texts()


def drawn(page: Any) -> list[str]:
    return [text for text in page.locator(".run-curves .readout li .soft").all_inner_texts() if "Run" in text]


def row(page: Any, name: str) -> Any:
    return page.locator(".runs-pane .grid tbody tr", has=page.get_by_text(name, exact=True))


def test_a_folder_opens_on_its_list_which_is_filtered_sorted_and_drawn(url: str, open_page: Pages) -> None:
    page = open_page(url)
    expect(page.get_by_role("tab", name="Runs")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".runs-pane .count")).to_have_text("7 runs")
    assert HOSTILE in names(page)  # as text
    page.get_by_label("Filter runs").fill("lr<0.05 /sweep/")
    expect(page.locator(".runs-pane .count")).to_have_text("4 of 7 runs")
    page.locator(".runs-pane .grid th", has_text="loss").get_by_role("button").click()
    wait_until(lambda: names(page) == ["sweep-5", "sweep-4", "sweep-2", "sweep-1"], "sorted by loss", page=page)
    wait_until(lambda: len(drawn(page)) == 4, "the curves of what is listed", page=page)
    page.get_by_label("Choose sweep-2").click()
    page.get_by_label("Choose sweep-5").click()
    wait_until(lambda: drawn(page) == ["loss · Run sweep-2", "loss · Run sweep-5"], "the chosen", page=page)
    page.get_by_label("Add a metric").fill("accuracy")
    wait_until(lambda: len(drawn(page)) == 4, "two metrics of two runs", page=page)
    page.get_by_label("Remove accuracy").click()
    wait_until(lambda: len(drawn(page)) == 2, "one metric", page=page)
    _click_a_curve(page)


def _click_a_curve(page: Any) -> None:
    """From the top, the first line is that of the run whose loss falls more slowly."""
    box = settled(page).locator(".run-curves .u-over").bounding_box()
    for place in range(0, int(box["height"]), 20):
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + place)
        if settled(page).locator(".grid tr[aria-current]").count():
            break
    assert row(page, "sweep-2").get_attribute("aria-current") == "true"
    smoothing = page.get_by_label("Smoothing")
    smoothing.fill("0.6")
    expect(page.locator(".plot-options b")).to_have_text("0.60")


def test_a_run_is_named_tagged_opened_and_put_in_the_trash(url: str, open_page: Pages, tmp_path: Path) -> None:
    page = open_page(url)
    row(page, "sweep-3").click()
    page.get_by_text("Current run").click()
    form = page.locator(".run-panel form")
    form.get_by_label("Name").fill(HOSTILE + "2")
    form.get_by_label("Tags").fill("baseline, paper")
    form.get_by_role("button", name="Save").click()
    expect(row(page, HOSTILE + "2")).to_have_count(1)
    page.get_by_label("Filter runs").fill("tag:paper")
    expect(page.locator(".runs-pane .count")).to_have_text("1 of 7 runs")
    assert (tmp_path / "runs" / "sweep-3" / "notes.json").is_file()
    page.get_by_label("Filter runs").fill("")
    row(page, "sweep-1").dblclick()
    expect(page.locator("h1")).to_have_text("sweep-1")
    expect(page.get_by_role("tab", name="Network")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("h")
    expect(page.locator(".runs-pane .count")).to_have_text("7 runs")
    page.get_by_label("Choose sweep-0").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".runs-pane .count")).to_have_text("6 runs")
    assert not (tmp_path / "runs" / "sweep-0").exists() and list((tmp_path / "runs" / ".trash").glob("*/sweep-0"))


def test_columns_are_chosen_and_stay(url: str, open_page: Pages) -> None:
    page = open_page(url)
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Find a column").fill("optim")
    page.locator(".column-groups").get_by_text("train.optimizer").click()
    page.get_by_label("Find a column").fill("seed")
    page.locator(".column-groups").get_by_text("train.seed").click()
    page.keyboard.press("Escape")
    expect(page.locator(".runs-pane .grid th", has_text="train.optimizer")).to_have_count(0)
    expect(page.locator(".runs-pane .grid th", has_text="train.seed")).to_have_count(0)
    page.reload()
    expect(page.locator(".runs-pane .grid th", has_text="train.lr")).to_have_count(1)
    expect(page.locator(".runs-pane .grid th", has_text="train.optimizer")).to_have_count(0)
