"""The Network tab's camera, its keys, what it costs, and what it shows where there is little to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studio_pages import Pages, opened, pixels, until  # noqa: F401
from studio_scene import COLD_HOT, FRAMES, GREEN, Made, View, look_at, ramp, strong
from studio_stage import Stage, value

from torcheer.host.records import Layer, Projection


def _pose(view: View) -> dict[str, float]:
    return dict(view.ask("pose"))


def _drag(view: View, right: int, down: int, **options: Any) -> None:
    box = view.box
    x, y = box["x"] + 40, box["y"] + box["height"] / 2
    view.page.mouse.move(x, y)
    view.page.mouse.down(**options)
    view.page.mouse.move(x + right, y + down, steps=4)
    view.page.mouse.up(**options)


def _near(one: dict[str, float], other: dict[str, float], names: str = "x y z azimuth elevation distance") -> bool:
    return all(abs(one[name] - other[name]) < 1e-6 * max(1, abs(one[name])) for name in names.split())


def test_dragging_turns_pans_and_the_wheel_zooms(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    home = _pose(view)
    _drag(view, 80, 30)
    turned = _pose(view)
    assert turned["azimuth"] < home["azimuth"] and turned["elevation"] > home["elevation"]
    assert _near(home, turned, "x y z distance")
    _drag(view, 50, 0, button="right")
    panned = _pose(view)
    assert _near(turned, panned, "azimuth elevation distance") and not _near(turned, panned, "x")
    before = view.spot("Hidden1", 17)
    view.page.mouse.move(*before)
    view.page.mouse.wheel(0, -300)
    until(lambda: _pose(view)["distance"] < panned["distance"], "a closer look", page=view.page)
    after = view.spot("Hidden1", 17)
    assert abs(after[0] - before[0]) < 12 and abs(after[1] - before[1]) < 12
    view.page.get_by_role("button", name="Reset").click()
    until(lambda: _near(_pose(view), home), "the first view", page=view.page)


def test_fit_shows_all_of_it_from_where_one_looks(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    _drag(view, 120, 60)
    view.page.mouse.wheel(0, -2000)
    angle = _pose(view)["azimuth"]
    view.page.keyboard.press("f")
    until(lambda: _filled(view), "all of it", page=view.page)
    assert abs(_pose(view)["azimuth"] - angle) < 1e-6


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
    assert _filled(view)
    view.page.set_viewport_size({"width": 900, "height": 700})
    until(lambda: _filled(view), "another size", page=view.page)


def test_a_deep_network_is_in_the_picture_whole(open_page: Pages) -> None:
    layers = [Layer(f"layer{n}", (16,), "Linear") for n in range(60)]
    joined = tuple(Projection(f"p{n}", f"layer{n}", f"layer{n + 1}") for n in range(59))
    view, _ = look_at(open_page, Made(*layers, projections=joined))
    box = view.box
    spots = [view.ask("project", layer.name, unit) for layer in layers for unit in (0, 15)]
    assert all(0 < one["x"] < box["width"] and 0 < one["y"] < box["height"] for one in spots)
    wide = max(one["x"] for one in spots) - min(one["x"] for one in spots)
    assert wide > 0.5 * box["width"]


def test_four_views_are_saved_and_found_again(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    poses = {}
    for number in (1, 2, 3, 4):
        _drag(view, 30 * number, 10)
        poses[number] = _pose(view)
        if number == 4:
            view.page.get_by_role("button", name="Set", exact=True).click()
            view.page.get_by_role("button", name="Save view 4").click()
        else:
            view.page.get_by_role("button", name=f"View {number}, empty").click(modifiers=["Shift"])
        view.page.get_by_role("button", name=f"View {number}", exact=True).wait_for()
    view.page.reload()
    until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "the page", page=view.page)
    view.page.get_by_role("button", name="View 2", exact=True).click()
    until(lambda: _near(_pose(view), poses[2]), "view 2", page=view.page)
    view.page.keyboard.press("9")
    until(lambda: _near(_pose(view), poses[4]), "view 4 by key", page=view.page)


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
        until(lambda index=index: index in panel.inner_text(), index, page=view.page)
    stage.press("]")
    until(lambda: panel.get_by_role("heading", name="Hidden2").count(), "the layer above", page=view.page)
    stage.press("[")
    stage.press("[")
    until(lambda: panel.get_by_role("heading", name="Attention").count(), "the layer below", page=view.page)
    stage.press("Escape")
    until(lambda: panel.count() == 0, "no selection", page=view.page)
    before = _pose(view)
    stage.press("ArrowLeft")
    assert _pose(view)["azimuth"] != before["azimuth"], "without a selection, arrows turn the camera"


@pytest.mark.slow
def test_labels_arrows_and_height_have_their_controls(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    for key in ("a", "l"):
        before = view.page.screenshot()
        view.page.keyboard.press(key)
        view.settle()
        assert view.page.screenshot() != before
    before = view.picture()
    view.page.fill("#network-height", "2")
    view.settle()
    assert view.picture() != before
    before = view.ask("project", "Output", 0)
    view.page.get_by_role("button", name="Lean").click()
    until(lambda: view.ask("project", "Output", 0) != before, "an upright stack", page=view.page)


def test_nothing_is_drawn_while_nothing_changes(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.evaluate(FRAMES, 10)
    before = view.ask("drawn")
    view.page.evaluate(FRAMES, 60)
    assert view.ask("drawn") == before


def test_the_picture_is_saved_as_png(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    with view.page.expect_download() as waiting:
        view.page.get_by_role("button", name="Save picture as PNG").click()
    saved = waiting.value
    assert saved.suggested_filename == "Stage-Act-77.png"
    colours = np.unique(pixels(view.page, Path(saved.path()).read_bytes()), axis=0)
    assert len(colours) > 200


def test_pixels_are_as_fine_as_the_screen_but_not_finer_than_two(open_page: Pages) -> None:
    view, _ = look_at(open_page, device_scale_factor=3, viewport={"width": 700, "height": 600}, states=3)
    wide, css = view.page.eval_on_selector(".network-picture canvas", "(one) => [one.width, one.clientWidth]")
    assert wide == 2 * css


def test_dark_is_dark_and_follows_the_switch(open_page: Pages) -> None:
    view, _ = look_at(open_page, color_scheme="dark")

    def ground() -> int:
        clip = {"x": view.box["x"] + 30, "y": view.box["y"] + 60, "width": 2, "height": 2}
        return int(pixels(view.page, view.page.screenshot(clip=clip))[0].sum())

    assert ground() < 150
    view.click("Output", 4)
    view.until_colour("Output", 4, GREEN["dark"])
    view.page.keyboard.press("d")
    until(lambda: ground() > 600, "light", page=view.page)
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


def test_without_a_network_it_says_how_to_get_one(open_page: Pages) -> None:
    url, _ = open_page.stage(Made(states=0))  # no layer yet
    page = open_page(url)
    page.get_by_text("No network yet").wait_for()
    assert page.get_by_text("with tl.live(model):").is_visible()


def test_without_values_it_says_how_to_get_them(open_page: Pages) -> None:
    url, source = open_page.stage(Stage(paused=True))
    page = open_page(url)
    page.get_by_text("No values yet", exact=True).wait_for()
    until(lambda: page.locator(".network-label:visible").count() == 6, "its layers all the same", page=page)
    page.locator(".control button", has_text="Trial").first.click()
    until(lambda: page.get_by_text("No values yet", exact=True).count() == 0, "values", page=page)
    assert View(page).moment == 0 == source.moments[0].id


def test_without_webgl_it_shows_flat_cells_and_says_so(open_page: Pages) -> None:
    url, _ = open_page.stage(Stage(paused=True, states=78))
    page = open_page(url)
    page.add_init_script("""
        const get = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
            return /webgl/.test(kind) ? null : get.call(this, kind, ...more);
        };
    """)
    page.reload()
    view = View(page)
    page.get_by_text("This browser draws no 3D").wait_for()
    until(lambda: view.moment == 77, "a state", page=page)
    said = value(77, "Hidden1", "Act", 35)
    for unit in strong(said, range(35))[:3]:
        view.until_colour("Hidden1", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    view.click("Hidden1", 17)
    view.until_colour("Hidden1", 17, GREEN["light"])
    assert "[2, 3]" in page.inner_text(".network-unit")
