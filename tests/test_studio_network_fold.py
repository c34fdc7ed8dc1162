"""The Network tab folds: modules are slabs, equal ones a stack; going in, going out, and finding a layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from models import SkipBlock
from studio_pages import Pages, opened  # noqa: F401
from studio_scene import View
from torch import Tensor, nn
from waiting import wait_until

import torcheer as tl

HOSTILE = "<img src=x onerror=alert(1)>"


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.h, self.head = nn.Linear(4, 8), nn.ModuleList(SkipBlock(8) for _ in range(12)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.h:
            x = block(x)
        return self.head(x)


@pytest.fixture
def view(open_page: Pages) -> Iterator[View]:
    """The page of a model with twelve equal blocks."""
    with tl.show(Blocks(), torch.rand(2, 4), browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        yield view
        view.page.close()


def titles(view: View) -> list[str]:
    return [item["title"] for item in view.ask("shown")]


def until(view: View, *expected: str) -> None:
    """Wait until these slabs are shown, with values for all of them."""
    wait_until(lambda: titles(view) == list(expected), f"{expected}, not {titles(view)}", page=view.page)
    wait_until(lambda: view.moment >= 0 and view.ask("seen")["missing"] == [], "their values", page=view.page)


def label(view: View, text: str) -> Any:
    return view.page.locator(".network-label:not([hidden])", has=view.page.locator("b", has_text=text)).first


def test_equal_blocks_are_one_stack_with_the_values_of_the_last(view: View) -> None:
    until(view, "Input", "stem", "h.0–11 ×12", "head")
    assert [item["detail"] for item in view.ask("shown")] == ["Input · 4", "Linear · 8", "SkipBlock · 8", "Linear · 3"]
    assert view.ask("arrows") == [
        ["Input", "stem", "forward"],
        ["stem", "h.11", "forward"],
        ["h.11", "head", "forward"],
    ]


def test_a_click_on_a_name_or_slab_goes_in_and_escape_goes_out(view: View) -> None:
    label(view, "h.0–11").click()
    blocks = [f"h.{number}" for number in range(12)]
    until(view, "Input", "stem", *blocks, "head")
    crumbs = view.page.locator(".network-way li button")
    wait_until(lambda: crumbs.all_inner_texts() == ["Blocks", "h.0–11 ×12"], "the way", page=view.page)
    view.page.mouse.click(*view.spot("h.5", 3))
    until(view, "Input", "stem", *blocks[:5], "first", "second", "output", *blocks[6:], "head")
    assert view.ask("frames")[1] == {"title": "h.5", "members": ["h.5.first", "h.5.second", "h.5"]}
    assert ["h.4", "h.5", "skip"] in view.ask("arrows"), "the way around the layers of the open block"
    view.page.keyboard.press("Escape")
    until(view, "Input", "stem", *blocks, "head")
    view.page.keyboard.press("Escape")
    until(view, "Input", "stem", "h.0–11 ×12", "head")


def test_a_layer_is_found_and_the_view_goes_there(view: View) -> None:
    view.page.keyboard.press("/")
    view.page.keyboard.type("h.7 second")
    found = view.page.get_by_role("list", name="Layers found").get_by_role("button")
    wait_until(lambda: found.count() == 1, "one layer", page=view.page)
    view.page.keyboard.press("Enter")
    wait_until(lambda: "second" in titles(view), "the layer", page=view.page)
    panel = view.page.locator(".network-unit")
    wait_until(lambda: "h.7.second" in panel.inner_text(), "the layer's panel", page=view.page)
    crumbs = view.page.locator(".network-way li button")
    way = ["Blocks", "h.0–11 ×12", "h.7"]
    wait_until(lambda: crumbs.all_inner_texts() == way, "the way there", page=view.page)
    crumbs.first.click()
    until(view, "Input", "stem", "h.0–11 ×12", "head")


def test_what_an_alert_names_is_unfolded_and_selected(open_page: Pages) -> None:
    model = Blocks()
    with tl.live(model, browser=False) as live:
        view = View(open_page(live.url))

        def step() -> bool:
            model(torch.rand(2, 4)).square().mean().backward()
            return bool(view.page.evaluate("window.__studio?.seen().moment >= 0"))

        wait_until(step, "values", page=view.page)
        live.host.alert("look here", layer="h.4.first")
        view.page.get_by_role("button", name="Alerts").click()
        view.page.get_by_role("button", name="h.4.first").click()
        wait_until(lambda: "h.4.first" in [item["layer"] for item in view.ask("shown")], "it unfolded", page=view.page)
        panel = view.page.locator(".network-unit")
        wait_until(lambda: "h.4.first" in panel.inner_text(), "the layer's panel", page=view.page)
        assert {"title": "h.4", "members": ["h.4.first", "h.4.second", "h.4"]} in view.ask("frames")
        view.page.close()


def test_a_search_without_a_match_says_what_to_try_and_escape_ends_it(view: View) -> None:
    view.page.keyboard.press("/")
    view.page.keyboard.type("no such layer")
    wait_until(lambda: view.page.get_by_text("Nothing found. Try part of a name").is_visible(), "help", page=view.page)
    view.page.keyboard.press("Escape")
    wait_until(lambda: view.page.get_by_text("Nothing found").count() == 0, "the end of it", page=view.page)
    assert titles(view)[2] == "h.0–11 ×12"


def test_names_of_all_that_is_open_are_there_and_none_covers_another(view: View) -> None:
    label(view, "h.0–11").click()
    blocks = [f"h.{number}" for number in range(12)]
    until(view, "Input", "stem", *blocks, "head")
    all_named(view, *blocks)


def all_named(view: View, *expected: str) -> None:
    """Every slab has its name, and no name covers another."""
    names = view.page.locator(".network-label:not([hidden]):not(.frame)")

    def named() -> set[str]:
        return {text.split("\n")[0].removesuffix(" +") for text in names.all_inner_texts()}

    wait_until(lambda: {*expected} <= named(), f"names of {expected}, not {named()}", page=view.page)
    boxes = [box for box in (element.bounding_box() for element in names.all()) if box]
    for one, other in combinations(boxes, 2):
        apart = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        assert apart or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]


class TwoNets(nn.Module):
    """Two nets side by side and two inputs: on a phone slabs fill the width, and names must go between them."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.ConvTranspose2d(4, 6, 4), nn.ReLU(), nn.ConvTranspose2d(6, 3, 4, 2, 1))
        self.judge = nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.Conv2d(4, 1, 4))

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        return self.judge(real), self.judge(self.generator(noise))


def test_on_a_phone_too_and_inputs_have_forwards_names(open_page: Pages) -> None:
    inputs = torch.rand(1, 4, 1, 1), torch.rand(1, 3, 8, 8)
    with tl.show(TwoNets(), inputs, browser=False, block=False) as viewer:
        phone = {"width": 390, "height": 844}
        view = View(open_page(viewer.url, viewport=phone, has_touch=True, reduced_motion="reduce"))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        shown = titles(view)
        assert {"noise", "real"} <= set(shown)
        all_named(view, *shown)
        view.page.close()


def test_a_folded_block_shows_exactly_what_it_returned(open_page: Pages) -> None:
    model, x = Blocks().eval(), torch.rand(2, 4)
    with torch.no_grad():
        stream = model.stem(x)
        for block in model.h:
            stream = block(stream)
    with tl.show(model, x, browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        until(view, "Input", "stem", "h.0–11 ×12", "head")
        words = view.point("h.11", 3)
        assert np.float32(words.split("Act")[1].split()[0]) == pytest.approx(float(stream[0, 3]), rel=1e-5)
        view.page.close()


def test_hostile_names_of_modules_are_text(open_page: Pages) -> None:
    model = nn.Sequential()
    model.add_module(HOSTILE.replace(".", ""), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    with tl.show(model, torch.rand(2, 4), browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        assert view.page.locator(".network-labels img, .network-way img").count() == 0
        assert HOSTILE in view.page.locator(".network-labels").inner_text()
        view.page.close()


def test_a_live_model_folds_too_and_what_is_opened_has_values_from_then_on(open_page: Pages) -> None:
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with tl.live(model, browser=False) as live:
        view = View(open_page(live.url))

        def step() -> bool:
            model(torch.rand(2, 4)).square().mean().backward()
            optimizer.step()
            return bool(view.page.evaluate("window.__studio?.seen().moment >= 0"))

        wait_until(step, "values", page=view.page)
        assert titles(view) == ["Input", "stem", "h.0–11 ×12", "head"]
        label(view, "h.0–11").click()
        wait_until(
            lambda: step() and len(titles(view)) == 15 and view.ask("seen")["missing"] == [], "values", page=view.page
        )
        view.page.close()


class Breaks(Blocks):
    """The sixth block divides zero by zero."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for number, block in enumerate(self.h):
            x = block(x)
            x = x / 0 * 0 if number == 5 else x
        out: Tensor = self.head(x)
        return out


def test_what_is_not_a_number_glows_and_the_first_layer_with_it_is_named(open_page: Pages) -> None:
    with tl.show(Breaks(), torch.rand(2, 4), browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        names = [item["layer"] for item in view.ask("shown")]
        faults = view.ask("faults")
        assert faults and next(iter(faults)) == next(name for name in names if name in faults)
        assert [text.startswith("first NaN") for text in faults.values()] == [True] + [False] * (len(faults) - 1)
        marks = view.page.locator(".network-label:not([hidden]) em")
        wait_until(lambda: any("first NaN" in text for text in marks.all_inner_texts()), "the mark", page=view.page)
        view.page.close()
