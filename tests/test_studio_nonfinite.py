"""NaN and the infinities as what they are: in the picture, its legend, hover, plots and tables; no data as no data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fast_cases import fast_first
from playwright.sync_api import expect
from seams import GAP, Column, Layer, Network, TableHead, TableRows, Variable, net_of
from studio_pages import Pages, opened, pixels, settled  # noqa: F401
from studio_scene import View
from studio_stage import Stage
from waiting import wait_until

pytestmark = pytest.mark.browser
NAN, PLUS, MINUS = (0xC2, 0x18, 0x7F), (0x11, 0x18, 0x27), (0x00, 0x89, 0x7B)  # in the light
CELLS = np.array([0.1, 0.2, np.nan, np.inf, -np.inf, GAP, 0.3, 0.4, -0.2], np.float32)


class Broken(Stage):
    """A layer in which something of each kind is, and tables with the same."""

    def __init__(self, **options: Any) -> None:
        super().__init__(paused=True, states=3, **options)
        layers = (Layer("Whole", (3, 3)), Layer("Broken", (3, 3)))
        self.net = net_of(Network("strange", layers, (), (Variable("Act"),)))
        head = TableHead("train_epoch", "Train epochs", "Epoch", columns=(
            Column("Epoch", "int", plotted=False), Column("loss"), Column("Output", "tensor", (2, 2))))  # fmt: skip
        loss = [1.0, 0.5, float("nan"), float("inf"), float("-inf"), None, 0.25]
        tensors = [[[1.0, float("nan")], [float("inf"), None]]] * 7
        self.tables = {"train_epoch": TableRows(head, {"Epoch": [*range(7)], "loss": loss, "Output": tensors}, 7)}

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Any = None) -> Any:
        return CELLS if layer == "Broken" else np.linspace(-1, 1, 9, dtype=np.float32)

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        return self.units(moment, layer, variable)[unit]

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        values = {"Act": [1.0, float("nan"), float("inf")]}
        return {"moments": [one.id for one in self.moments], "steps": [1, 2, 3], "values": values}


def has(page: Any, *colours: tuple[int, int, int]) -> bool:
    """Whether some pixels of the picture are about of each colour; it must not be that of the ground."""
    found = picture(settled(page))
    return all((np.abs(found - np.array(colour)).max(1) < 40).sum() > 30 for colour in colours)


def shown(open_page: Pages, **options: Any) -> Any:
    url, _ = open_page.stage(Broken())
    page = open_page(url, **options)
    wait_until(lambda: page.evaluate("!!window.__studio") and View(page).moment >= 0, "a state", page=page)
    return settled(page)


def picture(page: Any) -> Any:
    """The pixels of the picture, without what stands over it."""
    page.evaluate("""() => {
        const over = document.querySelectorAll(".network-legend, .network-label");
        for (const one of over) one.style.visibility = "hidden";
    }""")
    return pixels(page.locator(".network-stage canvas").first.screenshot())


@pytest.mark.parametrize("form", fast_first(["Bars", "Cells"]))
def test_each_kind_has_its_colour_in_the_picture(open_page: Pages, form: str) -> None:
    page = shown(open_page)
    page.get_by_text(form, exact=True).first.click()
    assert wait_until(lambda: has(page, NAN, PLUS, MINUS), "all kinds to be drawn", page=page)


def test_the_legend_has_an_entry_for_each_kind_that_is_there(open_page: Pages) -> None:
    page = shown(open_page)
    assert page.locator(".strange-ones span").all_inner_texts() == ["NaN", "∞", "−∞"]
    assert page.locator(".network-legend .numbers span").all_inner_texts() == ["−0.4", "0", "0.4"]


@pytest.mark.slow
def test_a_network_without_any_has_no_such_entries(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True, states=3)
    page = open_page(url)
    wait_until(lambda: page.evaluate("!!window.__studio") and View(page).moment >= 0, "a state", page=page)
    assert page.locator(".network-legend").count() == 1 and page.locator(".strange-ones").count() == 0


def test_hover_and_the_selected_unit_say_what_it_is(open_page: Pages) -> None:
    page = shown(open_page)
    page.get_by_text("Cells", exact=True).first.click()  # where none stands before another
    view = View(settled(page))
    for unit, text in ((2, "NaN"), (3, "∞"), (4, "−∞"), (5, "no value"), (1, "0.2")):
        x, y = view.spot("Broken", unit)
        page.mouse.move(x, y)
        page.mouse.move(x + 1, y)
        wait_until(lambda text=text: text in "".join(page.locator(".network-tip").all_inner_texts()), text, page=page)
    x, y = view.spot("Broken", 2)
    page.mouse.click(x, y)
    wait_until(lambda: page.locator("#network-value").inner_text() == "NaN", "the selected unit's value", page=page)
    facts = page.locator(".network-unit dl").first.inner_text().split()
    assert "NaN" in facts and "Infinite" in facts
    wait_until(
        lambda: page.locator(".network-readout").inner_text().split()[-1] == "∞", "the newest of its trace", page=page
    )


def test_a_table_says_what_it_is_and_what_is_missing(open_page: Pages) -> None:
    page = shown(open_page)
    page.keyboard.press("3")
    page.wait_for_selector(".grid")
    cells = page.locator(".grid tbody td:nth-child(2)").all_inner_texts()
    assert cells == ["1", "0.5", "NaN", "∞", "−∞", "–", "0.25"]
    found = page.locator("canvas.tensor").first.evaluate(
        "one => [...one.getContext('2d').getImageData(0, 0, 2, 2).data]"
    )
    assert [tuple(found[at : at + 3]) for at in (4, 8)] == [NAN, PLUS]
    assert tuple(found[12:15]) == (200, 204, 210)  # nothing is there


def test_a_plot_marks_what_has_no_place_in_it_and_says_so(open_page: Pages) -> None:
    page = shown(open_page)
    page.keyboard.press("2")
    page.wait_for_selector(".readout b")
    expect(page.get_by_text("loss is NaN or ∞ or −∞ at 3 points, marked at the edge.")).to_be_visible()


@pytest.mark.slow
def test_it_looks_so_in_the_dark_too(open_page: Pages) -> None:
    url, _ = open_page.stage(Broken())
    page = open_page(url, color_scheme="dark")
    wait_until(lambda: page.evaluate("!!window.__studio") and View(page).moment >= 0, "a state", page=page)
    light = (0xFF, 0x6B, 0xBD), (0xFF, 0xFF, 0xFF), (0x2D, 0xD4, 0xBF)
    assert wait_until(lambda: has(page, *light), "all kinds to be drawn", page=page)
