"""The Graph tab: the drawing is a part of the page, for passes, live and stored runs; one selection with all tabs."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from models import SkipBlock
from playwright.sync_api import expect
from seams import LogSource
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_scene import View
from studio_socket import Page
from studio_stage import MARKUP, Stage, stage
from torch import Tensor, nn
from waiting import wait_until

import torcheer as tl

HOSTILE = "<img src=x onerror=window·hacked=1>"
READY = "#torcheer[data-ready=true]"


class Blocks(nn.Module):
    """Three equal blocks between two layers, and a name that is markup."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.h, self.head = nn.Linear(4, 8), nn.ModuleList(SkipBlock(8) for _ in range(3)), nn.Linear(8, 3)
        self.add_module(HOSTILE, nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.h:
            x = block(x)
        return self._modules[HOSTILE](torch.relu(self.head(x)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("passes") / "blocks"
    tl.log_forward_pass(Blocks(), torch.rand(2, 4)).save(folder)
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run that has ended: its network and statistics of its layers, no values."""
    folder, model = tmp_path_factory.mktemp("runs") / "run", Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with (
        tl.live(model, optimizer=optimizer, to=folder, browser=False) as view,
        tl.watch(model, to=folder, optimizer=optimizer, every=1),
    ):
        for step in range(4):
            loss = model(torch.rand(2, 4)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            view.log(loss=loss.item(), step=step)
    viewer = tl.show(folder, browser=False, block=False)
    yield viewer.url
    viewer.close()


@pytest.fixture(scope="module")
def shown(saved: Path) -> Iterator[str]:
    viewer = tl.show(saved, browser=False, block=False)
    yield viewer.url
    viewer.close()


def graph_of(page: Page) -> tuple[dict[str, Any], list[str], list[str]]:
    """The drawing that a page is sent: its data, the layer of each item, and the lines of its details."""
    data, layers = zlib.decompress(page.ask_bytes("ask_graph", 7)).decode().split("\n")
    details = zlib.decompress(page.ask_bytes("ask_graph", 8, part="details")).decode().split("\n")
    return json.loads(data), json.loads(layers), details


def test_a_recorded_pass_is_drawn_with_all_its_operations_and_says_their_layers(shown: str) -> None:
    with Page(shown) as page:
        data, layers, details = graph_of(page)
    assert "relu" in {leaf["kind"] for leaf in data["leaves"]} and len(details) == 1 + len(layers)
    assert layers[:2] == ["Input", "stem"] and layers.count("h.1.first") == 1 and "h.2" in layers and "" in layers


def test_a_live_run_is_drawn_from_its_network_and_a_name_is_text() -> None:
    with stage(Stage(paused=True, markup=True)) as (url, _), Page(url) as page:
        data, layers, _ = graph_of(page)
    assert layers[:6] == ["Input", "Conv", "Attention", "Hidden1", "Hidden2", "Output"]
    written = " ".join(svg for leaf in data["leaves"] for svg in leaf["svg"])
    assert MARKUP not in written and "&lt;img src=x" in written


def test_without_a_network_there_is_nothing_to_draw() -> None:
    empty = Stage(paused=True)
    empty.net = None
    with stage(empty) as (url, _), Page(url) as page:
        assert "no network yet" in page.problem("ask_graph", question=1)


def test_a_graph_that_cannot_be_drawn_is_said_so(tmp_path: Path) -> None:
    part = tl.log_forward_pass(Blocks(), torch.rand(2, 4), layers_to_save=["stem"], structure=False)
    part.save(tmp_path / "part")
    viewer = tl.show(tmp_path / "part", browser=False, block=False)
    with Page(viewer.url) as page:
        assert "structure=True" in page.problem("ask_graph", question=1)
        assert "structure=True" in page.problem("ask_graph", question=2, part="details")
    viewer.close()


def test_what_a_run_left_behind_has_the_graph_of_its_network(tmp_path: Path) -> None:
    model = Blocks()
    with tl.live(model, to=tmp_path / "run", browser=False) as view:
        for step in range(2):
            view.log(loss=model(torch.rand(2, 4)).sum().item(), step=step)
    source = LogSource(tmp_path / "run")
    assert source.net is not None
    data, layers = source.graph(source.net).drawing.split("\n")
    assert json.loads(layers)[:4] == ["Input", "stem", "h.0.first", "h.0.second"]
    assert 3 in {plan["times"] for plan in json.loads(data)["plans"]}, "equal blocks are one stack"


# -- in a browser ------------------------------------------------------------------------------------------------------


def chosen(page: Any) -> Any:
    """The title or text of the box that is selected in the graph."""
    return page.evaluate(
        """() => {
          const screen = document.querySelector('.graph-host').shadowRoot.querySelector('.screen');
          const id = screen.getAttribute('aria-activedescendant') ?? 'none';
          return screen.querySelector('#' + CSS.escape(id))?.textContent;
        }"""
    )


def until_selected(page: Any, layer: str) -> None:
    """Wait until the page's address names the layer: that is everybody's selection."""
    wait_until(lambda: f"layer={layer}" in re.split("[#&]", page.url), f"{layer}, not {page.url}", page=page)


def is_chosen(page: Any, word: str) -> Any:
    return wait_until(lambda: word in (chosen(page) or ""), f"{word}, not {chosen(page)}", page=page)


def test_the_graph_is_part_of_the_page_can_be_moved_and_follows_the_dark(open_page: Pages, shown: str) -> None:
    page = open_page(shown)
    page.get_by_role("tab", name="Graph").click()
    page.locator(READY).wait_for()
    assert page.locator("iframe").count() == 0
    words = page.locator("svg.drawing").text_content()
    assert all(word in words for word in ("SkipBlock", "×3", "relu", "8→3", "onerror=window"))
    assert page.evaluate("window.hacked") is None

    world = page.locator("svg.drawing > g").first
    first = world.get_attribute("transform")
    box = wait_until(page.locator(".screen").bounding_box, "the drawing", page=page)
    middle = (box["x"] + 8, box["y"] + box["height"] - 8)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 40, middle[1] - 30, steps=3)
    page.mouse.up()
    moved = wait_until(
        lambda: world.get_attribute("transform") != first and world.get_attribute("transform"), "the drag"
    )
    page.mouse.wheel(0, -300)
    nearer = wait_until(
        lambda: world.get_attribute("transform") != moved and world.get_attribute("transform"), "the wheel"
    )
    scale = [float(re.search(r"scale\(([\d.]+)\)", text)[1]) for text in (moved, nearer)]  # type: ignore[index]
    assert scale[1] > scale[0]

    assert pixels(page.locator(".screen").screenshot()).mean() > 200
    page.keyboard.press("d")
    wait_until(lambda: pixels(page.locator(".screen").screenshot()).mean() < 70, "a dark drawing", page=page)
    page.get_by_role("tab", name="Network").click()
    page.keyboard.press("4")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    assert world.get_attribute("transform") == nearer, "it was not drawn again"
    page.locator(".screen").press("/")
    page.keyboard.type("dd")
    assert page.get_by_placeholder("Search name").input_value() == "dd", "typed, not taken for a key of the page"


@pytest.mark.slow  # the same toolbar on a page of its own: test_drawing_html_page.py
def test_every_button_of_the_drawing_works_in_the_studio(open_page: Pages, shown: str) -> None:
    page = open_page(shown, tab="graph")
    page.locator(READY).wait_for()
    boxes, world = page.locator("svg.drawing [id^='box-']"), page.locator("svg.drawing > g").first
    bar = page.get_by_role("toolbar", name="Drawing")

    def press(name: str, changes: Callable[[], Any]) -> None:
        before = changes()
        bar.get_by_role("button", name=name, exact=True).click()
        wait_until(lambda: changes() != before, name, page=page)

    for name in ("Fold all", "+", "−", "Unfold all", "Fold all"):
        press(name, boxes.count)
    for name in ("Right", "Down"):
        press(name, lambda: [boxes.first.bounding_box(), boxes.last.bounding_box()])
        expect(bar.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("-")
    press("Fit", lambda: world.get_attribute("transform"))
    page.keyboard.press("-")
    bar.locator("button.scale").click()
    expect(bar.locator("button.scale")).to_have_text("100 %")
    for ending in ("SVG", "PNG"):
        with page.expect_download() as download:
            bar.get_by_role("button", name=f"Save {ending}").click()
        assert download.value.suggested_filename.endswith(ending.lower())
    page.locator("h1").click()
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Search name")).to_be_focused()
    page.keyboard.type("head")
    page.locator(".graph-host .results button, .graph-host [role=option]").first.click()
    until_selected(page, "head")
    near = world.get_attribute("transform")
    page.locator(".crumbs button").first.click()
    wait_until(lambda: world.get_attribute("transform") != near, "all of it", page=page)


def test_one_selection_for_graph_and_3d_which_a_reload_keeps(open_page: Pages, shown: str) -> None:
    page = open_page(shown, tab="graph")
    view = View(page)
    page.locator(READY).wait_for()
    page.locator("svg.drawing [id^='box-']", has_text="head").first.click()
    until_selected(page, "head")
    page.get_by_placeholder("Search name").fill("h.1.second")
    page.keyboard.press("Enter")
    until_selected(page, "h.1.second")
    page.get_by_role("tab", name="Network").click()
    wait_until(lambda: view.ask("project", "h.1.second", 0), "the layer, unfolded", page=page)
    spot, size = view.ask("project", "h.1.second", 0), view.box
    assert 0 < spot["x"] < size["width"] and 0 < spot["y"] < size["height"], "in view"

    page.keyboard.press("/")
    page.keyboard.type("h.2.first")
    page.keyboard.press("Enter")
    page.keyboard.press("4")
    is_chosen(page, "first")
    assert page.locator(".crumbs [aria-current]").text_content() == "first"
    page.reload()
    page.locator(READY).wait_for()
    is_chosen(page, "first")
    until_selected(page, "h.2.first")
    _each_way_to_select_nothing(page)


def _each_way_to_select_nothing(page: Any) -> None:
    ways = {
        "Graph": [
            lambda: page.keyboard.press("Escape"),
            page.locator(".crumbs button").first.click,
            lambda: page.locator(".screen").press("Escape"),
        ],
        "Network": [page.locator(".network-way li button").first.click],
    }
    for tab, presses in ways.items():
        for press in presses:
            page.get_by_role("tab", name=tab).click()
            press()
            page.get_by_role("tab", name="Graph").click()
            wait_until(lambda: chosen(page) is None and "layer=" not in page.url, "nothing selected", page=page)
            page.get_by_placeholder("Search name").fill("h.2.first")
            page.keyboard.press("Enter")
            until_selected(page, "h.2.first")
            is_chosen(page, "first")


def test_what_is_wrong_is_marked_in_the_graph_and_an_alert_leads_to_its_layer_and_step(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=6)
    source.alert("Hidden1 has died", layer="Hidden1", rule="dead_relu")
    source._step -= 3
    source.alert("an earlier one", layer="Output")
    page = open_page(url, tab="graph")
    page.locator(READY).wait_for()
    expect(page.locator("svg .fault")).to_have_text(["dead", "1 alert"])
    options = page.locator(".graph-host").get_by_label("Colour by").locator("option:not([disabled])")
    assert options.all_inner_texts() == ["kind", "alerts"]
    page.locator(".graph-host").get_by_label("Colour by").select_option("alert")
    expect(page.locator(".legend")).to_contain_text("alerts: ")

    page.get_by_role("button", name=re.compile("Alerts")).click()
    page.locator(".alert-list").get_by_role("button", name="Output").click()
    until_selected(page, "Output")
    is_chosen(page, "Output")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Network").click()
    step = source.alerts[-1].step
    expect(page.locator(".network-time")).to_contain_text(re.compile(rf"step {step}\b"))
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("svg .fault")).to_have_text(["1 alert"])  # the later one has not come yet at that step


def looks_of(page: Any) -> list[dict[str, Any]]:
    """The looks that a page sends from now on, as they come."""
    looks: list[dict[str, Any]] = []

    def sent(text: Any) -> None:
        if isinstance(text, str) and '"look"' in text and (message := json.loads(text))["kind"] == "look":
            looks.append(message)

    page.on("websocket", lambda socket: socket.on("framesent", sent))
    page.reload()
    page.locator(READY).wait_for()
    return looks


def test_boxes_show_small_pictures_of_live_values_and_only_those_on_the_screen_are_asked_for(open_page: Pages) -> None:
    url, _ = open_page.stage()
    page = open_page(url, tab="graph")
    looks = looks_of(page)
    pictures = page.locator(".pictures image")
    expect(pictures).to_have_count(6)
    first = pictures.first.get_attribute("href")
    wait_until(lambda: pictures.first.get_attribute("href") != first, "a later state", page=page)
    asked = next(look for look in looks if look.get("layers"))
    assert sorted(asked["layers"]) == ["Attention", "Conv", "Hidden1", "Hidden2", "Input", "Output"]
    assert asked["most_cells"] == 2048

    for _ in range(12):
        page.keyboard.press("+")
    few = wait_until(lambda: 0 < pictures.count() < 6 and pictures.count(), "only some boxes on the screen", page=page)
    wait_until(lambda: len(looks[-1].get("layers", ())) == few, f"a look at {few} layers, not {looks[-1]}", page=page)

    page.get_by_label("Pictures").select_option("none")
    expect(pictures).to_have_count(0)
    wait_until(lambda: looks[-1]["variable"] == "", "nothing is asked for", page=page)
    page.keyboard.press("f")
    page.get_by_label("Pictures").select_option("values")
    expect(pictures).to_have_count(6)
    page.get_by_role("tab", name="Plots").click()
    wait_until(lambda: looks[-1]["variable"] == "", "nothing is asked for", page=page)


def fills(page: Any) -> list[str]:
    """The colour of each box in the drawing."""
    return list(
        page.locator("svg.drawing .leaf > rect:not(.sheet):not(.badge)").evaluate_all(
            "boxes => boxes.map((box) => getComputedStyle(box).fill)"
        )
    )


def colour_by_each(page: Any, names: dict[str, str]) -> None:
    """Choose each way to colour: the legend says so, and boxes look different."""
    page.locator(READY).wait_for()
    choice, by_kind = page.locator(".graph-host").get_by_label("Colour by"), fills(page)
    for quantity, words in names.items():
        choice.locator(f"option[value={quantity}]:not([disabled])").wait_for(state="attached")
        choice.select_option(quantity)
        expect(page.locator(".legend")).to_contain_text(words)
        wait_until(lambda: fills(page) != by_kind, quantity, page=page)
    choice.select_option("kind")
    expect(page.locator(".legend")).to_contain_text("linear, embedding")
    wait_until(lambda: fills(page) == by_kind, "the colours of before", page=page)


def test_each_way_to_colour_a_pass_changes_boxes_and_has_a_legend(open_page: Pages, shown: str) -> None:
    colour_by_each(
        open_page(shown, tab="graph"),
        {
            "time": "time: ",
            "memory": "size of results: ",
            "flops": "floating point operations: ",
            "parameters": "parameters: ",
        },
    )


def test_gradients_of_a_pass_are_called_what_they_are_in_the_graph_and_in_3d(open_page: Pages, tmp_path: Path) -> None:
    history = tl.log_forward_pass(Blocks(), torch.rand(2, 4), save_gradients=True)
    history.backward(history[-1].tensor_contents.square().sum())
    history.save(tmp_path / "pass")
    with tl.show(tmp_path / "pass", browser=False, block=False) as viewer:
        page = open_page(viewer.url, tab="graph")
        colour_by_each(page, {"gradient": "mean |gradient|: "})
        page.get_by_role("tab", name="Network").click()
        page.locator("#network-colour-by").select_option("gradient")
        expect(page.locator(".network-legend b")).to_have_text("mean |gradient|")
        page.close()


def test_a_stored_run_has_lines_in_its_boxes_its_colours_and_statistics_over_time(
    open_page: Pages, watched: str
) -> None:
    page = open_page(watched, tab="graph")
    names = {"gradient_norm": "norm of the gradient: ", "update": "size of the update: ", "nan": "NaN: none"}
    colour_by_each(page, names)
    expect(page.locator(".pictures .spark").first).to_be_attached()
    assert page.locator(".pictures image").count() == 0
    page.get_by_placeholder("Search name").fill("head")
    page.keyboard.press("Enter")
    _statistics_over_time(page.get_by_role("region", name="Statistics over time"))


def _statistics_over_time(section: Any) -> None:
    """A logged table of a layer and a statistic are chosen; keys and pointer read its line, and its histogram."""
    line, told = section.get_by_role("slider"), section.locator(".tensor-series output")
    expect(line).to_have_attribute("aria-label", "mean over time")
    assert section.get_by_label("Logged value").locator("option:checked").inner_text() == "head · output"
    section.get_by_label("Logged value").select_option(label="head.weight · weight")
    section.get_by_label("Statistic", exact=True).select_option("std")
    expect(line).to_have_attribute("aria-label", "std over time")
    readings = []
    for key, place in (("End", 3), ("ArrowLeft", 2), ("Home", 0), ("ArrowRight", 1)):
        line.press(key)
        expect(line).to_have_attribute("aria-valuenow", str(place))
        readings.append(told.inner_text())
    assert len(set(readings)) == 4 and all(text.startswith("Step ") for text in readings)
    line.hover(position={"x": 1, "y": 9})
    expect(told).to_have_text(readings[2])
    section.get_by_label("Statistic", exact=True).select_option("histogram")
    expect(section.locator("canvas")).to_be_visible()


def test_saturated_exploding_and_vanishing_layers_are_marked_in_3d_and_graph(open_page: Pages) -> None:
    url, source = open_page.stage(paused=True, states=6)
    rules = {"Hidden1": "saturation", "Hidden2": "exploding_gradient", "Output": "vanishing_gradient"}
    for layer, rule in rules.items():
        source.alert(f"{rule} of {layer}", layer=layer, rule=rule)
    page, words = open_page(url, tab="network"), ["exploding", "saturated", "vanishing"]
    marks = page.locator(".network-label:not([hidden]) em")
    wait_until(lambda: sorted(marks.all_inner_texts()) == words, "marks of the slabs", page=page)
    page.get_by_role("tab", name="Graph").click()
    page.locator(READY).wait_for()
    wait_until(lambda: sorted(page.locator("svg .fault").all_text_contents()) == words, "marks of the boxes", page=page)


@pytest.fixture
def poisoned(tmp_path: Path) -> Iterator[str]:
    """A run that has ended, of two layers; in its last step the weights of the second are NaN."""
    model = nn.Sequential(OrderedDict(first=nn.Linear(4, 8), second=nn.Linear(8, 3)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with (
        tl.live(model, optimizer=optimizer, to=tmp_path / "run", browser=False),
        tl.watch(model, to=tmp_path / "run", optimizer=optimizer, every=1),
    ):
        for step in range(3):
            if step == 2:
                model.second.weight.data.fill_(math.nan)
            optimizer.zero_grad()
            model(torch.rand(2, 4)).square().sum().backward()
            optimizer.step()
    viewer = tl.show(tmp_path / "run", browser=False, block=False)
    yield viewer.url
    viewer.close()


def test_tables_and_plots_share_the_selection_and_mark_what_is_faulty(poisoned: str, open_page: Pages) -> None:
    page = open_page(poisoned, tab="tables")
    tables = page.get_by_role("radiogroup", name="Table")
    expect(tables.locator("label.faulty", has_text="second").first).to_be_visible()
    assert tables.locator("label.faulty", has_text="first").count() == 0
    tables.locator("label", has_text="first").first.click()
    until_selected(page, "first")
    page.get_by_role("tab", name="Graph").click()
    page.locator(READY).wait_for()
    is_chosen(page, "first")
    page.get_by_placeholder("Search name").fill("second")
    page.keyboard.press("Enter")
    until_selected(page, "second")
    for tab in ("Tables", "Plots"):
        page.get_by_role("tab", name=tab).click()
        expect(tables.locator("label.on.marked.faulty")).to_contain_text("second")
