"""The Network tab: what is drawn is what the source says, and everything in it can be asked for."""

from __future__ import annotations

import numpy as np
import pytest
from studio_pages import Pages, opened, pixels, until  # noqa: F401
from studio_scene import COLD_HOT, GREEN, VIRIDIS, Made, View, look_at, ramp, strong
from studio_stage import MARKUP, Stage, value

from torcheer.host.records import Layer

LAST = 77  # the newest of 78 moments


def test_bars_have_the_colours_of_their_values(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    assert view.ask("form", "Output") == "bars"
    said = value(LAST, "Output", "Act", 10)
    units = strong(said, range(10))
    assert len(units) >= 4
    for unit in units:
        view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))


@pytest.mark.parametrize(("colours", "stops"), [("ColdHot", COLD_HOT), ("Viridis", VIRIDIS)])
def test_cells_have_the_colours_of_their_values(open_page: Pages, colours: str, stops: tuple[str, ...]) -> None:
    view, _ = look_at(open_page)
    view.page.get_by_role("radio", name="Cells").click()
    view.page.select_option("#network-map", colours)
    assert view.ask("form", "Hidden1") == "cells"
    said = value(LAST, "Hidden1", "Act", 35)
    for unit in strong(said, range(35))[::6]:
        view.until_colour("Hidden1", unit, ramp(stops, (said[unit] + 1) / 2))


@pytest.mark.slow
def test_every_colour_map_changes_the_picture_and_the_legend(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    maps = view.page.eval_on_selector_all("#network-map option", "all => all.map((one) => one.value)")
    assert len(maps) >= 6
    legends, pictures = set(), set()
    for one in maps:
        view.page.select_option("#network-map", one)
        view.settle()
        legends.add(view.page.locator(".network-legend canvas").screenshot())
        pictures.add(view.picture())
    assert len(legends) == len(pictures) == len(maps)


def test_hovering_tells_layer_index_and_the_exact_value(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    for layer, units, unit, index in (("Hidden1", 35, 30, "[4, 2]"), ("Output", 10, 3, "unit 3")):
        words = view.point(layer, unit)
        assert index in words
        told = float(words.split("Act")[1].split()[0].replace("−", "-"))
        assert np.float32(told) == value(LAST, layer, "Act", units)[unit]
    view.page.mouse.move(2, 2)
    until(lambda: view.page.locator(".network-tip").count() == 0, "no tooltip", page=view.page)


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
    assert panel.get_by_role("heading", name="Output").is_visible()
    said = value(LAST, "Output", "Act", 10)
    shown = panel.locator("#network-value")
    until(lambda: shown.inner_text() not in ("…", ""), "a value", page=view.page)
    assert np.float32(shown.inner_text()) == said[4]
    assert "unit 4" in panel.inner_text()
    lo, hi = (f"{number:.3g}".replace("-", "−") for number in (said.min(), said.max()))
    assert f"{lo} … {hi}" in panel.inner_text()
    assert "Output, unit 4" in view.page.locator(".network-stage").get_attribute("aria-label")
    view.page.keyboard.press("Escape")
    until(lambda: panel.count() == 0, "no selection", page=view.page)


def test_a_click_beside_everything_clears_the_selection_and_a_drag_does_not(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.click("Output", 4)
    box = view.box
    left, top = box["x"] + 30, box["y"] + box["height"] / 3
    view.page.mouse.move(left, top)
    view.page.mouse.down()
    view.page.mouse.move(left + 60, top, steps=3)
    view.page.mouse.up()
    assert view.page.locator(".network-unit").count() == 1
    view.page.mouse.click(left, top)
    until(lambda: view.page.locator(".network-unit").count() == 0, "no selection", page=view.page)


def test_weights_are_those_of_the_clicked_unit(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.page.select_option("#network-variable", "r.Wt")
    view.page.get_by_text("Click a unit").wait_for()
    view.page.get_by_role("radio", name="Cells").click()
    view.click("Output", 6)
    until(
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


def test_gradients_leave_the_input_grey(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.select_option("#network-variable", "Grad")
    until(lambda: view.ask("seen")["variable"] == "Grad", "gradients", page=view.page)
    assert view.ask("seen")["missing"] == ["Input"]
    assert abs(view.ask("range", "Output")[1]) <= 0.01
    grey = view.colour("Input", 60)
    assert max(grey) - min(grey) < 24


def test_another_item_of_the_batch_is_shown(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    field = view.page.locator("#network-item")
    field.fill("3")
    field.press("Enter")
    until(lambda: view.ask("seen")["item"] == 3, "item 3", page=view.page)
    said = value(LAST, "Output", "Act", 10, 3)
    unit = strong(said, range(10))[0]
    view.until_colour("Output", unit, ramp(COLD_HOT, (said[unit] + 1) / 2))
    field.fill("99")
    field.press("Enter")
    until(lambda: field.input_value() == "7", "the last of 8 items", page=view.page)
    field.fill("nonsense")
    field.press("Enter")
    assert field.input_value() == "7"


def test_ranges_are_automatic_fixed_or_a_percentile(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    layers = {"Input": 64, "Conv": 288, "Attention": 100, "Hidden1": 35, "Hidden2": 35, "Output": 10}
    every = np.concatenate([value(LAST, layer, "Act", units) for layer, units in layers.items()])
    every = every[np.isfinite(every)]

    def ranged(wanted: tuple[float, float], near: float = 1e-6) -> None:
        until(
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
    legend = view.page.locator(".network-legend .numbers").inner_text().split()
    assert legend == ["−0.5", "0.75", "2"]
    view.page.check("#network-zero")
    ranged((-2, 2))
    view.page.reload()
    until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "a state", page=view.page)
    ranged((-2, 2))


def test_labels_and_arrows_can_be_turned_off(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    names = view.page.locator(".network-label:visible b")
    until(lambda: names.count() == 6, "six names", page=view.page)
    assert set(names.all_inner_texts()) == {"Input", "Conv", "Attention", "Hidden1", "Hidden2", "Output"}
    view.page.get_by_role("button", name="Labels").click()
    until(lambda: names.count() == 0, "no names", page=view.page)
    before = view.picture()
    view.page.get_by_role("button", name="Arrows").click()
    view.settle()
    assert view.picture() != before
    assert view.page.locator(".network-legend .types").count() == 0


@pytest.mark.slow
def test_labels_never_lie_on_each_other(open_page: Pages) -> None:
    layers = [Layer(f"layer number {n}", (6,)) for n in range(40)]
    view, _ = look_at(open_page, Made(*layers))
    view.settle()
    boxes = [one.bounding_box() for one in view.page.locator(".network-label:visible").all()]
    assert len(boxes) > 5
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            apart = (
                one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
                or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            )  # fmt: skip
            assert apart, (one, other)


def test_names_with_markup_are_only_text(open_page: Pages) -> None:
    view, _ = look_at(open_page, Stage(paused=True, states=5, markup=True))
    until(lambda: MARKUP in view.page.locator(".network-labels").inner_text(), "its name", page=view.page)
    view.point(MARKUP, 4)
    view.click(MARKUP, 4)
    until(lambda: view.page.locator(".network-unit h2").inner_text() == MARKUP, "its panel", page=view.page)
    assert view.page.evaluate("window.hacked") is None
    assert view.page.locator(".network img").count() == 0


def test_nan_is_marked_clearly(open_page: Pages) -> None:
    view, _ = look_at(open_page, states=40)  # the newest is moment 39, where Hidden2 has one
    assert view.moment == 39
    view.click("Hidden2", 31)
    panel = view.page.locator(".network-unit")
    until(lambda: "NaN" in panel.inner_text(), "a mark", page=view.page)
    assert "1 unit" in panel.inner_text()
    for key in ("ArrowUp",) * 4:  # up to [0, 3]
        view.page.locator(".network-stage").press(key)
    until(lambda: "[0, 3]" in panel.inner_text(), "the unit", page=view.page)
    until(lambda: view.page.inner_text("#network-value").lower() == "nan", "its value", page=view.page)


def test_a_unit_over_time_is_plotted_and_grows(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.click("Output", 4)
    plot = view.page.locator(".network-plot")
    until(lambda: "78 moments" in (plot.get_attribute("aria-label") or ""), "a plot", page=view.page)
    assert _blue(view, plot.screenshot()) > 60, "a line"
    view.page.get_by_role("button", name="Act", exact=True).click()
    until(lambda: "1 lines" in plot.get_attribute("aria-label"), "a line less", page=view.page)
    assert _blue(view, plot.screenshot()) == 0
    view.page.locator(".control button", has_text="Trial").first.click()
    until(lambda: "79 moments" in plot.get_attribute("aria-label"), "one more", page=view.page)
    assert len(source.moments) == 79


def _blue(view: View, png: bytes) -> int:
    found = pixels(view.page, png)
    return int((found[:, 2] > found[:, 0] + 60).sum())


def test_a_raster_has_time_as_an_axis(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.page.get_by_role("radio", name="Raster").click()
    until(lambda: view.page.get_by_text("newest moment at the right").count(), "a raster", page=view.page)
    assert view.ask("form", "Hidden1") == "cells"
    view.page.fill("#network-raster", "10")
    view.page.press("#network-raster", "Enter")
    view.settle()
    box = view.box
    centre = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    found = until(lambda: _hit(view, centre), "a layer under the pointer", page=view.page)
    column = found["column"]
    assert 0 <= column < 10
    view.page.mouse.move(*found["at"])
    step = source.moments[-10 + column].step
    tip = view.page.locator(".network-tip")
    until(lambda: f"step {step}" in tip.inner_text() and "≈" not in tip.inner_text(), "the moment", page=view.page)
    told = np.float32(tip.inner_text().split("Act")[1].split()[0])
    units = {"Input": 64, "Conv": 288, "Attention": 100, "Hidden1": 35, "Hidden2": 35, "Output": 10}[found["layer"]]
    assert told == value(source.moments[-10 + column].id, found["layer"], "Act", units)[found["unit"]]


def _hit(view: View, near: tuple[float, float]) -> dict[str, object] | None:
    box = view.box
    for away in range(0, 300, 7):
        for right, down in ((away, 0), (-away, 0), (0, away), (0, -away)):
            x, y = near[0] + right, near[1] + down
            found = view.ask("at", x - box["x"], y - box["y"])
            if found and found["unit"] >= 0 and found["column"] >= 0:
                return {**found, "at": (x, y)}
    return None
