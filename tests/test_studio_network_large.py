"""The Network tab with much to show: millions of units, thousands of states, and what they may cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seams import Layer
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_scene import COLD_HOT, Made, View, look_at, ramp
from studio_stage import Stage
from waiting import wait_until

STEPS = """async (count) => {
    const button = (name) => document.querySelector(`.network-time [aria-label="${name}"]`);
    for (let done = 0; done < count; done++) {
        const before = window.__studio.seen().moment;
        const [on, back] = [button("1 moment on"), button("1 moment back")];
        (done % 40 < 20 ? back : on).click();
        while (window.__studio.seen().moment === before) await new Promise(requestAnimationFrame);
    }
}"""


def _waves(moment: int, units: int) -> Any:
    return np.sign(np.sin(np.arange(units) // 50_000 + 0.5)) * (0.6 + 0.1 * (moment % 3))


@pytest.mark.slow
def test_five_million_units_are_cells_with_the_right_colours(open_page: Pages) -> None:
    source = Made(Layer("Huge", (2500, 2000), "Linear", "plane"), formula=_waves)
    view, _ = look_at(open_page, source)
    assert view.ask("form", "Huge") == "cells"
    said = _waves(2, 5_000_000)
    for unit in (2000 * 40 + 1000, 2000 * 1260 + 700, 2000 * 2480 + 1500):
        share = 1.0 if said[unit] > 0 else 0.0
        view.until_colour("Huge", unit, ramp(COLD_HOT, share))
    words = view.point("Huge", 2000 * 1260 + 700)
    assert "largest of 3×2" in words
    row, column = (int(part) for part in words.split("[")[1].split("]")[0].split(","))
    told = float(words.split("Act")[1].split()[0])
    assert np.float32(told) == np.float32(said[row * 2000 + column])
    view.click("Huge", 2000 * 1260 + 700)
    marker = view.page.locator(".network-marker")
    wait_until(lambda: marker.is_visible(), "a ring around what is too small to be seen green", page=view.page)


@pytest.mark.slow
def test_a_million_units_in_bars_are_cells_all_the_same(open_page: Pages) -> None:
    view, _ = look_at(open_page, Made(Layer("Wide", (1000, 1000), "Linear", "plane"), Layer("Small", (10,))))
    view.page.get_by_role("radio", name="Bars").click()
    wait_until(lambda: view.ask("form", "Small") == "bars", "bars", page=view.page)
    assert view.ask("form", "Wide") == "cells"


def test_automatic_is_cells_above_twenty_thousand_units(open_page: Pages) -> None:
    view, _ = look_at(open_page, Made(Layer("Many", (150, 150), "Linear", "plane")))
    assert view.ask("form", "Many") == "cells"


def _memory(view: View) -> tuple[float, dict[str, int]]:
    """Megabytes that the page holds after a collection, and what the graphics card holds."""
    session = view.page.context.new_cdp_session(view.page)
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    session.detach()
    held = usage["usedSize"] + usage.get("embedderHeapUsedSize", 0) + usage.get("backingStorageSize", 0)
    return held / 1e6, view.ask("memory")


def _grown(open_page: Pages, states: int) -> float:
    view, _ = look_at(open_page, Stage(paused=True, states=60))
    view.page.get_by_role("radio", name="Cells").click()  # drawn ten times as fast in software
    view.click("Output", 4)
    view.page.evaluate(STEPS, 40)
    before, card = _memory(view)
    left = states
    while left > 0:
        view.page.evaluate(STEPS, min(200, left))
        left -= 200
    after, now = _memory(view)
    assert now == card
    return after - before


@pytest.mark.slow
def test_memory_is_flat_over_five_hundred_frames(open_page: Pages) -> None:
    assert _grown(open_page, 84) < 2.5  # six layers each


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_frames(open_page: Pages) -> None:
    assert _grown(open_page, 1_700) < 2.5


def test_frames_of_an_earlier_look_are_never_shown(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    script = """async () => {
        const select = document.querySelector("#network-variable");
        const odd = [];
        for (let n = 0; n < 30; n++) {
            select.value = n % 2 ? "Act" : "Grad";
            select.dispatchEvent(new Event("change", {bubbles: true}));
            await new Promise(requestAnimationFrame);
            const {variable} = window.__studio.seen();
            const most = window.__studio.range("Output")[1];
            if ((variable === "Grad") !== most < 0.5) odd.push([variable, most]);
        }
        return odd;
    }"""
    assert view.page.evaluate(script) == []
