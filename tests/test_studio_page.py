"""The studio's page around its tabs: connection, tabs, keys, theme, alerts, runs and recordings, hostile names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fast_cases import fast_first
from playwright.sync_api import expect
from seams import Every
from studio_pages import Pages, opened, pixels, served, settled  # noqa: F401
from studio_stage import MARKUP, Stage
from waiting import wait_until


def test_the_page_says_what_it_shows_and_where_it_is(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=30)
    page = open_page(url)
    assert page.title() == "a stage · torcheer studio"
    assert page.inner_text("h1") == "a stage"
    assert page.inner_text(".connection").strip() == "Connected"
    assert "?token" not in page.url
    line = page.inner_text(".status")
    counters = source.state.counters
    assert all(f"{name} {value}" in line for name, value in counters.items())
    assert "Paused" in line


def test_tabs_are_tabs_for_mouse_keys_and_screen_readers(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True)
    page = open_page(url)
    assert page.get_by_role("tab", selected=True).inner_text() == "Network"
    page.get_by_role("tab", name="Plots").click()
    assert page.get_by_role("tabpanel").get_attribute("id") == "panel-plots"
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Tables"
    assert page.evaluate("document.activeElement.id") == "tab-tables"
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Graph"
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Network"
    page.keyboard.press("End")
    assert page.get_by_role("tab", selected=True).inner_text() == "Graph"
    assert page.locator("[role=tab][tabindex='0']").count() == 1
    page.keyboard.press("2")
    assert page.locator("#panel-plots").is_visible()
    page.reload()
    page.wait_for_selector(".connection.open")
    assert page.locator("#panel-plots").is_visible()  # the address says which tab


def test_what_is_hidden_is_not_looked_at(open_page: Pages) -> None:
    url, source = open_page.stage(states=3)
    page = open_page(url)
    wait_until(lambda: source.wanted and source.wanted[-1].variables, "a look", page=page)
    page.keyboard.press("2")
    wait_until(lambda: not source.wanted[-1].variables, "no look", page=page)
    page.keyboard.press("1")
    wait_until(lambda: source.wanted[-1].variables == ("Act",), "a look again", page=page)
    page.evaluate("""() => {
        Object.defineProperty(document, "visibilityState", {value: "hidden", configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    assert wait_until(lambda: not source.wanted[-1].variables, "no look of a hidden page", page=page)


RATES = {"10 trials": ("trial", 10), "100 trials": ("trial", 100), "epoch": ("epoch", 1), "10 epochs": ("epoch", 10),
         "off": ("off", 1), "trial": ("trial", 1), "automatic": ("auto", 1)}  # fmt: skip


def test_how_often_the_view_is_updated_reaches_the_host(open_page: Pages) -> None:
    url, source = open_page.stage(states=3)
    page = open_page(url)
    for label, side in (("Train every", "train"), ("Test every", "test")):
        for title, (unit, count) in RATES.items():
            page.get_by_label(label).select_option(label=title)
            wanted = Every(unit, count)
            assert wait_until(
                lambda side=side, wanted=wanted: source.wanted and getattr(source.wanted[-1], side) == wanted,
                f"{label} {title}",
                page=page,
            )
        titles = page.get_by_label(label).locator("option").all_inner_texts()
        assert sorted(titles) == sorted(RATES)  # there is no other


def ground(page: Any) -> list[int]:
    """The page's background in the middle of its first bar, as it was drawn."""
    picture = page.screenshot(clip={"x": 600, "y": 5, "width": 4, "height": 4})
    return [int(part) for part in pixels(picture)[0]]


@pytest.mark.parametrize("scheme", fast_first(["light", "dark"]))
def test_colours_follow_the_system_and_the_choice_is_remembered(open_page: Pages, scheme: str) -> None:
    other = "dark" if scheme == "light" else "light"
    url, _ = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True, color_scheme=scheme)
    first = ground(page)
    assert (sum(first) > 600) == (scheme == "light")
    page.get_by_role("button", name=f"{other.title()} colours").click()
    assert (sum(ground(page)) > 600) == (scheme == "dark")
    page.reload()
    page.wait_for_selector(".connection.open")
    assert (sum(ground(page)) > 600) == (scheme == "dark")
    page.keyboard.press("d")
    assert ground(page) == first
    page.emulate_media(color_scheme=other)
    assert ground(page) == first  # as it was chosen, whatever the system does
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="Colours as the system has them").click()
    page.emulate_media(color_scheme=other)
    assert (sum(ground(page)) > 600) == (scheme == "dark")  # and back to following it
    page.reload()
    page.wait_for_selector(".connection.open")
    page.emulate_media(color_scheme=scheme)
    assert ground(page) == first


def test_text_has_enough_contrast_in_both_themes(open_page: Pages) -> None:
    script = """() => {
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
            const hex = style.getPropertyValue(name).trim().slice(1);
            const parts = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
                .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
        };
        const pairs = [["--ink", "--ground"], ["--ink", "--panel"], ["--soft", "--ground"], ["--soft", "--panel"],
            ["--soft", "--raised"], ["--accent", "--panel"], ["--accent", "--accent-soft"], ["--on-accent", "--accent"],
            ["--warn", "--warn-soft"], ["--bad", "--bad-soft"], ["--bad", "--panel"], ["--good", "--panel"]];
        return pairs.map(([front, back]) => {
            const [one, two] = [light(front), light(back)].sort((a, b) => b - a);
            return [front, back, (one + 0.05) / (two + 0.05)];
        });
    }"""
    url, _ = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    for _theme in range(2):
        for front, back, contrast in page.evaluate(script):
            assert contrast >= 4.5, (front, back, contrast)
        page.keyboard.press("d")


def test_alerts_are_counted_listed_and_said_aloud(open_page: Pages) -> None:
    source = Stage(paused=True)
    source.state = replace(source.state, unit="batch")
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", empty=True)
    button = page.get_by_role("button", name="Alerts")
    assert button.get_attribute("aria-label") == "Alerts: 1, 1 new"
    source.alert("gradients of Hidden2 vanish", "error", "Hidden2")
    page.wait_for_selector("[aria-label='Alerts: 2, 2 new']")
    assert page.locator(".popping [aria-live=polite]").inner_text() == "Alert: gradients of Hidden2 vanish"
    button.click()
    items = page.locator(".alert-list li")
    assert "gradients of Hidden2 vanish" in items.first.inner_text()  # of step 0: what is later may follow from it
    assert "stuck" in items.last.inner_text()
    assert button.get_attribute("aria-label") == "Alerts: 2"
    page.keyboard.press("2")
    items.first.get_by_role("button", name="Hidden2").click()
    assert page.locator("#panel-network").is_visible()
    expect(page.locator(".alert-list")).to_contain_text("No watch looks at this run's layers")  # with an alert, too
    page.keyboard.press("Escape")
    expect(page.locator(".alert-list")).to_have_count(0)
    for key in "123":  # the unit is selected, still, and on every tab
        page.keyboard.press(key)
        expect(page.locator("[aria-label='Selected unit']:visible")).to_have_count(1)


def test_a_recording_is_saved_opened_and_closed(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=12)
    page = open_page(url, tab="tables", empty=True)
    page.get_by_role("button", name="Open recording").click()
    assert "Nothing saved yet" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save recording").click()
    name = page.get_by_role("dialog").get_by_label("Name")
    expect(name).to_be_focused()
    page.keyboard.type("../etc")
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_disabled()
    name.fill("before-lunch")
    name.press("Enter")
    page.wait_for_selector(".notice.done")
    assert [one.name for one in source.saved] == ["before-lunch"]
    page.get_by_role("button", name="Open recording").click()
    page.locator(".choices").get_by_role("button", name="before-lunch").click()
    page.wait_for_selector(".chip.recording")
    assert "A recording" in page.inner_text(".control")
    page.get_by_role("button", name="Close recording").click()
    page.wait_for_selector(".chip.live")


def test_another_run_of_the_folder_is_opened(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    chooser = page.get_by_label("Run", exact=True)
    assert chooser.input_value() == "0"
    chooser.select_option(label="digits-2 · 12 epochs · val loss 0.31")
    page.wait_for_selector(".chip.run")
    assert page.inner_text("h1") == "a run"
    assert "not training now" in page.inner_text(".control")
    assert chooser.input_value() == "1"


def test_what_the_server_cannot_do_is_said_and_can_be_dismissed(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=3)
    source.saved.append(source.save("gone"))
    page = open_page(url, tab="tables", empty=True)
    source.saved.clear()
    page.get_by_role("button", name="Open recording").click()
    page.locator(".choices button").first.click()
    notice = page.locator(".notice.problem")
    assert "there is no recording" in notice.inner_text()
    notice.get_by_role("button").click()
    page.wait_for_selector(".notice", state="detached")


def test_names_with_markup_are_text_everywhere(open_page: Pages) -> None:
    source = Stage(paused=True, markup=True, states=60)
    source.title = MARKUP
    source.alert(MARKUP, MARKUP, MARKUP)
    url, _ = open_page.stage(source)
    page = open_page(url)
    assert page.inner_text("h1") == MARKUP
    page.get_by_role("button", name="Alerts").click()
    assert MARKUP in page.inner_text(".alert-list")
    for key in "123":
        page.keyboard.press(key)
        settled(page)
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_every_control_has_a_name(open_page: Pages) -> None:
    open_page.forgiven += ["WebSocket", "ERR_CONNECTION", "Failed to load resource"]
    script = """() => [...document.querySelectorAll("button, input, select, textarea, dialog, canvas[role], svg[role],"
            + " [role=slider], [role=region], [role=radiogroup], [tabindex='0']")]
        .filter((element) => (element.offsetParent || element.matches("dialog, dialog *"))
            && !(element.getAttribute("aria-label") || element.getAttribute("aria-labelledby")
                || element.getAttribute("aria-roledescription") || element.innerText?.trim() || element.labels?.length
                || element.title))
        .map((element) => element.outerHTML)"""
    source = Stage(paused=True, states=60)
    source._tests = 3
    for _ in range(3):
        source._test()
    source.save("kept")
    with served(source) as (url, _):
        page = open_page(url)
        for key in "123":
            page.keyboard.press(key)
            assert settled(page).evaluate(script) == [], key
        page.get_by_text("Test trials").click()
        page.locator(".grid th", has_text="Hidden1").get_by_role("button").click()
        for name in ("Similarity", "Principal components", "Clusters"):
            page.get_by_role("radio", name=name).check()
            page.locator(".comparison canvas, .comparison svg").first.wait_for()
            assert page.evaluate(script) == [], name
        page.keyboard.press("Escape")
        for name in ("Save recording", "Open recording", "Keys"):
            page.get_by_role("button", name=name).click()
            assert page.get_by_role("dialog").get_attribute("aria-label")
            assert page.evaluate(script) == [], name
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name="Alerts").click()
        assert page.evaluate(script) == []
        page.keyboard.press("2")
        page.get_by_label("Own y axis each").check()
        page.keyboard.press("1")
        for mode in page.locator("#network-range option").evaluate_all("all => all.map((one) => one.value)"):
            page.select_option("#network-range", mode)  # percentile and fixed ranges have boxes of their own
            assert settled(page).evaluate(script) == [], mode
    page.wait_for_selector(".banner button")
    assert page.evaluate(script) == []
    page.context.close()


@pytest.mark.slow
def test_a_narrow_window_shows_everything(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True, states=60)
    page = open_page(url, viewport={"width": 800, "height": 600})
    for key in "123":
        page.keyboard.press(key)
        assert settled(page).evaluate("document.documentElement.scrollWidth") == 800
        for name in ("Init", "Train", "Stop", "Step run", "Test trial", "Test all", "New seed"):
            box = page.get_by_role("button", name=name, exact=True).bounding_box()
            assert box and box["x"] + box["width"] <= 800
    page.get_by_role("button", name="Parameters").click()
    assert page.get_by_label("lr", exact=True).is_visible()
