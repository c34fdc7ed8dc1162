"""Controls of the page that are seldom used, and what must not break it: many alerts, hostile names, broken parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect
from seams import Column, Parameter, Run, TableHead, TableRows
from studio_pages import Pages, opened, served  # noqa: F401
from studio_stage import TRIALS, Stage, StagePlace
from waiting import wait_until

HOSTILE = ("constructor", "__proto__", "toString", "hasOwnProperty")


@pytest.mark.slow
def test_recordings_are_saved_without_a_name_and_dialogs_close_by_a_click_outside(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=12)
    page = open_page(url)
    for name in ("Save recording", "Open recording", "Keys"):
        page.get_by_role("button", name=name).click()
        page.get_by_role("dialog").wait_for()
        page.get_by_role("heading", name="Keys" if name == "Keys" else name).click()  # inside: it stays
        expect(page.get_by_role("dialog")).to_be_visible()
        page.mouse.click(5, 300)
        page.wait_for_selector("dialog", state="detached")
    page.get_by_role("button", name="Save recording").click()
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_selector(".notice.done")
    assert [one.name for one in source.saved] == ["recording-0"]
    page.get_by_role("button", name="Alerts").click()
    page.locator(".alert-list p").first.click()
    expect(page.locator(".alert-list")).to_be_visible()
    page.locator("h1").click()
    expect(page.locator(".alert-list")).to_have_count(0)
    page.get_by_role("button", name="Open recording").click()
    page.locator(".choices button").first.click()
    page.wait_for_selector(".chip.recording")
    moment = "window.__studio.seen().moment"
    page.keyboard.press("Home")
    wait_until(lambda: page.evaluate(moment) == 0, "the first moment", page=page)
    page.get_by_role("button", name="Newest").click()
    assert wait_until(lambda: page.evaluate(moment) == 11, "the newest moment", page=page)


def test_alerts_are_still_counted_when_the_oldest_are_forgotten(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    button = page.get_by_role("button", name="Alerts")
    for thousand in range(1, 6):
        for number in range(1000):
            source.alert(f"alert {number} of {thousand}")
        expect(button).to_have_attribute("aria-label", f"Alerts: {thousand}001, {thousand}001 new")
    button.click()
    expect(button).to_have_attribute("aria-label", "Alerts: 5001")
    expect(page.locator(".alert-list")).to_contain_text("4801 between these are not listed.")
    page.keyboard.press("Escape")
    source.alert("the last straw", "error")
    expect(button).to_have_attribute("aria-label", "Alerts: 5002, 1 new")
    expect(page.locator(".popping [aria-live=polite]")).to_have_text("Alert: the last straw")
    assert page.locator(".alerts-button.unread").count() == 1


@pytest.mark.slow
def test_an_alert_of_a_module_that_is_part_of_a_layer_leads_to_that_layer(open_page: Pages) -> None:
    source = Stage(paused=True, states=2)
    assert source.net
    first, *others = source.net.layers
    layers = (replace(first, layer=replace(first.layer, also=("relu",))), *others)
    source.net = replace(source.net, layers=layers)
    source.alert("relu is dead", "error", "relu")
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", empty=True)
    page.get_by_role("button", name="Alerts").click()
    page.locator(".alert-list").get_by_role("button", name="relu").click()
    assert page.locator("#panel-network").is_visible()
    expect(page.locator("[aria-label='Selected unit']:visible")).to_contain_text(first.layer.name)


def hostile() -> Stage:
    """A stage whose tables, columns, groups, parameters and counters are called as parts of JavaScript are."""
    source = Stage(paused=True, states=3)
    columns = tuple(Column(name, plotted=name != "toString") for name in HOSTILE)
    source.tables = {
        name: TableRows(TableHead(name, f"The {name}", columns=columns), {one: [1.0, 2.0] for one in HOSTILE}, 2)
        for name in HOSTILE
    }
    source.parameters = tuple(Parameter(name, 1, "number", True, "", name) for name in HOSTILE)
    source.state = replace(source.state, status="constructor", counters=dict.fromkeys(HOSTILE, 7))
    return source


def test_names_of_parts_of_javascript_are_names_like_others(open_page: Pages) -> None:
    url, source = open_page.stage(hostile())
    page = open_page(url, tab="plots")
    assert page.locator(".doing").inner_text() == "constructor"
    assert "__proto__ 7" in page.inner_text(".status")
    assert page.locator(".parameters legend").all_inner_texts() == ["View updates", *HOSTILE]
    for name in HOSTILE:
        page.get_by_text(f"The {name}").click()
        shown = page.locator(".readout li .soft")
        expect(shown).to_have_text(["row", "constructor", "__proto__", "hasOwnProperty"])
        page.get_by_role("checkbox", name="toString").check()
        page.get_by_role("checkbox", name="__proto__").uncheck()
        expect(shown).to_have_text(["row", "constructor", "toString", "hasOwnProperty"])
        page.get_by_label("x axis").select_option(label="__proto__")
        page.get_by_label("Error bars").select_option(label="constructor")
        expect(shown.first).to_have_text("__proto__")
    field = page.locator(".parameters").get_by_label("__proto__", exact=True)
    field.fill("5")
    field.press("Enter")
    assert wait_until(lambda: source.orders and source.orders[-1].name == "__proto__", page=page)
    page.get_by_role("tab", name="Tables").click()
    page.locator(".grid th", has_text="__proto__").get_by_role("button").click()
    assert page.locator(".grid tbody tr:not(.spare) td").all_inner_texts() == ["1"] * 4 + ["2"] * 4


def test_a_lost_connection_is_tried_at_once_where_somebody_asks(open_page: Pages) -> None:
    open_page.forgiven += ["WebSocket", "ERR_CONNECTION", "Failed to load resource"]
    source = Stage(paused=True, states=TRIALS)
    with served(source) as (url, keys):
        page = open_page(url, tab="tables")
        page.evaluate(
            """() => {
                const wait = window.setTimeout; // from now on the page never tries again by itself
                const isWait = (delay) => delay > 100 && delay < 8000;
                window.setTimeout = (run, delay, ...rest) => (isWait(delay) ? 0 : wait(run, delay, ...rest));
            }"""
        )
    banner, again = page.locator(".banner"), page.get_by_role("button", name="Try now")
    again.click()  # nobody is there: the button is back when the attempt has ended
    expect(again).to_be_enabled()
    expect(banner).to_contain_text("The viewer was closed")
    with served(source, keys, keys.port):
        again.click()
        page.wait_for_selector(".connection.open")
        expect(banner).to_have_count(0)
        page.context.close()


def test_a_part_that_fails_says_so_and_can_be_tried_again(open_page: Pages) -> None:
    open_page.forgiven += ["no colours today"]
    url, _ = open_page.stage(paused=True, states=TRIALS)
    page = open_page(url, tab="tables")
    page.evaluate(
        """() => {
            window.rightContext = HTMLCanvasElement.prototype.getContext;
            HTMLCanvasElement.prototype.getContext = () => { throw new Error("no colours today"); };
        }"""
    )
    page.get_by_text("Patterns").click()
    said = page.locator("#panel-tables [role=alert]")
    expect(said).to_contain_text("The table failed: no colours today. The run is not touched by this.")
    page.get_by_role("button", name="Try again").click()
    expect(said).to_contain_text("no colours today")  # it does again
    page.keyboard.press("2")
    expect(page.locator("#panel-plots")).to_be_visible()  # the other parts are well
    page.keyboard.press("3")
    page.evaluate("() => { HTMLCanvasElement.prototype.getContext = window.rightContext; }")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#panel-tables canvas.tensor")
    assert said.count() == 0


def test_a_table_alone_opens_on_its_tab_and_a_pass_is_called_one(open_page: Pages) -> None:
    source = Stage(paused=True)
    source.net, source.state = None, replace(source.state, status="idle", can=())
    source.tables = {"patterns": source.tables["patterns"]}
    url, _ = open_page.stage(source)
    page = open_page(url)
    page.wait_for_selector("#panel-tables .grid")
    assert "A table: there is nothing to control" in page.inner_text(".control")
    assert page.inner_text(".title .chip") == "Table"
    assert page.get_by_label("Train every").count() == 0  # nothing is recorded here
    page.keyboard.press("2")
    page.reload()
    page.wait_for_selector(".connection.open")
    assert page.locator("#panel-plots").is_visible()  # the reader has chosen
    pass_, _ = open_page.stage(Stage(kind="pass", states=1))
    page = open_page(pass_)
    assert page.locator("#panel-network").is_visible()
    assert page.inner_text(".chip.pass") == "Pass"
    assert "A recorded forward pass: there is nothing to control" in page.inner_text(".control")


class Growing(StagePlace):
    """A folder in which a run begins while somebody looks."""

    more: tuple[Run, ...] = ()
    fewer = 0  # of the first
    told: tuple[Run, ...] = ()

    def refresh(self) -> bool:
        """Whether there are others than at the last look."""
        before, self.told = self.told, self.runs
        return self.told != before

    @property
    def runs(self) -> tuple[Run, ...]:
        """Those there were, and those that began."""
        return (*super().runs, *self.more)[self.fewer :]


@pytest.mark.slow
def test_runs_that_begin_later_appear_in_the_list(open_page: Pages) -> None:
    place = Growing(Stage(paused=True))
    with served(place.source, place=place) as (url, _):
        page = open_page(url, tab="tables", empty=True)
        titles: Any = page.get_by_label("Run", exact=True).locator("option")
        expect(titles).to_have_count(3)
        place.more = (Run(3, "digits-4", "live", "training"),)
        expect(titles).to_have_count(4)
        assert titles.all_inner_texts()[3] == "digits-4 · live · training"
        place.more = (Run(3, "digits-4", "ended", "1 epoch"),)
        expect(titles.last).to_have_text("digits-4 · 1 epoch")
        chooser = page.get_by_label("Run", exact=True)
        chooser.select_option("3")  # it cannot be opened
        expect(page.locator(".notice.problem")).to_contain_text("there is no run 3")
        expect(chooser).to_have_value("0")  # what is shown is still the first
        place.fewer = 1
        expect(titles.first).to_have_text("not there any more")  # what is shown was deleted
        expect(chooser).to_have_value("0")
        page.context.close()
