"""The Network tab: what is drawn is what the source says, and everything in it can be asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_scene import COLD_HOT, GREEN, MAPS, VIRIDIS, View, look_at, ramp, strong
from studio_stage import MARKUP, Stage, value
from waiting import wait_until

LEGEND = """(one) => [0, 255].map((x) => [...one.getContext("2d").getImageData(x, 0, 1, 1).data.slice(0, 3)])"""
LAST = 77  # the newest of 78 moments


def test_bars_have_the_colours_of_their_values(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    assert view.ask("form", "Output") == "bars"
    said = value(LAST, "Output", "Act", 10)
    units = strong(said, range(10))
    assert len(units) >= 4
    for unit in units:
        view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))


def test_cells_have_the_colours_of_their_values_in_every_map_and_each_variable_has_its_own(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.get_by_role("radio", name="Cells").click()
    assert view.ask("form", "Hidden1") == "cells"
    said = value(LAST, "Hidden1", "Act", 35)
    strongest = strong(said, range(35))[::6]
    options = view.page.eval_on_selector_all("#network-map option", "all => all.map((one) => one.value)")
    assert set(options) == set(MAPS)
    for colours, stops in MAPS.items():
        view.page.select_option("#network-map", colours)
        for unit in strongest if stops is VIRIDIS else strongest[:2]:
            view.until_colour("Hidden1", unit, ramp(stops, (said[unit] + 1) / 2))
        ends = [list(ramp(stops, 0)), list(ramp(stops, 1))]
        legend = view.page.locator(".network-legend canvas")
        fits = lambda one=legend, ends=ends: one.evaluate(LEGEND) == ends  # noqa: E731
        assert wait_until(fits, f"the legend of {colours}", page=view.page)
    view.page.select_option("#network-variable", "Grad")
    wait_until(lambda: view.ask("seen")["variable"] == "Grad", "gradients", page=view.page)
    assert view.page.input_value("#network-map") == "ColdHot", "another variable has colours of its own"
    view.page.select_option("#network-map", "Magma")
    view.page.select_option("#network-variable", "Act")
    wait_until(lambda: view.page.input_value("#network-map") == "Grey", "those of Act", page=view.page)
    view.until_colour("Hidden1", strongest[0], ramp(MAPS["Grey"], (said[strongest[0]] + 1) / 2))


def test_hovering_tells_layer_index_and_the_exact_value(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    for layer, units, unit, index in (("Hidden1", 35, 30, "[4, 2]"), ("Output", 10, 3, "unit 3")):
        words = view.point(layer, unit)
        assert index in words
        told = float(words.split("Act")[1].split()[0].replace("−", "-"))
        assert np.float32(told) == value(LAST, layer, "Act", units)[unit]
    view.page.mouse.move(2, 2)
    wait_until(lambda: view.page.locator(".network-tip").count() == 0, "no tooltip", page=view.page)


def test_feature_maps_and_heads_are_named(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.get_by_role("radio", name="Cells").click()
    assert "map 5" in view.point("Conv", 5 * 36 + 22)
    assert "[5, 3, 4]" in view.point("Conv", 5 * 36 + 22)
    assert "head 2" in view.point("Attention", 2 * 25 + 12)


def test_a_clicked_unit_is_green_and_told_of_and_escape_clears_it(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.click("Output", 4)
    view.until_colour("Output", 4, GREEN["light"])
    panel = view.page.get_by_role("complementary", name="Selected unit")
    expect(panel.get_by_role("heading", name="Output")).to_be_visible()
    said = value(LAST, "Output", "Act", 10)
    shown = panel.locator("#network-value")
    wait_until(lambda: shown.inner_text() not in ("…", ""), "a value", page=view.page)
    assert np.float32(shown.inner_text()) == said[4]
    assert "unit 4" in panel.inner_text()
    lo, hi = (f"{number:.3g}".replace("-", "−") for number in (said.min(), said.max()))
    assert f"{lo} … {hi}" in panel.inner_text()
    expect(view.page.locator(".network-stage")).to_have_attribute("aria-label", re.compile("Output, unit 4"))
    view.page.keyboard.press("Escape")
    wait_until(lambda: panel.count() == 0, "no selection", page=view.page)


def test_a_click_beside_everything_clears_the_selection_and_a_drag_does_not(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.click("Output", 4)
    box = view.box
    left, top = box["x"] + 30, box["y"] + box["height"] / 3
    view.page.mouse.move(left, top)
    view.page.mouse.down()
    view.page.mouse.move(left + 60, top, steps=3)
    view.page.mouse.up()
    expect(view.page.locator(".network-unit")).to_have_count(1)
    view.page.mouse.click(left, top)
    wait_until(lambda: view.page.locator(".network-unit").count() == 0, "no selection", page=view.page)


def test_weights_are_those_of_the_clicked_unit(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.page.select_option("#network-variable", "r.Wt")
    view.page.get_by_text("Click a unit").wait_for()
    view.page.get_by_role("radio", name="Cells").click()
    view.click("Output", 6)
    wait_until(
        lambda: "Hidden1" not in view.ask("seen")["missing"] and view.ask("seen")["variable"] == "r.Wt", page=view.page
    )
    assert view.page.get_by_text("Click a unit").count() == 0
    said = source.units(LAST, "Hidden2", "r.Wt", 0, ("Output", 6))
    view.page.select_option("#network-range", "fixed")
    unit = strong(said, range(35))[0]
    view.until_colour("Hidden2", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    told = view.point("Hidden2", unit)
    assert np.float32(told.split("r.Wt")[1].split()[0]) == said[unit]
    view.page.mouse.move(2, 2)
    grey = view.colour("Input", 3)
    assert max(grey) - min(grey) < 24, "no weights come from there"
    view.page.select_option("#network-variable", "s.Wt")
    view.click("Hidden1", 17)
    said = source.units(LAST, "Output", "s.Wt", 0, ("Hidden1", 17))
    unit = strong(said, range(10))[0]
    view.page.select_option("#network-range", "fixed")
    view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    for variable, layer in (("s.DWt", "Hidden2"), ("r.DWt", "Attention")):  # how they changed
        view.page.select_option("#network-variable", variable)
        view.page.select_option("#network-range", "fixed")
        wait_until(lambda name=variable: view.ask("seen")["variable"] == name, variable, page=view.page)
        said = source.units(LAST, layer, variable, 0, ("Hidden1", 17))
        unit = strong(said, range(len(said)))[0]
        view.until_colour(layer, unit, ramp(COLD_HOT, (said[unit] + 1) / 2))


@pytest.mark.slow
def test_gradients_leave_the_input_grey(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.select_option("#network-variable", "Grad")
    wait_until(lambda: view.ask("seen")["variable"] == "Grad", "gradients", page=view.page)
    assert view.ask("seen")["missing"] == ["Input"]
    assert abs(view.ask("range", "Output")[1]) <= 0.01
    grey = view.colour("Input", 60)
    assert max(grey) - min(grey) < 24


def test_another_item_of_the_batch_is_shown_and_one_beyond_it_is_said_to_be(open_page: Pages) -> None:
    view, source = look_at(open_page)
    field = view.page.locator("#network-item")
    field.fill("3")
    field.press("Enter")
    wait_until(lambda: view.ask("seen")["item"] == 3, "item 3", page=view.page)
    said = value(LAST, "Output", "Act", 10, 3)
    unit = strong(said, range(10))[0]
    view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    field.fill("99")
    field.press("Enter")
    wait_until(lambda: field.input_value() == "7", "the last of 8 items", page=view.page)
    field.fill("nonsense")
    field.press("Enter")
    expect(field).to_have_value("7")
    whole = source.units
    source.units = lambda moment, layer, variable, item=0, of=None: (  # type: ignore[method-assign]
        None if item >= 4 else whole(moment, layer, variable, item, of)
    )
    source.state, source._changes.state = replace(source.state, batch=4), True
    view.page.locator(".control button", has_text="Trial").first.click()
    view.page.get_by_text("The batch has 4 items").wait_for()
    expect(view.page.get_by_text("No item 7")).to_be_visible()


@pytest.mark.slow
def test_ranges_are_automatic_fixed_or_a_percentile(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    layers = {"Input": 64, "Conv": 288, "Attention": 100, "Hidden1": 35, "Hidden2": 35, "Output": 10}
    every = np.concatenate([value(LAST, layer, "Act", units) for layer, units in layers.items()])
    every = every[np.isfinite(every)]

    def ranged(wanted: tuple[float, float], near: float = 1e-6) -> None:
        wait_until(
            lambda: np.allclose(view.ask("range", "Output"), wanted, atol=near), f"the range {wanted}", page=view.page
        )

    ranged((-1, 1))
    view.page.select_option("#network-range", "auto")
    most = float(np.abs(every).max())
    ranged((-most, most))
    view.page.uncheck("#network-zero")
    ranged((float(every.min()), float(every.max())))
    view.page.select_option("#network-range", "layer")
    own = value(LAST, "Output", "Act", 10)
    ranged((float(own.min()), float(own.max())))
    view.page.select_option("#network-range", "percentile")
    view.page.fill("#network-percent", "80")
    view.page.press("#network-percent", "Enter")
    ranged((float(np.quantile(every, 0.1)), float(np.quantile(every, 0.9))), 0.02)
    view.page.select_option("#network-range", "fixed")
    for name, typed in (("min", "-0.5"), ("max", "2")):
        view.page.fill(f"#network-{name}", typed)
        view.page.press(f"#network-{name}", "Enter")
    ranged((-0.5, 2))
    expect(view.page.locator(".network-legend .numbers")).to_have_text(re.compile(r"−0\.5\s*0\.75\s*2"))
    view.page.check("#network-zero")
    ranged((-2, 2))
    view.page.reload()
    wait_until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "a state", page=view.page)
    ranged((-2, 2))


@pytest.mark.slow
def test_labels_and_arrows_can_be_turned_off(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    names = view.page.locator(".network-label:visible b")
    wait_until(lambda: names.count() == 6, "six names", page=view.page)
    assert set(names.all_inner_texts()) == {"Input", "Conv", "Attention", "Hidden1", "Hidden2", "Output"}
    view.page.get_by_role("button", name="Labels").click()
    wait_until(lambda: names.count() == 0, "no names", page=view.page)
    before = view.picture()
    view.page.get_by_role("button", name="Arrows").click()
    assert wait_until(lambda: view.changed(before) > 100, "no arrows", page=view.page)
    expect(view.page.locator(".network-legend .types")).to_have_count(0)


@pytest.mark.slow
def test_names_with_markup_are_only_text(open_page: Pages) -> None:
    view, _ = look_at(open_page, Stage(paused=True, states=5, markup=True))
    wait_until(lambda: MARKUP in view.page.locator(".network-labels").inner_text(), "its name", page=view.page)
    view.point(MARKUP, 4)
    view.click(MARKUP, 4)
    wait_until(lambda: view.page.locator(".network-unit h2").inner_text() == MARKUP, "its panel", page=view.page)
    assert view.page.evaluate("window.hacked") is None
    assert view.page.locator(".network img").count() == 0


@pytest.mark.slow
def test_nan_is_marked_clearly(open_page: Pages) -> None:
    view, _ = look_at(open_page, states=40)  # the newest is moment 39, where Hidden2 has one
    assert view.moment == 39
    view.click("Hidden2", 31)
    panel = view.page.locator(".network-unit")
    wait_until(lambda: "NaN" in panel.inner_text(), "a mark", page=view.page)
    assert "1 unit" in panel.inner_text()
    for key in ("ArrowUp",) * 4:  # up to [0, 3]
        view.page.locator(".network-stage").press(key)
    wait_until(lambda: "[0, 3]" in panel.inner_text(), "the unit", page=view.page)
    wait_until(lambda: view.page.inner_text("#network-value").lower() == "nan", "its value", page=view.page)


def test_a_unit_over_time_is_plotted_read_out_and_grows(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.click("Output", 4)
    plot = view.page.locator(".network-plot")
    wait_until(lambda: "78 moments" in (plot.get_attribute("aria-label") or ""), "a plot", page=view.page)
    assert wait_until(lambda: _blue(view, plot.screenshot()) > 60, "a line", page=view.page)
    readout = view.page.locator(".network-readout")

    def reads(step: int) -> bool:
        act = f"{value(step - 1, 'Output', 'Act', 10)[4]:.3g}".replace("-", "−")
        return readout.inner_text().startswith(f"step {step}\n") and f"Act {act}" in readout.inner_text()

    wait_until(lambda: reads(78), "the moment that is shown", page=view.page)
    plot.focus()
    for key, step in (("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 78), ("ArrowLeft", 77)):
        plot.press(key)
        wait_until(lambda step=step: reads(step), f"step {step}", page=view.page)
    assert view.moment == LAST, "keys of the plot are not those of the time"
    expect(plot).to_have_attribute("aria-valuetext", re.compile("step 77: Act"))
    area = wait_until(view.page.locator(".network-plot .u-over").bounding_box, "the plot", page=view.page)
    view.page.mouse.move(area["x"] + area["width"] * (20 - 1) / 77, area["y"] + 40)  # from step 1 to 78
    wait_until(lambda: reads(20), "what the pointer is on", page=view.page)
    view.page.mouse.move(2, 2)
    wait_until(lambda: reads(78), "what is shown again", page=view.page)
    view.page.get_by_role("button", name="Act", exact=True).click()
    wait_until(lambda: "1 line over" in plot.get_attribute("aria-label"), "a line less", page=view.page)
    assert wait_until(lambda: _blue(view, plot.screenshot()) == 0, "no blue line", page=view.page)
    view.page.locator(".control button", has_text="Trial").first.click()
    wait_until(lambda: "79 moments" in plot.get_attribute("aria-label"), "one more", page=view.page)
    assert len(source.moments) == 79


def _blue(view: View, png: bytes) -> int:
    found = pixels(png)
    return int((found[:, 2] > found[:, 0] + 60).sum())


@pytest.mark.slow
def test_a_raster_has_time_as_an_axis_and_ends_where_one_looks(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.click("Output", 6)  # for the weights
    view.page.mouse.move(*view.spot("Hidden2", 17))
    for _ in range(4):
        view.page.mouse.wheel(0, -240)  # until a row is some pixels high
    view.page.get_by_role("radio", name="Raster").click()
    wait_until(lambda: view.page.get_by_text("ending at this moment").count(), "a raster", page=view.page)
    assert view.ask("form", "Hidden1") == "cells"
    view.page.fill("#network-raster", "10")
    view.page.press("#network-raster", "Enter")
    view.settle()
    _read(view, source, LAST, "Act")
    before = view.picture()
    view.page.fill("#network-slider", "40")
    assert view.at(40)
    assert wait_until(lambda: view.changed(before) > 100, "other colours", page=view.page)
    _read(view, source, 40, "Act")
    view.page.select_option("#network-variable", "r.Wt")
    view.page.select_option("#network-range", "fixed")
    wait_until(lambda: view.ask("seen")["variable"] == "r.Wt", "weights over time", page=view.page)
    _read(view, source, 40, "r.Wt", ("Output", 6))


def _read(view: View, source: Stage, last: int, variable: str, of: tuple[str, int] | None = None) -> None:
    """A cell of Hidden2 has the colour, and its tooltip the step and value, of its own moment."""
    moments = source.moments[last - 9 : last + 1]
    told = [source.units(one.id, "Hidden2", variable, 0, of) for one in moments]
    opaque = [[int(unit), column] for column, said in enumerate(told) for unit in strong(said, range(35))]
    wait_until(view._still, "a picture that stands still: what was chosen may have moved it", page=view.page)
    found = wait_until(lambda: _hit(view, opaque), "a cell under the pointer", page=view.page)
    moment, said = moments[found["column"]], told[found["column"]][found["unit"]]
    clip = {"x": found["at"][0], "y": found["at"][1], "width": 1, "height": 1}
    view.page.mouse.move(2, 2)
    wanted = ramp(COLD_HOT, (said + 1) / 2)
    drawn = lambda: pixels(view.page.screenshot(clip=clip))[0]  # noqa: E731
    wait_until(lambda: np.abs(drawn() - wanted).max() < 14, f"the colour of {said}", page=view.page)
    view.page.mouse.move(*found["at"])
    tip = view.page.locator(".network-tip")
    wait_until(
        lambda: tip.count() and "≈" not in tip.inner_text() and "…" not in tip.inner_text(), "a value", page=view.page
    )
    assert f"step {moment.step}" in tip.inner_text()
    assert np.float32(tip.inner_text().split(variable)[1].split()[0]) == said


def _hit(view: View, cells: list[list[int]]) -> dict[str, Any] | None:
    """A point well inside one of these cells, unit and column, of Hidden2's raster."""
    box = view.box
    script = """([width, height, cells]) => {
        const wanted = new Set(cells.map(String));
        for (let y = 100; y < height - 100; y += 5)
            for (let x = 100; x < width - 100; x += 5) {
                const around = [[0, 0], [2, 0], [-2, 0], [0, 2], [0, -2]];
                const [one, ...others] = around.map(([right, down]) => window.__studio.at(x + right, y + down));
                if (one?.layer !== "Hidden2" || !wanted.has(String([one.unit, one.column]))) continue;
                if (others.every((other) => other?.cell === one.cell)) return {...one, x, y};
            }
    }"""
    found = view.page.evaluate(script, [box["width"], box["height"], cells])
    return found and {**found, "at": (box["x"] + found["x"], box["y"] + found["y"])}
