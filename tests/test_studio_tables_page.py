"""The Tables tab, and a page whose server goes away and comes back."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from seams import Column, TableHead, TableRows
from studio_pages import Pages, opened, pixels, served, settled  # noqa: F401
from studio_stage import MARKUP, Stage, value
from waiting import wait_until


def column(page: Any, number: int) -> list[str]:
    """The cells of a column that are in sight."""
    return page.locator(f".grid tbody tr:not(.spare) td:nth-child({number})").all_inner_texts()


def header(page: Any, name: str) -> Any:
    """The header of a column."""
    return page.locator(".grid th", has_text=name).first


def after_a_test() -> Stage:
    """A stage that has tested all its items and waits."""
    source = Stage(paused=True, states=25 * 8)
    source._tests, source._item = 25, 0
    for _ in range(25):
        source._test()
    return source


def test_headers_sort_up_down_and_back(open_page: Pages) -> None:
    url, source = open_page.stage(after_a_test())
    page = open_page(url, tab="tables")
    loss = source.tables["train_epoch"].columns["loss"]
    header(page, "loss").get_by_role("button").click()
    expect(header(page, "loss")).to_have_attribute("aria-sort", "ascending")
    wait_until(lambda: len(column(page, 2)) == len(loss), "all rows", page=page)
    shown = [float(text) for text in column(page, 2)]
    assert shown == sorted(shown) and len(shown) == len(loss)
    header(page, "loss").get_by_role("button").press("Enter")
    expect(header(page, "loss")).to_have_attribute("aria-sort", "descending")
    assert [float(text) for text in column(page, 2)] == shown[::-1]
    header(page, "loss").get_by_role("button").click()
    expect(header(page, "loss")).to_have_attribute("aria-sort", "none")
    assert column(page, 1) == [str(epoch) for epoch in range(1, 9)]


def test_missing_values_are_dashes_and_sort_last(open_page: Pages) -> None:
    url, _ = open_page.stage(after_a_test())
    page = open_page(url, tab="tables")
    for _direction in range(2):
        header(page, "accuracy").get_by_role("button").click()
        assert wait_until(lambda: column(page, 4)[-1] == "–", "a dash", page=page)


def test_a_filter_leaves_what_fits(open_page: Pages) -> None:
    url, _ = open_page.stage(after_a_test())
    page = open_page(url, tab="tables")
    page.get_by_text("Test trials").click()
    box = page.get_by_label("Filter rows")
    box.fill("pattern 2")
    expect(page.locator(".count")).to_have_text("6 of 25 rows")
    assert all(name.startswith("pattern 2") for name in column(page, 2))
    box.fill("error>0.9")
    expect(page.locator(".count")).to_have_text("8 of 25 rows")
    assert all(float(text) > 0.9 for text in column(page, 3))
    box.fill("nobody")
    expect(page.locator(".table-pane")).to_contain_text("No row fits “nobody”.")


def test_tensors_are_little_pictures_with_values(open_page: Pages) -> None:
    url, _ = open_page.stage(after_a_test())
    page = open_page(url, tab="tables", color_scheme="light")
    page.get_by_text("Test trials").click()
    page.locator(".grid-box").evaluate("box => { box.scrollTop = 0 }")
    page.wait_for_selector("td:has-text('pattern 0')")
    picture = page.locator(".grid tbody tr:not(.spare)").first.locator("canvas").first
    assert picture.evaluate("one => [one.width, one.height]") == [7, 5]
    right = value(0, "Hidden1", "Act", 35).reshape(5, 7)
    found = np.array(picture.evaluate("one => [...one.getContext('2d').getImageData(0, 0, 7, 5).data]"))
    colours = found.reshape(5, 7, 4).astype(int)
    warm = colours[..., 0] - colours[..., 2]  # red over blue
    assert (np.sign(warm[np.abs(right) > 0.2]) == np.sign(right[np.abs(right) > 0.2])).all()
    picture.hover(position={"x": 2, "y": 2})
    wait_until(lambda: picture.get_attribute("title") == f"[0, 0] = {right[0, 0]:.6g}", page=page)
    shot = pixels(picture.screenshot())
    assert shot.std() > 20  # it is drawn, not only known


def test_the_table_is_saved_and_copied_as_it_is_shown(open_page: Pages) -> None:
    url, source = open_page.stage(after_a_test())
    page = open_page(url, tab="tables", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("Test trials").click()
    page.get_by_label("Filter rows").fill("pattern 1")
    expect(page.locator(".count")).to_have_text("11 of 25 rows")
    header(page, "error").get_by_role("button").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "test_trial.csv"
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    cells = source.tables["test_trial"].columns
    assert len(rows) == 11
    assert [float(row["error"]) for row in rows] == sorted(cells["error"][int(row["Trial"])] for row in rows)
    assert json.loads(rows[0]["Hidden1"]) == cells["Hidden1"][int(rows[0]["Trial"])]
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector("text=Copied 11 rows.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[0].split("\t")[:3] == ["Trial", "Name", "error"]


def test_of_a_hundred_thousand_rows_only_those_in_sight_are_there(open_page: Pages) -> None:
    count = 100_000
    source = Stage(paused=True)
    head = TableHead("train_step", "Steps", "Step", columns=(Column("Step", "int"), Column("loss")))
    source.tables = {"train_step": TableRows(head, {"Step": list(range(count)), "loss": [0.5] * count}, count)}
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables")
    page.wait_for_selector("text=100000 rows")
    assert page.locator(".grid tr").count() < 80
    assert page.locator(".grid").get_attribute("aria-rowcount") == "100001"
    page.wait_for_selector("td:text-is('99999')")  # it stands at its end, where news come
    box = page.locator(".grid-box")
    box.evaluate("box => { box.scrollTop = box.scrollHeight / 2 }")
    wait_until(lambda: 49_000 < int(column(page, 1)[0]) < 51_000, page=page)
    box.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("td:text-is('0')")
    header(page, "Step").get_by_role("button").click()
    header(page, "Step").get_by_role("button").click()
    page.wait_for_selector("td:text-is('99999')")


def test_new_rows_are_followed_at_the_end_only(open_page: Pages) -> None:
    source = Stage(states=1500)
    source.trial_secs = 0.02
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables")
    page.get_by_text("Train steps").click()
    box = page.locator(".grid-box")
    wait_until(
        lambda: int(page.inner_text(".count").split()[0]) >= 1500 and int(column(page, 1)[-1]) >= 1500, page=page
    )
    before = int(column(page, 1)[-1])
    wait_until(lambda: int(column(page, 1)[-1]) > before + 20, page=page)
    box.evaluate("box => { box.scrollTop = 1000 }")
    settled(page)
    top = column(page, 1)[0]
    rows = source.tables["train_step"].count
    wait_until(lambda: source.tables["train_step"].count > rows + 30, page=page)
    assert box.evaluate("box => box.scrollTop") == 1000
    assert column(page, 1)[0] == top


@pytest.mark.slow
def test_cells_with_markup_are_text(open_page: Pages) -> None:
    source = Stage(paused=True)
    head = TableHead("run", MARKUP, columns=(Column(MARKUP, "text"), Column("Note", "text")))
    source.tables = {"run": TableRows(head, {MARKUP: [MARKUP], "Note": ["=1+1,\"x\""]}, 1)}  # fmt: skip
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables")
    expect(page.locator(".grid tbody tr:not(.spare) td:nth-child(1)")).to_have_text([MARKUP])
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.slow
def test_the_rows_of_a_column_of_tensors_are_compared(open_page: Pages) -> None:
    source = after_a_test()
    source.tables["test_trial"].columns["Name"][3] = MARKUP
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", color_scheme="light")
    page.get_by_text("Test trials").click()
    opener = header(page, "Hidden1").get_by_role("button")
    opener.click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_attribute("aria-label") == "Hidden1 · Test trials"
    picture, reading = dialog.locator("canvas"), dialog.locator("output")
    picture.wait_for()
    rows = np.array(source.tables["test_trial"].columns["Hidden1"]).reshape(25, 35)
    alike = np.corrcoef(rows)
    found = np.array(picture.evaluate("one => [...one.getContext('2d').getImageData(0, 0, 25, 25).data]"))
    warm = found.reshape(25, 25, 4)[..., 0].astype(int) - found.reshape(25, 25, 4)[..., 2]
    clear = np.abs(alike) > 0.2
    assert (np.sign(warm[clear]) == np.sign(alike[clear])).all()
    picture.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(reading).to_have_text(f"pattern 1 and pattern 2: {alike[1, 2]:.4g}")
    box = wait_until(picture.bounding_box, "the picture", page=page)
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 2)
    wait_until(lambda: reading.inner_text() == f"pattern 0 and pattern 24: {alike[0, 24]:.4g}", page=page)
    dialog.get_by_text("Principal components").click()
    points = dialog.locator("svg .point circle")
    points.first.wait_for()
    assert points.count() == 25
    dialog.locator("svg.scatter").focus()
    page.keyboard.press("End")
    expect(dialog.locator(".point.on")).to_have_count(1)
    right = max(range(25), key=lambda row: float(points.nth(row).get_attribute("cx")))
    expect(reading).to_have_text(re.compile(f"^pattern {right}: "))
    points.nth(7).hover()
    wait_until(lambda: reading.inner_text().startswith("pattern 7: "), page=page)
    dialog.get_by_text("Clusters").click()
    dialog.locator(".tree path").first.wait_for()
    assert dialog.locator(".tree path").count() == 24
    leaves = dialog.locator(".tree svg > text").all_text_contents()
    assert len(leaves) == 25 and any("<img" in leaf for leaf in leaves)
    assert page.locator("img").count() == 0
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    expect(opener).to_be_focused()


@pytest.mark.slow
def test_rows_that_cannot_be_compared_are_said(open_page: Pages) -> None:
    source = Stage(paused=True)
    source._tests = 1
    source._test()
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", empty=True)
    page.get_by_text("Test trials").click()
    header(page, "Output").get_by_role("button").click()
    problem = page.get_by_role("dialog").get_by_role("alert")
    problem.wait_for()
    assert problem.inner_text() == "it takes two rows of finite numbers to compare, and Output has 1"


# -- a server that goes away -------------------------------------------------------------------------------------------


def test_a_page_comes_back_by_itself_with_everything_right(open_page: Pages) -> None:
    open_page.forgiven += ["WebSocket", "ERR_CONNECTION", "Failed to load resource"]
    source = Stage(paused=True, states=100)
    with served(source) as (url, keys):
        page = open_page(url, tab="plots")
        page.get_by_role("button", name="Alerts: 3").wait_for()
        rate = page.get_by_label("lr", exact=True)
        rate.fill("0.5")  # and not sent yet
    page.wait_for_selector("text=The viewer was closed.")
    assert "The run is paused, and its process still runs." in page.inner_text(".banner")
    assert page.get_by_role("button", name="Train", exact=True).is_disabled()
    expect(page.locator(".readout b").first).to_have_text("4")  # what was known is still shown
    for _ in range(50):
        source._trial()
    source.alert("while you were away")
    with served(source, keys, keys.port):
        page.wait_for_selector(".connection.open")
        expect(page.locator(".banner")).to_have_count(0)
        wait_until(lambda: page.locator(".readout b").first.inner_text() == "6", page=page)
        expect(rate).to_have_value("0.01")  # the run's, as nobody was told of the other
        assert source.wanted == [] or not source.wanted[-1].variables
        page.keyboard.press("1")
        wait_until(lambda: source.wanted and source.wanted[-1].variables, "the look, said again", page=page)
        page.get_by_role("button", name="New seed").click()
        wait_until(lambda: source.orders, page=page)
        page.context.close()


@pytest.mark.slow
def test_what_was_asked_in_vain_is_asked_again_with_the_next_connection(open_page: Pages) -> None:
    open_page.forgiven += ["WebSocket", "ERR_CONNECTION", "Failed to load resource"]
    source = after_a_test()
    with served(source) as (url, keys):
        page = open_page(url, tab="tables")
        page.get_by_text("Test trials").click()
        header(page, "Hidden1").get_by_role("button").click()
        page.get_by_role("dialog").locator("canvas").wait_for()
    page.wait_for_selector(".banner")
    page.get_by_text("Clusters").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    with served(source, keys, keys.port):
        page.locator(".tree path").first.wait_for()
        assert page.get_by_role("dialog").get_by_role("alert").count() == 0
        page.context.close()


def test_a_page_with_an_old_key_is_told_what_to_do(open_page: Pages) -> None:
    open_page.forgiven += ["WebSocket", "ERR_CONNECTION", "Failed to load resource"]
    source = Stage(paused=True)
    with served(source) as (url, keys):
        page = open_page(url)
    page.wait_for_selector("text=The viewer was closed.")
    with served(source, port=keys.port):
        page.wait_for_selector("text=This page is not let in any more.")
        assert "Open the address that torcheer printed last" in page.inner_text(".banner")
        page.evaluate("""() => {
            window.said = [];
            const note = () => window.said.push(document.querySelector(".banner")?.innerText ?? "");
            new MutationObserver(note).observe(document.body, {childList: true, subtree: true, characterData: true});
        }""")
        with page.expect_response(lambda answer: answer.status == 401):  # it tries again, in vain
            page.evaluate("window.dispatchEvent(new Event('online'))")
        settled(page)
        assert not any("The viewer was closed" in one for one in page.evaluate("window.said")), "it flickers"
        page.context.close()
