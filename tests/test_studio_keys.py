"""The keyboard: which keys there are, what they do where the focus is, and that nothing takes them away."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect
from studio_pages import Pages, opened  # noqa: F401
from studio_stage import TRIALS, Stage, value
from waiting import wait_until

SIGNS = {"Space": " ", "←": "ArrowLeft", "→": "ArrowRight", "↑": "ArrowUp", "↓": "ArrowDown", "Esc": "Escape", "−": "-"}
NAMED = ("Escape", "Enter", "Tab", "Home", "End", "PageUp", "PageDown", "Delete", "F1", "F9",
         "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown")  # fmt: skip
TAKEN = """async ([tab, candidates]) => {
    const rest = () => new Promise((done) => setTimeout(done));
    const press = (key, shiftKey) => {
        const event = new KeyboardEvent("keydown", {key, shiftKey, bubbles: true, cancelable: true});
        document.body.dispatchEvent(event);
        return event.defaultPrevented;
    };
    const found = [];
    for (const name of candidates) {
        press(tab);
        await rest();
        if (press(name.replace("Shift+", ""), name.startsWith("Shift+"))) found.push(name);
        await rest();
        while (document.querySelector("dialog")) {
            document.querySelector("dialog[open]")?.close(); // it opens a moment after it is drawn
            await rest();
        }
    }
    return found;
}"""


def meant(text: str) -> list[str]:
    """The keys that a line of the help is about: "Shift ← →" are two."""
    first, *others = text.split(" ")
    shift, parts = ("Shift+", others) if first == "Shift" else ("", [first, *others])
    return [shift + SIGNS.get(part, part.lower() if len(part) == 1 else part) for part in parts]


def listed(page: Any) -> dict[str, list[str]]:
    """The keys of the help, by its headings."""
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    found = {}
    for section in page.get_by_role("dialog").locator("section").all():
        texts = section.locator("kbd").all_inner_texts()
        assert all(section.locator("dd").all_inner_texts())
        found[section.locator("h3").inner_text()] = [key for text in texts for key in meant(text)]
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    return found


def test_the_help_lists_every_key_that_does_something_and_no_other(open_page: Pages) -> None:
    source = Stage(paused=True, states=TRIALS)
    object.__setattr__(source.state, "can", ())  # pressing them must not start anything
    url, _ = open_page.stage(source)
    page = open_page(url)
    help_ = listed(page)
    letters = [chr(code) for code in range(32, 127) if not chr(code).isupper()]
    shifted = [f"Shift+{key}" for key in NAMED if key.startswith("Arrow")]
    everywhere = set(help_["Everywhere"])
    assert not [key for heading, keys in help_.items() if heading != "Everywhere" for key in keys if key in everywhere]
    for tab, heading in (("1", "Network tab"), ("2", "Plots tab"), ("3", "Tables tab")):
        candidates = [*letters, *NAMED, *(shifted if tab == "1" else ())]  # elsewhere they are arrows
        found = page.evaluate(TAKEN, [tab, candidates])
        assert set(found) == {*help_["Everywhere"], *help_.get(heading, [])}, heading
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("dialog", state="detached")


def test_keys_go_on_working_after_a_table_was_chosen(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=TRIALS)
    page = open_page(url, tab="tables")
    page.get_by_text("Train steps").click()
    expect(page.get_by_role("radio", name="Train steps")).to_be_focused()
    page.keyboard.press("ArrowRight")  # still the next table
    expect(page.get_by_role("radio", name="Patterns")).to_be_checked()
    page.keyboard.press("2")
    expect(page.locator("#panel-plots")).to_be_visible()
    page.get_by_text("Train epochs").click()
    page.keyboard.press("p")
    expect(page.locator(".parameters")).to_have_count(0)
    assert source.orders == []


def test_arrows_on_a_plot_that_has_the_focus_read_its_values(open_page: Pages) -> None:
    url, source = open_page.stage(Stage(paused=True, states=TRIALS * 20))
    page = open_page(url, tab="plots")
    chart, said = page.locator(".chart"), page.locator(".plot [role=status]")
    shown = page.locator(".readout b").first
    loss = source.tables["train_epoch"].columns["loss"]
    chart.focus()
    for keys, epoch in ((["ArrowLeft"], 20), (["ArrowLeft"], 19), (["PageUp"], 9), (["ArrowRight"], 10), (["Home"], 1),
                        (["ArrowLeft"], 1), (["End", "PageDown"], 20), (["Home", "ArrowRight"], 2)):  # fmt: skip
        for key in keys:
            page.keyboard.press(key)
        expect(shown).to_have_text(str(epoch))
        expect(said).to_contain_text(f"Epoch {epoch}, loss {loss[epoch - 1]:.5g}")
    assert page.get_by_role("button", name="Show everything").is_disabled()  # nothing was moved or zoomed
    page.keyboard.press("Escape")
    expect(shown).to_have_text("20")  # the newest again
    expect(said).to_have_text("")
    page.keyboard.press("+")  # other keys mean what they always do: now from 6 to 15
    page.keyboard.press("Home")
    wait_until(lambda: 1 < int(shown.inner_text()) < 10, "the first row in sight", page=page)
    assert page.get_by_role("button", name="Show everything").is_enabled()


def test_arrows_in_a_tensor_read_its_values(open_page: Pages) -> None:
    source = Stage(paused=True)
    source._tests = 3
    for _ in range(3):
        source._test()
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables")
    page.get_by_text("Test trials").click()
    right = value(0, "Hidden1", "Act", 35).reshape(5, 7)
    picture = page.locator(".grid tbody tr:not(.spare)").first.locator("canvas").first
    page.locator(".grid th button").last.focus()
    page.keyboard.press("Tab")
    expect(picture).to_be_focused()
    reading = page.locator(".tensor-value")
    for key, (row, column) in (("ArrowRight", (0, 1)), ("ArrowDown", (1, 1)), ("End", (1, 6)), ("ArrowUp", (0, 6)),
                               ("ArrowLeft", (0, 5)), ("Home", (0, 0)), ("ArrowUp", (0, 0))):  # fmt: skip
        page.keyboard.press(key)
        expect(reading).to_have_text(f"[{row}, {column}] = {right[row, column]:.6g}")
    page.keyboard.press("Tab")
    expect(reading).to_have_text(f"[0] = {value(0, 'Output', 'Act', 10)[0]:.6g}")  # one reading, of the next cell
    assert reading.count() == 1


@pytest.mark.slow
def test_tabs_go_home_and_back_and_number_boxes_count(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=30)
    page = open_page(url)
    tabs = page.get_by_role("tab")
    last = tabs.count() - 1
    page.get_by_role("tab", name="Network").focus()
    for key, place in (("ArrowLeft", last), ("ArrowLeft", last - 1), ("Home", 0), ("End", last), ("ArrowRight", 0)):
        page.keyboard.press(key)
        expect(tabs.nth(place)).to_have_attribute("aria-selected", "true")
        expect(tabs.nth(place)).to_be_focused()
    count = page.get_by_label("How many trials to step")
    assert (count.get_attribute("min"), count.get_attribute("max")) == ("1", "1000000")
    count.press("ArrowUp")
    expect(count).to_have_value("11")
    count.press("Escape")  # as if nothing had been typed
    expect(count).to_have_value("10")
    for _ in range(2):
        count.press("ArrowDown")
    count.press("Enter")
    page.get_by_role("button", name="Step 8 trials").wait_for()
    item = page.locator("#network-item")
    item.press("ArrowUp")
    expect(item).to_have_value("1")
    item.press("ArrowDown")
    item.press("ArrowDown")
    expect(item).to_have_value("0")  # there is none before
    item.fill("5")
    item.press("Escape")
    expect(item).to_have_value("0")
    assert source.orders == []


def test_play_is_paused_by_its_button_and_its_key(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True, states=60)
    page = open_page(url)
    page.select_option("#network-speed", "2")
    page.locator("h1").click()
    moment = "window.__studio.seen().moment"
    page.keyboard.press("k")
    assert wait_until(lambda: 1 <= page.evaluate(moment) < 40, "some moments", page=page)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play", exact=True).wait_for()
    at = page.evaluate(moment)
    assert at < 59  # not because it was at its end
    page.locator("h1").click()
    page.keyboard.press("k")
    page.get_by_role("button", name="Pause").wait_for()
    assert wait_until(lambda: page.evaluate(moment) > at, "the next", page=page)
    page.keyboard.press("k")
    page.get_by_role("button", name="Play", exact=True).wait_for()


@pytest.mark.slow
def test_a_check_box_leaves_the_keys_of_the_page_alone_and_a_slider_does_not(open_page: Pages) -> None:
    page = open_page(open_page.stage(paused=True)[0])
    taken = """(type) => {
        const input = document.body.appendChild(Object.assign(document.createElement("input"), {type}));
        const event = (key) => new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true});
        const press = (key) => !input.dispatchEvent(event(key));
        return ["End", "ArrowLeft", " "].map(press);
    }"""
    assert page.evaluate(taken, "checkbox") == [True, True, False]  # Space is its own
    assert page.evaluate(taken, "radio") == [True, False, False]
    assert page.evaluate(taken, "range") == page.evaluate(taken, "text") == [False] * 3
