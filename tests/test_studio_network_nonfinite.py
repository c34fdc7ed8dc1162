"""The Network tab where there is little to show, too much, or something strange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from seams import Layer, Projection, State
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_scene import COLD_HOT, GREEN, VIRIDIS, Made, View, look_at, ramp, strong
from studio_stage import Stage, value
from waiting import wait_until

NAMES = ("constructor", "__proto__", "toString", "hasOwnProperty")  # what every object of the page has


def test_before_the_server_answers_it_says_that_it_is_connecting(open_page: Pages) -> None:
    url, _ = open_page.stage(Stage(paused=True, states=3))
    page = open_page(url)
    page.route_web_socket("**/ws", lambda socket: None)  # taken, and never answered
    page.reload()
    page.locator(".network-empty", has_text="Connecting…").wait_for()
    assert page.get_by_text("No network yet").count() == 0


@pytest.mark.slow
def test_where_there_is_nothing_to_see_it_says_why(open_page: Pages) -> None:
    source = Made(states=0)  # no layer yet
    url, _ = open_page.stage(source)
    page = open_page(url)

    def says(*words: str, kind: str) -> bool:
        source.kind = kind
        page.reload()
        page.wait_for_selector(".connection.open")
        hint = page.locator(".network-empty")
        return bool(
            wait_until(lambda: hint.count() and all(one in hint.inner_text() for one in words), str(words), page=page)
        )

    assert says("No network yet", "first forward pass", kind="live")
    assert says("No network yet", "with tl.live(model):", kind="nothing")
    assert says("No network", "This run kept none", kind="run")
    assert says("No network", "This recording holds none", kind="recording")
    source.net = Stage().net
    for kind in ("run", "pass"):
        assert says("No values", f"Of this {kind} only the layers were kept", kind=kind)
    assert "press Train" not in page.inner_text(".network-empty")


def test_a_table_alone_is_no_network_to_wait_for(open_page: Pages) -> None:
    source = Made(states=0)
    source.state = State()
    url, _ = open_page.stage(source)
    page = open_page(url)
    page.get_by_text("There are only numbers to look at").wait_for()
    assert page.get_by_text("forward pass").count() == 0


def test_without_values_it_says_how_to_get_them(open_page: Pages) -> None:
    url, source = open_page.stage(Stage(paused=True))
    page = open_page(url)
    page.get_by_text("No values yet", exact=True).wait_for()
    wait_until(lambda: page.locator(".network-label:visible").count() == 6, "its layers all the same", page=page)
    page.locator(".control button", has_text="Trial").first.click()
    wait_until(lambda: page.get_by_text("No values yet", exact=True).count() == 0, "values", page=page)
    assert View(page).at(0) and source.moments[0].id == 0


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
    wait_until(lambda: view.moment == 77, "a state", page=page)
    said = value(77, "Hidden1", "Act", 35)
    for unit in strong(said, range(35))[:3]:
        view.until_colour("Hidden1", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    view.click("Hidden1", 17)
    view.until_colour("Hidden1", 17, GREEN["light"])
    expect(page.locator(".network-unit")).to_contain_text("[2, 3]")
    x, y = map(round, view.spot("Hidden1", 17))  # a mouse is at whole pixels
    page.get_by_role("radio", name="Raster").click()
    page.get_by_text("ending at this moment").wait_for()
    page.mouse.move(x, y)
    tip = page.locator(".network-tip")
    wait_until(
        lambda: tip.count() and "…" not in tip.inner_text() and "≈" not in tip.inner_text(), "a value", page=page
    )
    hit = view.ask("at", x - view.box["x"], y - view.box["y"])
    moment = 77 - 63 + hit["column"]
    assert hit["layer"] == "Hidden1" and f"step {moment + 1}" in tip.inner_text()
    said = value(moment, "Hidden1", "Act", 35)[hit["unit"]]
    assert np.float32(tip.inner_text().split("Act")[1].split()[0]) == said
    page.mouse.move(2, 2)
    clip, wanted = {"x": x, "y": y, "width": 1, "height": 1}, ramp(COLD_HOT, (said + 1) / 2)
    drawn = lambda: pixels(page.screenshot(clip=clip))[0]  # noqa: E731
    assert wait_until(lambda: np.abs(drawn() - wanted).max() < 40, "near its colour: a cell is a few pixels", page=page)


def test_a_page_that_is_slow_to_draw_misses_no_state(open_page: Pages) -> None:
    url, _ = open_page.stage(Stage(paused=True, states=78))  # it stands still: what was missed does not come again
    page = open_page(url)
    page.add_init_script("""
        const wait = window.setTimeout, began = performance.now();
        const soonest = (ms) => Math.max(ms ?? 0, began + 1500 - performance.now());
        window.setTimeout = (run, ms, ...more) => wait(run, soonest(ms), ...more);
        window.requestAnimationFrame = (run) => window.setTimeout(() => run(performance.now()), 16);
        window.cancelAnimationFrame = (timer) => window.clearTimeout(timer);
    """)
    page.reload()
    wait_until(lambda: page.evaluate("!!window.__studio"), "the picture", page=page)
    assert View(page).at(77)


@pytest.mark.slow
def test_a_canvas_that_is_taken_away_comes_back(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    said = value(77, "Output", "Act", 10)
    unit = strong(said, range(10))[0]
    view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    view.page.evaluate("""() => {
        const context = document.querySelector(".network-picture canvas").getContext("webgl2");
        window.taken = context.getExtension("WEBGL_lose_context");
        window.taken.loseContext();
    }""")
    note = view.page.get_by_text("taken the picture's graphics memory away")
    note.wait_for()
    view.page.fill("#network-slider", "30")  # nothing is drawn, and nothing breaks
    assert view.at(30)
    view.page.evaluate("window.taken.restoreContext()")
    wait_until(lambda: note.count() == 0, "the canvas", page=view.page)
    said = value(30, "Output", "Act", 10)
    for unit in strong(said, range(10))[:3]:
        view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))


@pytest.mark.slow
def test_a_canvas_that_does_not_come_back_is_replaced_by_flat_cells(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.evaluate("""() => document.querySelector(".network-picture canvas").getContext("webgl2")
        .getExtension("WEBGL_lose_context").loseContext()""")
    view.page.get_by_text("did not give the graphics memory of the 3D picture back").wait_for()
    assert view.page.locator(".network-picture canvas").count() == 1
    view.page.fill("#network-slider", "30")
    assert view.at(30)


@pytest.mark.slow
def test_names_that_every_object_has_are_only_names(open_page: Pages) -> None:
    layers = [Layer(name, (4,), "constructor") for name in NAMES]
    joined = tuple(Projection(name, NAMES[0], name, type=name) for name in NAMES[1:])
    source = Made(*layers, projections=joined, variables=(*NAMES, "Act"), name="__proto__")
    view, _ = look_at(open_page, source)
    names = view.page.locator(".network-label:visible b")
    wait_until(lambda: set(names.all_inner_texts()) == set(NAMES), "four names", page=view.page)
    for name in NAMES:
        view.page.select_option("#network-variable", name)
        view.page.select_option("#network-range", "fixed")
        wait_until(lambda name=name: view.ask("seen")["variable"] == name, name, page=view.page)
        view.click(name, 2)
        wait_until(lambda name=name: view.page.inner_text(".network-unit h2") == name, name, page=view.page)
    said = source.units(2, "__proto__", "__proto__")
    view.page.select_option("#network-variable", "__proto__")
    view.page.select_option("#network-map", "Viridis")
    view.until_colour("__proto__", 1, ramp(VIRIDIS, (said[1] + 1) / 2))
    wait_until(lambda: "5 lines over 3 moments" in _plot(view).get_attribute("aria-label"), "a plot", page=view.page)
    for name in NAMES:
        expect(view.page.locator(".network-readout")).to_contain_text(name)
    expect(view.page.locator("#network-map")).to_have_value("Viridis")
    view.button("View 1, empty").click(modifiers=["Shift"])
    view.page.reload()
    view.button("View 1").wait_for()
    assert wait_until(lambda: view.moment >= 0 and view.page.input_value("#network-map") == "ColdHot", page=view.page)


def _plot(view: View) -> Any:
    return view.page.locator(".network-plot")


@pytest.mark.slow
def test_long_names_crush_nothing_and_hide_nothing(open_page: Pages) -> None:
    layer, variable = "encoder.layers.0.self_attention.query_key_value_projection", "a_variable_with_a_rather_long_name"
    made = Made(Layer(layer, (8, 8), "MultiheadAttentionWithRotaryEmbedding"), variables=(variable,))
    view, _ = look_at(open_page, made)
    for width, height in ((1280, 800), (800, 600)):
        view.page.set_viewport_size({"width": width, "height": height})
        view.click(layer, 20)
        expect(view.page.locator("#network-value")).to_have_text(str(made.units(2, layer, variable)[20]))
        view.point(layer, 43)
        tall = {"#network-value": 40, ".network-tip": 200, "[aria-label='Clear the selection']": 40}
        for part, most in tall.items():
            box = wait_until(view.page.locator(part).first.bounding_box, part, page=view.page)
            assert box["height"] < most and box["x"] >= 0 and box["y"] >= 0, part
            assert box["x"] + box["width"] <= width and box["y"] + box["height"] <= height, part
        bar, name = (view.page.locator(f".network-legend {part}").bounding_box() for part in (".bar", "b"))
        assert bar and name and name["width"] <= bar["width"]


@pytest.mark.slow
def test_of_many_variables_the_first_ones_are_plotted(open_page: Pages) -> None:
    view, _ = look_at(open_page, Made(Layer("Some", (4, 4)), variables=tuple(f"V{n}" for n in range(40))))
    view.click("Some", 5)
    wait_until(lambda: "32 lines over 3 moments" in _plot(view).get_attribute("aria-label"), "a plot", page=view.page)
    expect(view.page.get_by_text("The first 32 of 40 variables")).to_be_visible()


@pytest.mark.slow
def test_a_deep_network_is_in_the_picture_whole_and_its_names_hide_nothing(open_page: Pages) -> None:
    layers = [Layer(f"layer number {n}", (16,), "Linear") for n in range(90)]
    joined = tuple(Projection(f"p{n}", f"layer number {n}", f"layer number {n + 1}") for n in range(89))
    view, _ = look_at(open_page, Made(*layers, projections=joined))
    wait_until(view._still, "a camera that stands still", page=view.page)
    box = view.box
    spots = [view.ask("project", layer.name, unit) for layer in layers for unit in (0, 15)]
    assert all(0 < one["x"] < box["width"] and 0 < one["y"] < box["height"] for one in spots)
    wide = max(one["x"] for one in spots) - min(one["x"] for one in spots)
    assert wide > 0.5 * box["width"]
    labels = view.page.locator(".network-label:visible")
    boxes = [(one.inner_text(), one.bounding_box()) for one in labels.all()]
    assert len(boxes) > 5
    for number, (name, one) in enumerate(boxes):
        assert all(_apart(one, other) for _, other in boxes[:number])
        for right in np.linspace(0, one["width"], 5):
            hit = view.ask("at", one["x"] - box["x"] + float(right), one["y"] - box["y"] + one["height"] / 2)
            assert hit is None or hit["layer"] == name


def _apart(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
    )  # fmt: skip
