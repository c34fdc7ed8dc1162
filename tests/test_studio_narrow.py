"""The page on phones and tablets: nothing is wider than the screen, every button can be reached, fingers move it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from browser import _awake
from folder_runs import served_folder, sweep
from studio_pages import Pages, settled
from studio_scene import View
from studio_stage import Stage
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.browser
WIDTH, HEIGHT = 390, 844
OUTSIDE = """() => [...document.querySelectorAll("button, select, input, [role=tab]")].filter((element) => {
    const box = element.getBoundingClientRect();
    if (!box.width || element.closest(".unseen, [hidden]")) return false;
    for (let parent = element.parentElement; parent; parent = parent.parentElement) {
        const scrolls = /auto|scroll/.test(getComputedStyle(parent).overflowX);
        if (scrolls && parent.scrollWidth > parent.clientWidth) return false;
    }
    return box.left < -0.5 || box.right > innerWidth + 0.5;
}).map((element) => element.getAttribute("aria-label") || element.textContent || element.id)"""


@pytest.fixture(scope="module")
def phone(browser: tuple[Any, Any]) -> Iterator[Any]:
    """A page on a phone, of a stage that is paused."""
    loop, chromium = browser
    with _awake(loop):
        pages = Pages(chromium)
        url, _ = pages.stage(Stage(paused=True, states=20))
        screen = {"width": WIDTH, "height": HEIGHT}
        page = pages(url, viewport=screen, has_touch=True, is_mobile=True, reduced_motion="reduce")
        View(page).at(19)
    yield page
    with _awake(loop):
        pages.close()


@pytest.fixture(autouse=True)
def awake(browser: tuple[Any, Any]) -> Iterator[None]:
    with _awake(browser[0]):
        yield


@pytest.mark.parametrize("tab", ["Plots", "Tables", "Network"])
def test_a_tab_is_as_wide_as_the_screen_and_all_its_controls_are_on_it(phone: Any, tab: str) -> None:
    phone.get_by_role("tab", name=tab).tap()
    phone.wait_for_selector(f"#panel-{tab.lower()}:not([hidden])")
    assert phone.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [WIDTH, WIDTH]
    assert phone.evaluate("document.documentElement.scrollHeight") == HEIGHT
    assert phone.evaluate(OUTSIDE) == []


def test_the_list_of_alerts_lies_on_the_screen(phone: Any) -> None:
    phone.get_by_role("button", name="Alerts").tap()
    box = phone.locator(".alert-list").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH
    phone.keyboard.press("Escape")


def test_two_fingers_move_the_picture_and_do_not_turn_it(phone: Any) -> None:  # one, and a pinch: the camera's tests
    session, before = phone.context.new_cdp_session(phone), phone.evaluate("window.__studio.pose()")
    box = phone.locator(".network-stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for kind, away in (("touchStart", 0), ("touchMove", 30), ("touchMove", 60)):
        points = [{"x": x + side + away, "y": y + away, "id": side} for side in (0, 40)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    wait_until(lambda: phone.evaluate("window.__studio.pose()") != before, "the camera", page=phone)
    after = phone.evaluate("window.__studio.pose()")
    assert (after["azimuth"], after["elevation"]) == (before["azimuth"], before["elevation"])
    assert max(abs(after[name] - before[name]) for name in "xyz") > 0


@pytest.mark.parametrize("width", [1280, 768, WIDTH])
def test_a_list_of_runs_and_all_tabs_of_a_run_are_as_wide_as_the_screen(folder_page: Any, width: int) -> None:
    folder_page.set_viewport_size({"width": width, "height": HEIGHT})
    for tab in folder_page.get_by_role("tab").all():
        tab.click()
        settled(folder_page)
        assert folder_page.evaluate("document.documentElement.scrollWidth") == width, tab.inner_text()
        assert folder_page.evaluate(OUTSIDE) == [], tab.inner_text()


@pytest.fixture(scope="module")
def folder_page(browser: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A folder with a run that has a long name, a network, plots, samples and an alert."""
    loop, chromium = browser
    folder = sweep(tmp_path_factory.mktemp("narrow") / "runs", 3)
    model = torch.nn.Linear(2, 2)
    with tl.live(model, to=folder / "a run with quite a long name", open_server=False) as live:
        model(torch.ones(1, 2))
        live.log(loss=1.0, text="hello", table=[{"a": 1}], image=torch.zeros(3, 8, 8))
        live.alert("look at this")
    with pytest.MonkeyPatch.context() as patch, served_folder(folder, patch) as url:
        with _awake(loop):
            pages = Pages(chromium)
            page = pages(url)
            page.locator(".runs-pane .grid tr", has_text="a run with").dblclick()
            page.get_by_role("tab", name="Samples").wait_for()
            tabs = page.get_by_role("tab").all_inner_texts()
            assert tabs == ["Runs", "Network", "Plots", "Tables", "Samples", "Graph"]
        yield page
        with _awake(loop):
            pages.close()
