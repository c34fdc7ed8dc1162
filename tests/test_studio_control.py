"""The control bar and the parameter form: what is pressed and typed arrives at the source."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fast_cases import fast_first
from playwright.sync_api import expect
from seams import Act, Change, Parameter
from studio_pages import Pages, opened  # noqa: F401
from studio_stage import Stage
from waiting import wait_until


def button(page: Any, name: str) -> Any:
    """A button of the control bar."""
    return page.locator(".control").get_by_role("button", name=name, exact=True)


ORDERS = {
    "Init": Act("init"),
    "Step trial": Act("step_trial"),
    "Step 10 trials": Act("step_n", count=10),
    "Step epoch": Act("step_epoch"),
    "Step run": Act("step_run"),
    "Test trial": Act("test_trial"),
    "Test item 0": Act("test_item", item=0),
    "Test all": Act("test_all"),
    "New seed": Act("new_seed"),
    "Train": Act("train"),
}


def press(page: Any, name: str, has_arrived: Callable[[], bool]) -> None:
    """Press a button until its order arrives: the page may be told of a short test just now, and disable it."""
    pressed_at = -1e9

    def press_again() -> bool:
        nonlocal pressed_at
        if not has_arrived() and time.monotonic() - pressed_at > 5:
            expect(button(page, name)).to_be_enabled(timeout=60_000)
            button(page, name).click()
            pressed_at = time.monotonic()
        return has_arrived()

    wait_until(press_again, name, page=page)


def test_every_button_arrives_at_the_source(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    source.trial_secs = 0.01
    page = open_page(url, tab="tables", empty=True)
    for number, (name, order) in enumerate(ORDERS.items(), 1):
        press(page, name, lambda number=number: len(source.orders) == number)
        assert source.orders[-1] == order
        page.wait_for_selector(".doing.running" if name == "Train" else ".doing.paused")
    page.wait_for_selector("text=You control")


def test_while_it_runs_only_stop_can_be_pressed(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    assert button(page, "Stop").is_disabled()
    button(page, "Train").click()
    page.wait_for_selector(".doing.running")
    for name in ("Init", "Train", "Step trial", "Step epoch", "Test all", "New seed"):
        assert button(page, name).is_disabled(), name
    button(page, "Stop").click()
    page.wait_for_selector(".doing.paused")
    assert button(page, "Train").is_enabled()
    assert [one.action for one in source.orders] == ["train", "stop"]
    assert "stopped" in page.inner_text(".status")


def test_how_many_and_which_are_chosen(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    count = page.get_by_label("How many trials to step")
    count.fill("3")
    count.press("Tab")
    button(page, "Step 3 trials").click()
    wait_until(lambda: source.orders == [Act("step_n", count=3)], page=page)
    page.wait_for_selector(".doing.paused")
    item = page.get_by_label("Which item to test, 0 to 24")
    item.fill("99")
    item.press("Tab")
    assert item.input_value() == "24"  # there are 25
    button(page, "Test item 24").click()
    wait_until(lambda: source.orders[-1] == Act("test_item", item=24), page=page)


@pytest.mark.slow
def test_what_is_typed_stays_while_the_run_goes_on(open_page: Pages) -> None:
    url, source = open_page.stage()
    page = open_page(url, tab="tables", empty=True)
    count = page.get_by_label("How many trials to step")
    count.fill("7")
    trial = page.locator(".counter", has_text="Trial").inner_text()
    wait_until(lambda: page.locator(".counter", has_text="Trial").inner_text() != trial, "news of the run", page=page)
    assert count.input_value() == "7"
    button(page, "Stop").click()
    button(page, "Step 7 trials").click()
    wait_until(lambda: source.orders[-1] == Act("step_n", count=7), page=page)


def test_buttons_that_the_run_does_not_understand_are_not_there(open_page: Pages) -> None:
    source = Stage(paused=True)
    object.__setattr__(source.state, "can", ("train", "stop"))
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", empty=True)
    names = [one.inner_text().strip() for one in page.locator(".control button").all()]
    assert names == ["Train", "Stop"]


def test_space_trains_and_stops_but_presses_a_button_that_has_the_focus(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    page.keyboard.press(" ")
    page.wait_for_selector(".doing.running")
    page.keyboard.press(" ")
    page.wait_for_selector(".doing.paused")
    assert [one.action for one in source.orders] == ["train", "stop"]
    button(page, "New seed").focus()
    page.keyboard.press(" ")
    wait_until(lambda: len(source.orders) == 3, page=page)
    assert source.orders[-1].action == "new_seed"
    page.get_by_label("title", exact=True).press(" ")
    page.keyboard.press("Escape")
    assert len(source.orders) == 3


def test_control_goes_from_one_page_to_another_and_back(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    one, two = open_page(url, tab="tables", empty=True), open_page(url, tab="tables", empty=True)
    two.wait_for_selector("text=2 viewers")
    button(one, "New seed").click()
    two.wait_for_selector("text=Another page controls")
    assert button(two, "Train").is_disabled()
    assert two.get_by_label("lr", exact=True).is_disabled()
    two.keyboard.press(" ")  # does nothing
    two.get_by_role("button", name="Take control").click()
    one.wait_for_selector("text=Another page controls")
    assert button(one, "Train").is_disabled()
    button(two, "Train").click()
    one.wait_for_selector(".doing.running")
    two.get_by_role("button", name="Give up").click()
    one.wait_for_selector("text=Nobody controls")
    assert [order.action for order in source.orders] == ["new_seed", "train"]


def test_control_is_free_again_when_its_page_is_closed(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    one, two = open_page(url, tab="tables", empty=True), open_page(url, tab="tables", empty=True)
    button(one, "Train").click()
    two.wait_for_selector("text=Another page controls")
    one.close()
    two.wait_for_selector("text=Nobody controls")
    assert source.state.status == "running"  # closing a page stops nothing


# -- parameters --------------------------------------------------------------------------------------------------------


def test_parameters_are_grouped_and_explained_and_the_fixed_ones_are_text(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    groups = page.locator(".parameters legend").all_inner_texts()
    assert groups == ["View updates", "optimizer", "training", "model", "watch"]
    field = page.locator(".field", has=page.get_by_label("lr", exact=True))
    assert field.get_attribute("title") == "optimizer.lr: how far a step goes"
    assert page.get_by_label("momentum").evaluate("one => one.tagName") == "OUTPUT"
    assert page.get_by_label("layers", exact=True).inner_text() == "64, 288, 35"


@pytest.mark.parametrize("key", fast_first(["Enter", "Tab"]))
def test_a_number_is_changed_by_enter_or_by_leaving_it(open_page: Pages, key: str) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    field = page.get_by_label("lr", exact=True)
    field.fill("2.5e-3")
    field.press(key)
    wait_until(lambda: source.orders, page=page)
    assert source.orders == [Change("optimizer.lr", 0.0025)]
    wait_until(lambda: field.input_value() == "0.0025", page=page)


WRONG = [
    ("lr", "abc", "“abc” is not a number"),
    ("lr", "-1", "at least 0"),
    ("lr", "11", "at most 10"),
    ("epochs", "1.5", "a whole number, please"),
]


def test_what_cannot_be_is_said_at_the_field_and_not_sent(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    for label, text, wrong in WRONG:
        field = page.get_by_label(label, exact=True)
        before = field.input_value()
        field.fill(text)
        field.press("Enter")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".parameters [role=alert]")).to_have_text(wrong)
        field.press("Escape")
        expect(field).to_have_value(before)
        field.fill(text)
        field.press("Tab")
        expect(field).to_have_value(before)
    assert source.orders == []


def test_flags_choices_and_text_are_changed(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    page.get_by_label("shuffle").uncheck()
    page.get_by_label("name", exact=True).select_option("adam")
    title = page.get_by_label("title", exact=True)
    title.fill("<b>bold</b>")
    title.press("Enter")
    wait_until(lambda: len(source.orders) == 3, page=page)
    assert [(one.name, one.value) for one in source.orders] == [
        ("training.shuffle", False),
        ("optimizer.name", "adam"),
        ("training.title", "<b>bold</b>"),
    ]
    page.wait_for_selector(".field.pending", state="detached")
    assert title.input_value() == "<b>bold</b>"


def test_a_value_that_is_being_typed_is_not_overwritten(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    field = page.get_by_label("lr", exact=True)
    field.fill("0.5")
    source.order(Change("training.epochs", 7))
    wait_until(lambda: page.get_by_label("epochs", exact=True).input_value() == "7", page=page)
    assert field.input_value() == "0.5"
    field.press("Escape")
    source.order(Change("optimizer.lr", 0.125))
    wait_until(lambda: field.input_value() == "0.125", page=page)


@pytest.mark.slow
def test_lists_can_be_changed_and_many_parameters_searched(open_page: Pages) -> None:
    source = Stage(paused=True)
    more = [Parameter(f"extra.number{index}", index, editable=True, group="extra") for index in range(20)]
    source.parameters = (Parameter("betas", [0.9, 0.99], editable=True), *more, *source.parameters)
    url, _ = open_page.stage(source)
    page = open_page(url, tab="tables", empty=True)
    betas = page.get_by_label("betas")
    betas.fill("0.8, 0.95")
    betas.press("Enter")
    wait_until(lambda: source.orders, page=page)
    assert source.orders[0].value == [0.8, 0.95]
    page.get_by_label("Find a parameter").fill("number7")
    assert page.locator(".field label").all_inner_texts()[-1:] == ["number7"]
    page.get_by_label("Find a parameter").fill("nowhere")
    assert "No parameter is called “nowhere”" in page.inner_text(".parameters")


@pytest.mark.slow
def test_the_form_folds_away_and_stays_so(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True)
    page = open_page(url, tab="tables", empty=True)
    page.keyboard.press("p")
    page.wait_for_selector(".parameters", state="detached")
    page.reload()
    page.wait_for_selector(".connection.open")
    assert page.locator(".parameters").count() == 0
    page.get_by_role("button", name="Parameters").click()
    assert page.locator(".parameters").is_visible()
