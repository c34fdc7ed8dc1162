"""The Network tab's camera and its keys, how things are drawn, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_scene import FRAMES, GREEN, View, look_at
from waiting import wait_until


def _drag(view: View, right: int, down: int, **options: Any) -> dict[str, float]:
    """Drag the picture; where the camera stands then."""
    box = view.box
    x, y = box["x"] + 40, box["y"] + box["height"] / 2
    view.page.mouse.move(x, y)
    view.page.mouse.down(**options)
    view.page.mouse.move(x + right, y + down, steps=4)
    view.page.mouse.up(**options)
    return view.pose


def _near(one: dict[str, float], other: dict[str, float], names: str = "x y z azimuth elevation distance") -> bool:
    return all(abs(one[name] - other[name]) < 1e-6 * max(1, abs(one[name])) for name in names.split())


def test_dragging_turns_and_pans_and_the_wheel_zooms(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    home = view.pose
    turned = _drag(view, 80, 30)
    assert turned["azimuth"] < home["azimuth"] and turned["elevation"] > home["elevation"]
    assert _near(home, turned, "x y z distance")
    panned = turned
    for options in ({"button": "right"}, {"button": "middle"}, {}):
        if not options:
            view.page.keyboard.down("Shift")
        before, panned = panned, _drag(view, 50, 0, **options)
        assert _near(before, panned, "azimuth elevation distance") and panned["x"] < before["x"], options or "Shift"
    view.page.keyboard.up("Shift")
    before = view.spot("Hidden1", 17)
    view.page.mouse.move(*before)
    view.page.mouse.wheel(0, -300)
    wait_until(lambda: view.pose["distance"] < panned["distance"], "a closer look", page=view.page)
    after = view.spot("Hidden1", 17)
    assert abs(after[0] - before[0]) < 12 and abs(after[1] - before[1]) < 12
    view.button("Reset").click()
    assert wait_until(lambda: _near(view.pose, home), "the first view", page=view.page)


def test_the_camera_goes_by_keys_and_buttons(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    home = view.pose
    view.page.keyboard.press("+")
    assert view.pose["distance"] < home["distance"]
    for _ in range(2):
        view.page.keyboard.press("-")
    assert view.pose["distance"] > home["distance"]
    view.page.keyboard.press("r")
    wait_until(lambda: _near(view.pose, home), "as at first", page=view.page)
    for selected in (False, True):
        if selected:
            view.click("Hidden1", 17)
        for key, axis, sign in (("Right", "x", 1), ("Left", "x", -1), ("Up", "y", 1), ("Down", "y", -1)):
            before = view.pose
            view.page.keyboard.press(f"Shift+Arrow{key}")
            assert _near(before, view.pose, "azimuth elevation distance"), "it moves, and does not turn"
            assert (view.pose[axis] - before[axis]) * sign > 0
    assert "[2, 3]" in view.page.inner_text(".network-unit"), "the same unit is selected"
    view.button("Clear the selection").click()
    wait_until(lambda: view.page.locator(".network-unit").count() == 0, "no selection", page=view.page)
    for way in (lambda: view.button("Fit").click(), lambda: view.page.keyboard.press("f")):
        turned = _drag(view, 120, 60)
        for _ in range(3):
            view.page.mouse.wheel(0, -240)
        wait_until(lambda pose=turned: view.pose["distance"] < 0.5 * pose["distance"], "too near", page=view.page)
        way()
        wait_until(lambda: _filled(view), "all of it", page=view.page)
        assert abs(view.pose["azimuth"] - turned["azimuth"]) < 1e-6, "from where one looks"


@pytest.mark.slow
def test_two_fingers_zoom_and_one_turns(open_page: Pages) -> None:
    view, _ = look_at(open_page, has_touch=True)
    home, box = view.pose, view.box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = view.page.context.new_cdp_session(view.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        named = [{"x": x + right, "y": y + down, "id": number} for number, (right, down) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": named})

    touch("touchStart", (-30, 0), (30, 0))
    for apart in range(40, 121, 20):
        touch("touchMove", (-apart, 0), (apart, 0))
    touch("touchEnd")
    wait_until(lambda: view.pose["distance"] < 0.5 * home["distance"], "a closer look", page=view.page)
    assert _near(home, view.pose, "azimuth elevation")
    near = view.pose
    touch("touchStart", (0, 0))
    for right in range(0, 80, 20):
        touch("touchMove", (right, 0))
    touch("touchEnd")
    wait_until(lambda: view.pose["azimuth"] < near["azimuth"], "turned", page=view.page)
    assert view.page.locator(".network-unit").count() == 0, "a drag is no click"


def test_who_likes_no_motion_is_there_at_once(open_page: Pages) -> None:
    view, _ = look_at(open_page, reduced_motion="reduce", states=3)
    home = view.pose
    _drag(view, 120, 60)
    script = """() => {
        document.querySelector('.network [aria-label="Reset"]').click();
        return window.__studio.pose();
    }"""
    assert _near(dict(view.page.evaluate(script)), home)
    view.page.emulate_media(reduced_motion="no-preference")
    _drag(view, 120, 60)
    assert not _near(dict(view.page.evaluate(script)), home), "others see it fly"
    assert wait_until(lambda: _near(view.pose, home), "the end of the flight", page=view.page)


def _filled(view: View, least: float = 0.55) -> bool:
    """Whether all corners of all layers are in the picture, and they take most of it in one direction."""
    box = view.box
    ends = {"Input": 63, "Conv": 287, "Attention": 99, "Hidden1": 34, "Hidden2": 34, "Output": 9}
    spots = [view.ask("project", layer, unit) for layer, last in ends.items() for unit in (0, last)]
    inside = all(0 < one["x"] < box["width"] and 0 < one["y"] < box["height"] for one in spots)
    wide = max(one["x"] for one in spots) - min(one["x"] for one in spots)
    high = max(one["y"] for one in spots) - min(one["y"] for one in spots)
    return inside and max(wide / box["width"], high / box["height"]) > least


@pytest.mark.parametrize(
    "viewport",
    [(1280, 800), pytest.param((520, 900), marks=pytest.mark.slow), pytest.param((1500, 560), marks=pytest.mark.slow)],
)
def test_the_network_fills_the_window_at_first_and_after_a_resize(open_page: Pages, viewport: tuple[int, int]) -> None:
    view, _ = look_at(open_page, viewport={"width": viewport[0], "height": viewport[1]})
    assert wait_until(lambda: _filled(view), "at first", page=view.page)
    view.page.set_viewport_size({"width": 900, "height": 700})
    assert wait_until(lambda: _filled(view), "another size", page=view.page)


@pytest.mark.slow
def test_four_views_are_saved_and_found_again(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    home = view.pose
    view.button("View 1, empty").click()
    view.page.get_by_text("View 1 is empty: Shift-click saves").wait_for()
    view.page.keyboard.press("8")
    view.page.get_by_text("View 3 is empty: Shift-click its button").wait_for()
    assert _near(view.pose, home), "an empty view leads nowhere"
    poses = {}
    for number in (1, 2, 3, 4):
        poses[number] = _drag(view, 30 * number, 10)
        if number == 4:
            view.button("Set").click()
            view.button("Save view 4").click()
        else:
            view.button(f"View {number}, empty").click(modifiers=["Shift"])
        view.button(f"View {number}").wait_for()
    view.page.reload()
    wait_until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "the page", page=view.page)
    for number, pose in poses.items():
        view.button(f"View {number}").click()
        wait_until(lambda pose=pose: _near(view.pose, pose), f"view {number}", page=view.page)
    for number, pose in poses.items():
        view.page.keyboard.press(str(number + 5))
        wait_until(lambda pose=pose: _near(view.pose, pose), f"view {number} by key", page=view.page)


def test_the_selection_walks_by_keys(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.click("Hidden1", 17)
    stage = view.page.locator(".network-stage")
    panel = view.page.locator(".network-unit")
    for key, index in (
        ("ArrowRight", "[2, 4]"),
        ("ArrowDown", "[3, 4]"),
        ("ArrowLeft", "[3, 3]"),
        ("ArrowUp", "[2, 3]"),
    ):
        stage.press(key)
        wait_until(lambda index=index: index in panel.inner_text(), index, page=view.page)
    stage.press("]")
    wait_until(lambda: panel.get_by_role("heading", name="Hidden2").count(), "the layer above", page=view.page)
    stage.press("[")
    stage.press("[")
    wait_until(lambda: panel.get_by_role("heading", name="Attention").count(), "the layer below", page=view.page)
    stage.press("Escape")
    wait_until(lambda: panel.count() == 0, "no selection", page=view.page)
    before = view.pose
    stage.press("ArrowLeft")
    assert view.pose["azimuth"] != before["azimuth"], "without a selection, arrows turn the camera"


def test_every_way_to_draw_it_has_its_control(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    labels, arrows = view.button("Labels"), view.button("Arrows")
    for key, toggle in (("a", arrows), ("l", labels), ("a", arrows), ("l", labels)):
        before, pressed = view.picture(), toggle.get_attribute("aria-pressed")
        view.page.keyboard.press(key)
        wait_until(lambda toggle=toggle, was=pressed: toggle.get_attribute("aria-pressed") != was, key, page=view.page)
        assert wait_until(lambda before=before: view.changed(before) > 100, key, page=view.page)
    before = view.picture()
    view.page.fill("#network-height", "2")
    assert wait_until(lambda: view.changed(before) > 1000, "higher bars", page=view.page)
    spot = view.ask("project", "Output", 0)
    view.button("Lean").click()
    wait_until(lambda: view.ask("project", "Output", 0) != spot, "an upright stack", page=view.page)
    modes = view.page.get_by_role("radiogroup", name="Mode")
    for mode, form in (("Cells", "cells"), ("Auto", "bars"), ("Cells", "cells"), ("Bars", "bars")):
        modes.get_by_role("radio", name=mode).click()
        wait_until(lambda form=form: view.ask("form", "Output") == form, mode, page=view.page)
    for key, mode in (
        ("ArrowRight", "Cells"),
        ("ArrowRight", "Raster"),
        ("ArrowRight", "Auto"),
        ("ArrowLeft", "Raster"),
    ):
        view.page.keyboard.press(key)
        chosen = modes.get_by_role("radio", name=mode, checked=True)
        wait_until(lambda chosen=chosen: chosen.count() == 1, mode, page=view.page)
        assert chosen.evaluate("(one) => one === document.activeElement && one.tabIndex === 0")
    assert modes.locator("[tabindex='0']").count() == 1, "Tab goes to the group, arrows inside it"


def test_nothing_is_drawn_while_nothing_changes(open_page: Pages) -> None:
    view, _ = look_at(open_page)

    def rests(frames: int) -> bool:
        before = view.ask("drawn")
        view.page.evaluate(FRAMES, frames)
        return bool(view.ask("drawn") == before)

    wait_until(lambda: rests(20), "the end of all flights", page=view.page)
    assert rests(60)


@pytest.mark.slow
def test_the_picture_is_saved_as_png(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.mouse.move(2, 2)
    wait_until(view._still, "a camera that stands still", page=view.page)
    with view.page.expect_download() as waiting:
        view.page.get_by_role("button", name="Save picture as PNG").click()
    saved = waiting.value
    assert saved.suggested_filename == "Stage-Act-77.png"
    box = view.box
    wide, high = round(box["width"]), round(box["height"])
    file = pixels(Path(saved.path()).read_bytes()).reshape(high, wide, 3)
    clip = {"x": box["x"], "y": box["y"], "width": wide, "height": high}
    screen = pixels(view.page.screenshot(clip=clip)).reshape(high, wide, 3)
    for one in (view.page.locator(".network-legend"), *view.page.locator(".network-label:visible").all()):
        place = wait_until(one.bounding_box, "its place", page=view.page)
        left, top = round(place["x"] - box["x"]), round(place["y"] - box["y"])
        part = slice(top, top + round(place["height"])), slice(left, left + round(place["width"]))
        assert file[part].std() > 10 and np.abs(file[part] - screen[part]).mean() < 12, one.inner_text()
    assert file[8:26, 12:300].min() < 80, "a line that says what it is"
    assert np.abs(file[40:-60] - screen[40:-60]).mean() < 2, "the rest is what one sees"


@pytest.mark.slow
def test_pixels_are_as_fine_as_the_screen_but_not_finer_than_two(open_page: Pages) -> None:
    view, _ = look_at(open_page, device_scale_factor=3, viewport={"width": 700, "height": 600}, states=3)
    script = "(one) => one.width === 2 * one.clientWidth"
    assert wait_until(
        lambda: view.page.eval_on_selector(".network-picture canvas", script), "fine pixels", page=view.page
    )


@pytest.mark.slow
def test_dark_is_dark_and_follows_the_switch(open_page: Pages) -> None:
    view, _ = look_at(open_page, color_scheme="dark")

    def ground() -> int:
        clip = {"x": view.box["x"] + 30, "y": view.box["y"] + 60, "width": 2, "height": 2}
        return int(pixels(view.page.screenshot(clip=clip))[0].sum())

    assert wait_until(lambda: ground() < 150, "dark", page=view.page)
    view.click("Output", 4)
    view.until_colour("Output", 4, GREEN["dark"])
    view.page.keyboard.press("d")
    assert wait_until(lambda: ground() > 600, "light", page=view.page)
    view.until_colour("Output", 4, GREEN["light"])


def test_every_control_has_a_name(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.click("Output", 4)
    view.page.select_option("#network-range", "fixed")
    view.page.get_by_role("radio", name="Raster").click()
    script = """() => [...document.querySelectorAll(".network :is(button, input, select)")].filter((one) => {
        const labels = [...(one.labels ?? [])].map((label) => label.innerText).join("");
        const text = one instanceof HTMLButtonElement ? one.innerText : "";
        return !(one.getAttribute("aria-label") || labels.trim() || text.trim());
    }).map((one) => one.outerHTML)"""
    assert view.page.evaluate(script) == []
    assert "6 layers, 532 units" in view.page.get_by_role("application").get_attribute("aria-label")
