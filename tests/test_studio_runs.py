"""The Runs tab in a browser: the list, its filter and order, curves, names and tags, the trash, a run and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_runs import killed, logged, served_folder, sweep
from playwright.sync_api import expect
from studio_pages import Pages, opened, settled  # noqa: F401
from studio_runs import fake
from waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of seven runs, served."""
    sweep(tmp_path / "runs", 6)
    killed(tmp_path / "runs" / "sweep-1")
    logged(tmp_path / "runs" / HOSTILE, rate=2.0, config={"lr": 5.0, "seed": 0})
    with served_folder(tmp_path / "runs", monkeypatch) as url:
        yield url


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
    row(page, "sweep-5").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(row(page, "sweep-4")).to_be_focused()
    page.keyboard.press(" ")
    page.get_by_label("Choose sweep-1").click(modifiers=["Shift"])  # all between them
    wait_until(lambda: sorted(drawn(page)) == [f"loss · Run sweep-{n}" for n in (1, 2, 4)], "a range", page=page)
    page.get_by_role("button", name="3 chosen").click()
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
        if settled(page).locator(".grid tr[aria-current] td").nth(1).inner_text() != "sweep-4":  # as the keys left it
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
    form.get_by_label("Note").fill(HOSTILE)
    form.get_by_role("button", name="Save").click()
    expect(row(page, HOSTILE + "2")).to_have_count(1)
    page.get_by_label("Filter runs").fill("tag:paper")
    expect(page.locator(".runs-pane .count")).to_have_text("1 of 7 runs")
    assert json.loads((tmp_path / "runs" / "sweep-3" / "notes.json").read_text())["note"] == HOSTILE
    page.get_by_label("Filter runs").fill("Status=killed")
    expect(page.locator(".runs-pane .count")).to_have_text("1 of 7 runs")
    _opened(page, tmp_path / "runs" / "sweep-1")
    page.get_by_label("Filter runs").fill("")
    _tagged(page, tmp_path / "runs")
    _deleted_and_taken_back(page, tmp_path / "runs")


def _opened(page: Any, run: Path) -> None:
    """By each way in; one that was killed says so, and each way back leads to the list as it was."""
    ways = [
        row(page, "sweep-1").dblclick,
        lambda: row(page, "sweep-1").press("Enter"),
        page.get_by_role("button", name="Open run").click,
        page.locator(".run-panel").get_by_role("button", name="Open").click,
    ]
    backs = [lambda: page.keyboard.press("h"), page.get_by_role("tab", name="Runs").click]
    for number, way in enumerate(ways):
        way()
        expect(page.locator("h1")).to_have_text("sweep-1")
        expect(page.get_by_role("tab", name="Network")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".banner p")).to_have_text(
            f"Training was killed, or has crashed after step 40. It is kept; open it again with torcheer studio {run}"
        )
        backs[number % 2]()
        expect(page.locator(".runs-pane .count")).to_have_text("1 of 7 runs")
    ways[1]()
    expect(page.locator("h1")).to_have_text("sweep-1")
    page.reload()
    expect(page.locator("h1")).to_have_text("sweep-1")  # not the one that the folder opens with
    page.keyboard.press("h")


def _tagged(page: Any, folder: Path) -> None:
    """Checked runs are tagged together; their names stay. CSV has what is listed."""
    page.get_by_label(f"Choose {HOSTILE}2").click()
    page.get_by_label("Choose sweep-0").click()
    ways = (("Add", "Tagged", {"baseline paper new", "new"}), ("Take away", "Untagged", {"baseline paper", ""}))
    for button, done, tags in ways:
        page.get_by_role("button", name="Tag…").click()
        page.get_by_role("dialog").get_by_label("Tags").fill("new")
        page.get_by_role("button", name=button).click()
        expect(page.locator(".notice").get_by_text(f"{done} 2 runs.", exact=True)).to_be_visible()
        kept = [json.loads((folder / name / "notes.json").read_text()) for name in ("sweep-3", "sweep-0")]
        assert {" ".join(notes["tags"]) for notes in kept} == tags and kept[0]["name"] == HOSTILE + "2"
        page.get_by_label(f"Dismiss: {done} 2 runs.").click()
    page.get_by_title("Choose none").click()
    with page.expect_download() as download:
        page.locator(".runs-pane").get_by_role("button", name="CSV").click()
    assert HOSTILE in Path(download.value.path()).read_text()


def _deleted_and_taken_back(page: Any, folder: Path) -> None:
    page.get_by_label("Choose sweep-0").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Move to the trash").click()
    expect(page.locator(".runs-pane .count")).to_have_text("6 runs")
    assert not (folder / "sweep-0").exists() and list((folder / ".trash").glob("*/sweep-0"))
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".runs-pane .count")).to_have_text("7 runs")
    assert (folder / "sweep-0" / "run.json").is_file()


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
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("button", name="The usual ones").click()
    expect(page.locator(".runs-pane .grid th", has_text="train.optimizer")).to_have_count(1)


def test_a_list_too_long_for_a_menu_has_a_button_that_leads_to_it(
    open_page: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(201):
        fake(tmp_path / "runs" / f"run-{number}", epochs=1)
    with served_folder(tmp_path / "runs", monkeypatch) as url:
        page = open_page(url, tab="plots", empty=True)
        assert page.get_by_label("Run", exact=True).count() == 0
        page.get_by_role("button", name="201 runs").click()
        expect(page.get_by_role("tab", name="Runs")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".runs-pane .count")).to_have_text("201 runs")
        page.close()
