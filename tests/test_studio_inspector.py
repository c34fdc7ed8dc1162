"""The inspector of a layer in the page: axes, exact numbers by pointer and keys, statistics, what is not kept, code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from studio_pages import Pages, opened  # noqa: F401
from studio_scene import View
from torch import Tensor, nn
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=hacked=1>"


class Mixed(nn.Module):
    """Feature maps of which one is dead, a NaN, and a weight of more cells than a picture has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.act, self.large = nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Linear(96, 700)
        self.add_module(HOSTILE, nn.Linear(700, 2))
        with torch.no_grad():
            self.conv.weight[4], self.conv.bias[4] = 0, -1
            self.large.weight[600, 50] = float("nan")

    def forward(self, x: Tensor) -> Tensor:
        x = self.large(self.act(self.conv(x)).flatten(1))
        return self.get_submodule(HOSTILE)(x)


@pytest.fixture(scope="module")
def recorded() -> tuple[Mixed, tl.ModelHistory]:
    model = Mixed()
    return model, tl.log_forward_pass(model, torch.randn(3, 1, 6, 6))


@pytest.fixture
def panel(open_page: Pages, recorded: Any) -> Iterator[Any]:
    with tl.show(recorded[1], browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        yield view.page.locator(".network-unit")
        view.page.close()


def select(panel: Any, layer: str, tensor: str = "") -> None:
    search = panel.page.locator(".network-way input")
    search.fill(layer)
    if tensor:
        panel.page.get_by_label("Layers found").get_by_role("button").first.click()
    else:
        search.press("Enter")
    wait_until(lambda: panel.locator("h2").inner_text() == layer, layer, page=panel.page)
    if tensor:
        panel.get_by_label("Tensor", exact=True).select_option(label=tensor)


def reading(panel: Any, text: str) -> None:
    output = panel.locator(".tensor-reading")
    wait_until(lambda: output.inner_text() == text, lambda: f"{text}, not {output.inner_text()}", page=panel.page)


def cells(panel: Any, text: str) -> None:
    picture = panel.locator(".tensor-picture canvas")
    wait_until(lambda: text in (picture.get_attribute("aria-label") or ""), text, page=panel.page)


def test_feature_maps_stand_as_tiles_and_keys_read_their_exact_numbers(panel: Any, recorded: Any) -> None:
    select(panel, "conv")
    cells(panel, "Act of conv, 6 × 4 × 4 cells")
    values = recorded[1]["relu_1"].tensor_contents.detach().numpy()
    picture = panel.locator(".tensor-picture canvas")
    picture.focus()
    picture.press("ArrowRight")  # the first cell
    reading(panel, f"[0, 0, 0, 0] = {number(values[0, 0, 0, 0])}")
    picture.press("PageDown")
    picture.press("ArrowDown")
    picture.press("ArrowRight")
    reading(panel, f"[0, 1, 1, 1] = {number(values[0, 1, 1, 1])}")
    panel.get_by_label("batch, number").fill("2")
    panel.get_by_label("batch, number").press("Enter")
    reading(panel, f"[2, 1, 1, 1] = {number(values[2, 1, 1, 1])}")
    picture.focus()
    picture.press("Enter")  # the tile alone
    cells(panel, "1 × 4 × 4 cells")
    panel.get_by_label("row is", exact=True).select_option("columns")  # rows and columns change places
    picture.hover(position={"x": 40, "y": 5})
    reading(panel, f"[2, 1, 1, 0] = {number(values[2, 1, 1, 0])}")
    panel.get_by_role("button", name="All channels").click()
    cells(panel, "6 × 4 × 4 cells")
    panel.get_by_label("batch", exact=True).fill("1")  # the slider
    picture.focus()
    picture.press("Home")
    picture.press("Enter")
    cells(panel, "1 × 4 × 4 cells")
    picture.press("Escape")
    cells(panel, "6 × 4 × 4 cells")
    assert panel.get_by_label("batch, number").input_value() == "1"


def test_dead_channels_are_named_and_lead_to_their_map(panel: Any) -> None:
    select(panel, "conv")
    facts = panel.get_by_label("Statistics", exact=True)
    wait_until(lambda: "1 of 6 channels are zero throughout" in facts.inner_text(), "the dead channel", page=panel.page)
    histogram, told = facts.get_by_label("Histogram"), facts.locator(".tensor-histogram output")
    histogram.press("End")
    last = told.inner_text()
    histogram.hover(position={"x": 1, "y": 5})
    wait_until(lambda: " to " in told.inner_text() and told.inner_text() != last, "the first bar", page=panel.page)
    panel.get_by_label("each by itself").check()
    assert panel.locator(".tensor-scale").inner_text().split("\n")[0] == "least"
    facts.get_by_label("Show channel 4").click()
    cells(panel, "1 × 4 × 4 cells")
    assert panel.get_by_label("channel, number").input_value() == "4"


def test_a_large_weight_comes_in_blocks_and_a_click_looks_closer(panel: Any, recorded: Any) -> None:
    select(panel, "large", "large.weight")
    cells(panel, "large.weight of large")
    facts = panel.get_by_label("Statistics", exact=True)
    wait_until(lambda: "1 NaN" in facts.inner_text(), "the NaN", page=panel.page)
    picture = panel.locator(".tensor-picture canvas")
    picture.hover(position={"x": 2, "y": 2})
    wait_until(lambda: "farthest from 0" in panel.locator(".tensor-reading").inner_text(), "a block", page=panel.page)
    picture.click(position={"x": 2, "y": 2})
    cells(panel, "1 × 48 × 48 cells")
    picture.focus()
    picture.press("Home")
    weight = recorded[0].large.weight.detach().numpy()
    wait_until(lambda: " = " in panel.locator(".tensor-reading").inner_text(), "a number", page=panel.page)
    index, text = panel.locator(".tensor-reading").inner_text().split(" = ")
    assert text == number(weight[tuple(int(part) for part in index.strip("[]").split(", "))])
    panel.get_by_role("button", name="Show the whole").click()
    wait_until(lambda: not panel.locator(".tensor-zoom").count(), "the whole", page=panel.page)


def test_what_is_not_kept_says_why_and_the_code_opens_what_is_shown(panel: Any, recorded: Any) -> None:
    select(panel, "conv", "conv.bias, gradient (not there)")
    wait_until(lambda: "backward()" in panel.locator(".tensor-why").inner_text(), "the reason", page=panel.page)
    panel.get_by_label("Tensor", exact=True).select_option(label="conv.weight")
    code = panel.get_by_label("Code that opens this slice")
    wait_until(lambda: "conv.weight" in code.inner_text(), "the code", page=panel.page)
    panel.get_by_role("button", name="Copy as numpy code").click()
    panel.page.get_by_text("Copied.", exact=True).wait_for()
    space: dict[str, Any] = {"history": recorded[1]}
    exec(code.inner_text().split("\n", 1)[1], space)  # its first line is the user's own history
    assert np.array_equal(space["array"], recorded[0].conv.weight.detach().numpy()[:, 0])
    assert "tl.watch" in panel.get_by_label("Statistics over time").inner_text()


def test_names_with_markup_are_text_and_the_panel_can_be_wide_beside_other_tabs(panel: Any) -> None:
    select(panel, HOSTILE, f"{HOSTILE}.weight")
    cells(panel, f"{HOSTILE}.weight of {HOSTILE}")
    assert panel.page.evaluate("window.hacked") is None
    before = panel.bounding_box()["width"]
    panel.get_by_label("Wide panel").click()
    wait_until(lambda: panel.bounding_box()["width"] > 1.3 * before, "a wide panel", page=panel.page)
    panel.page.get_by_role("tab", name="Plots").click()
    cells(panel, f"{HOSTILE}.weight of {HOSTILE}")


def number(value: Any) -> str:
    """As the page writes it: the fewest digits, without a zero after the point."""
    text = np.format_float_positional(value, trim="-") if value == 0 or 1e-6 <= abs(value) < 1e21 else ""
    assert text, "a number that needs an exponent"
    return text
