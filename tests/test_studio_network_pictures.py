"""The Network tab: RGB inputs as pictures, attention heads upright with names of tokens, slabs coloured by a number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import expect
from studio_pages import Pages, opened, settled  # noqa: F401
from studio_scene import VIRIDIS, View, ramp
from torch import Tensor, nn
from waiting import wait_until

import torcheer as tl

NAMES = ["sky", "sun", "<b>house</b>", "grass"]


class Patches(nn.Module):
    """Four patches of a picture that look at each other."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.attention = nn.Conv2d(3, 8, 8, 8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        looked: Tensor = self.attention(tokens, tokens, tokens)[0]
        return looked


def quarters() -> Tensor:
    """A picture of 16×16: red and green above, blue and white below."""
    picture = torch.zeros(1, 3, 16, 16)
    for channel, (row, column) in enumerate([(0, 0), (0, 8), (8, 0)]):
        picture[0, channel, row : row + 8, column : column + 8] = 1
    picture[0, :, 8:, 8:] = 1
    return picture


@pytest.fixture
def view(open_page: Pages) -> Iterator[View]:
    with tl.show(Patches(), quarters(), token_names=NAMES, browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        yield view
        view.page.close()


def test_an_rgb_input_is_drawn_as_a_picture(view: View) -> None:
    view.page.keyboard.press("l")  # names would cover it
    settled(view.page)
    corners = [4 * 16 + 4, 4 * 16 + 12, 12 * 16 + 4, 12 * 16 + 12]
    colours = [view.colour("Input", unit) for unit in corners]
    wanted = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)]
    for colour, want in zip(colours, wanted):
        assert max(abs(seen - meant) for seen, meant in zip(colour, want)) < 40, (colour, want)
    view.page.mouse.move(*view.spot("Input", corners[3]))
    tip = view.page.locator(".network-tip")
    wait_until(lambda: tip.count() and "R 1 · G 1 · B 1" in tip.inner_text(), "its pixel", page=view.page)
    assert "Input: a picture, 0 is black, 1 full colour" in view.page.locator(".network-legend").inner_text()
    view.page.get_by_role("radio", name="Bars").click()
    wait_until(lambda: view.ask("form", "Input") == "bars", "its numbers", page=view.page)


def test_attention_spans_0_to_1_however_alike_its_weights_are(open_page: Pages) -> None:
    model = Patches()
    model.patches = nn.Conv2d(3, 8, 4, 4)
    with torch.no_grad():
        model.attention.in_proj_weight.zero_()  # every patch looks at all others alike
    with tl.show(model, quarters(), browser=False, block=False) as viewer:
        view = View(open_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        view.page.keyboard.press("/")
        view.page.keyboard.type("weights")
        view.page.keyboard.press("Enter")
        legend = view.page.locator(".network-legend")
        expect(legend.locator(".numbers span")).to_have_text(["0", "0.5", "1"])
        expect(legend).to_contain_text("attention: 0 is dark, 1 is bright")
        wait_until(lambda: view.ask("pose")["azimuth"] == 0, "the camera in front", page=view.page)
        near = ramp(VIRIDIS, 1 / 16)
        wait_until(lambda: is_near(view.colour("attention.weights", 3), near), "a sixteenth each", page=view.page)
        view.page.close()


def is_near(colour: tuple[int, ...], meant: tuple[int, ...]) -> bool:
    return all(abs(seen - wanted) < 30 for seen, wanted in zip(colour, meant))


def test_heads_stand_face_on_with_the_names_of_their_tokens_as_text(view: View) -> None:
    view.page.keyboard.press("/")
    view.page.keyboard.type("weights")
    view.page.keyboard.press("Enter")
    rows = [[name, 0] for name in NAMES]
    wait_until(lambda: [label for label in view.ask("tokens") if not label[1]] == rows, "rows", page=view.page)
    assert [name for name, angle in view.ask("tokens") if angle] == NAMES * 2, "columns of both heads"
    wait_until(lambda: view.ask("pose")["azimuth"] == 0, "the camera in front", page=view.page)
    assert view.ask("form", "attention.weights") == "cells"
    others = [view.ask("project", item["layer"], 0) for item in view.ask("shown")]
    found = [view.ask("at", spot["x"], spot["y"]) for spot in others if spot]
    assert {hit["layer"] for hit in found if hit} == {"attention.weights"}, "nothing else is drawn"
    assert "<b>house</b>" in view.page.locator(".network-tokens").inner_text()
    view.page.mouse.move(*view.spot("attention.weights", 4 * 1 + 2))
    tip = view.page.locator(".network-tip")
    wait_until(lambda: tip.count() and "sun → <b>house</b>" in tip.inner_text(), "what looks where", page=view.page)
    picture = view.page.locator(".tensor-picture canvas")
    picture.click(position={"x": 10, "y": 10})
    margins = view.page.locator(".token-margins .row")
    wait_until(lambda: margins.all_inner_texts() == NAMES, "names beside one head", page=view.page)
    _selected_turned_and_left(view)


def _selected_turned_and_left(view: View) -> None:
    """Upright heads answer as other slabs do: a click, arrows, a drag, other forms, the way out."""
    panel, stage = view.page.locator(".network-unit"), view.page.locator(".network-stage")
    view.click("attention.weights", 16 + 4 * 1 + 2)
    wait_until(lambda: "[1, 1, 2]" in panel.inner_text(), "a cell of the second head", page=view.page)
    for key, index in (("ArrowDown", "[1, 2, 2]"), ("ArrowLeft", "[1, 2, 1]")):
        stage.press(key)
        wait_until(lambda index=index: index in panel.inner_text(), index, page=view.page)
    left, top = view.spot("attention.weights", 16)
    view.page.mouse.move(left, top)
    view.page.mouse.down()
    view.page.mouse.move(left + 80, top + 30, steps=3)
    view.page.mouse.up()
    wait_until(lambda: abs(view.ask("pose")["azimuth"]) > 0.1, "a turn", page=view.page)
    assert view.ask("tokens"), "names turn along"
    view.page.keyboard.press("r")
    wait_until(lambda: view.ask("pose")["azimuth"] == 0, "face-on again", page=view.page)
    for mode, form in (("Bars", "bars"), ("Auto", "cells")):
        view.page.get_by_role("radio", name=mode).click()
        wait_until(lambda form=form: view.ask("form", "attention.weights") == form, mode, page=view.page)
    for _ in range(2):
        stage.press("Escape")  # of the selection, then of the module
    wait_until(lambda: abs(view.ask("pose")["azimuth"]) > 0.1, "the way out", page=view.page)


def test_slabs_are_coloured_by_the_same_choice_as_the_boxes_of_the_graph(view: View) -> None:
    by = view.page.locator("#network-colour-by")
    assert by.locator("option:disabled").all_text_contents() == [
        "gradient norm", "update size", "NaN", "alerts", "difference",
    ]  # fmt: skip
    by.select_option("flops")
    wait_until(lambda: (view.ask("tints") or {}).get("patches", {}).get("fill"), "its colour", page=view.page)
    tints = view.ask("tints")
    assert tints["Input"] == {"fill": "", "text": ""} and tints["patches"]["text"].endswith("k")
    assert "floating point operations" in view.page.locator(".network-legend").inner_text()
    fill = [int(tints["patches"]["fill"][place : place + 2], 16) for place in (1, 3, 5)]

    def is_filled() -> bool:
        return all(abs(seen - meant) < 16 for seen, meant in zip(view.colour("patches", 3), fill))

    wait_until(is_filled, "the slab in it", page=view.page)
    view.page.get_by_role("tab", name="Graph").click()
    choice = view.page.locator(".graph-host .toolbar select").first
    wait_until(lambda: choice.input_value() == "flops", "the same choice in the graph", page=view.page)
    choice.select_option("kind")
    view.page.get_by_role("tab", name="Network").click()
    wait_until(lambda: view.ask("tints") is None and by.input_value() == "kind", "values again", page=view.page)
