"""The interactive page in a real browser: what it shows, and that it is what Python draws."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_trace import FakeTrace
from fast_cases import fast_first
from seams import METRICS, Box, BoxPlan, Scene, compose, draw_face, number, title_of

from torcheer.drawing import Drawing, draw_history

Rects = dict[str, tuple[str, str]]  # path -> place of a box, as it is written
SVG = "{http://www.w3.org/2000/svg}"


# Models to draw, without torch


def network() -> FakeTrace:
    """input → three identical blocks → a chain of reshapes → a head of two branches → output."""
    trace = FakeTrace("Network")
    x = trace.input(shape=(1, 8))
    for name in ("body", "head"):
        trace.module(name, "Sequential")
    with trace.inside("body"):
        for block in range(3):
            trace.module(f"body.{block}", "Block")
            with trace.inside(f"body.{block}"):
                y = trace.linear(f"body.{block}.fc", x, shape=(1, 8))
                x = trace.add("add", x, trace.add("relu", y, shape=(1, 8), line=7), shape=(1, 8), line=8)
    for step, name in enumerate(("view", "transpose", "contiguous")):
        x = trace.add(name, x, shape=(1, 2, 4)[: step + 2], line=20 + step)
    with trace.inside("head"):
        one, two = (trace.linear(f"head.{side}", x, shape=(1, 4)) for side in ("left", "right"))
        x = trace.add("cat", one, two, shape=(1, 9), elapsed_secs=0.25, line=30)
    trace.output(x)
    return trace


def long_network(operations: int) -> FakeTrace:
    """Stages of blocks of layers, no two stages alike."""
    trace = FakeTrace("Long")
    x, stage = trace.input(shape=(1, 8)), 0
    while len(trace.list) < operations:
        trace.module(f"stage{stage}", "Stage")
        with trace.inside(f"stage{stage}"):
            for block in range(20):
                name = f"stage{stage}.block{block}"
                trace.module(name, "Block")
                with trace.inside(name):
                    for layer in range(2 + (stage + block) % 7):
                        x = trace.add("relu", trace.linear(f"{name}.fc{layer}", x), line=40)
        stage += 1
    trace.output(x)
    return trace


# What Python gives for any choice of open boxes


def rects(scene: Scene, opened: set[str], *, down: bool, limit: float) -> tuple[Rects, Rects]:
    """Places of folded boxes and items, and sizes of open boxes."""
    leaves: Rects = {}
    frames: Rects = {}

    def show(plan: BoxPlan, name: str, path: str) -> tuple[Box, Callable[[float, float], None]]:
        """The size of an open box, and how to put down what is in it."""
        one = f"{path}*" in opened
        shown, prefix = plan, f"{path}/" if path else ""
        if one:
            last = plan.parts[-1]
            assert isinstance(last, BoxPlan)
            shown, prefix = last, f"{path}/{len(plan.parts) - 1}/"
        boxes, puts = [], []
        for place, (part_name, part) in enumerate(zip(shown.names, shown.parts)):
            inner = f"{prefix}{place}"
            if isinstance(part, BoxPlan) and {inner, f"{inner}*"} & opened:
                box, put = show(part, part_name, inner)
            else:
                box, put = draw_face(part_name, part.face if isinstance(part, BoxPlan) else part, down).box, leaf(inner)
            boxes.append(box)
            puts.append(put)
        title = title_of(name, plan, down)
        made = compose(shown.layout, boxes, title=title, down=down, limit=limit, metrics=METRICS)

        def put_all(x: float, y: float) -> None:
            frames[path] = (
                f"translate({number(x)},{number(y)})",
                f"{number(made.box.width)}×{number(made.box.height)}",
            )
            for put, (left, top) in zip(puts, made.places):
                put(x + left, y + top)

        return made.box, put_all

    def leaf(path: str) -> Callable[[float, float], None]:
        def put(x: float, y: float) -> None:
            leaves[path] = (f"translate({number(x)},{number(y)})", "")

        return put

    show(scene.root, "", "")[1](0.0, 0.0)
    del frames[""]
    return leaves, frames


# The page


class Page:
    """A drawing's page, with words for what a reader does."""

    def __init__(self, page: Any, drawing: Drawing, folder: Path) -> None:
        self.page, self.drawing = page, drawing
        self.file = folder / "drawing.html"
        drawing.save(self.file)
        page.emulate_media(reduced_motion="reduce")
        page.goto(self.file.as_uri())
        page.wait_for_selector("[data-ready]")

    def shown(self) -> tuple[Rects, Rects]:
        """What is drawn, all of it: what is far from the window is not in the document."""
        self.page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }))")
        script = """() => ["leaf", "open"].map((kind) => Object.fromEntries(
            [...document.querySelectorAll(`.drawing .${kind}`)].map((box) => {
                const frame = box.querySelector(":scope > .frame");
                const size = frame ? `${frame.getAttribute("width")}×${frame.getAttribute("height")}` : "";
                return [box.dataset.path, [box.getAttribute("transform"), size]];
            })))"""
        leaves, frames = self.page.evaluate(script)
        return {k: tuple(v) for k, v in leaves.items()}, {k: tuple(v) for k, v in frames.items()}

    def expected(self, opened: set[str], drawing: Drawing | None = None) -> tuple[Rects, Rects]:
        picture = (drawing or self.drawing).picture
        return rects(picture.scene, opened, down=picture.down, limit=picture.limit)

    def box(self, path: str) -> Any:
        return self.page.locator(f'[data-path="{path}"]')

    def click(self, path: str, text: str = "") -> None:
        """Click a box at its top left, or on some of its words."""
        where = self.box(path).locator(f"text={text}").first.bounding_box() if text else self.box(path).bounding_box()
        self.page.mouse.click(where["x"] + (3 if text else 14), where["y"] + (3 if text else 9))
        self.page.mouse.move(1, 1)

    def point(self, path: str) -> None:
        where = self.box(path).bounding_box()
        self.page.mouse.move(where["x"] + where["width"] / 3, where["y"] + where["height"] / 2)

    def details(self) -> str:
        return str(self.page.inner_text(".details"))


@pytest.fixture
def opened(browser_page: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open a page of a fake history, drawn with the given options."""
    yield lambda trace, **options: Page(browser_page, draw_history(trace.history(), **options), tmp_path)


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    """The small network, folded to one level."""
    return opened(network(), depth=1, direction="down")


def test_the_page_opens_as_python_folded_it(opened: Callable[..., Page]) -> None:
    for options in ({}, {"depth": 1}, {"depth": 2, "direction": "right"}, {"depth": 3, "direction": "down"}):
        page = opened(network(), **options)
        leaves, _ = page.shown()
        assert len(leaves) == page.drawing.boxes
        assert page.page.title() == page.page.inner_text("h1") == "Network"


def test_boxes_stand_where_python_puts_them_whatever_is_open(page: Page) -> None:
    for path, opened in [
        ("1", {"1"}),  # body
        ("1/0", {"1", "1/0*"}),  # the stack in it, one block shown
        ("3", {"1", "1/0*", "3"}),  # head
        ("2", {"1", "1/0*", "3", "2"}),  # the pill of reshapes
    ]:
        page.click(path)
        assert page.shown() == page.expected(opened)
    page.click("1/0", "×3")
    everything = {"1", "1/0", "1/0/2", "3", "2"}
    assert page.shown() == page.expected(everything)
    page.page.click("text=Right")
    assert len(page.shown()[0]) == len(page.expected(everything)[0])


def test_folding_goes_back_to_the_first_state(page: Page) -> None:
    first = page.shown()
    page.click("1")
    page.click("1/0")
    page.click("1/0", "×3")
    page.click("1/0", "×3")  # one again
    assert page.shown() == page.expected({"1", "1/0*"})
    page.click("1", "body")
    assert page.shown() == first


def test_a_double_click_opens_a_box_and_does_not_fold_it_again(page: Page) -> None:
    where = page.box("1").bounding_box()
    page.page.mouse.dblclick(where["x"] + 14, where["y"] + 9)
    assert page.shown() == page.expected({"1"})


def test_the_clicked_box_stays_under_the_pointer(page: Page) -> None:
    before = page.box("3").bounding_box()
    page.click("3")
    after = page.box("3").bounding_box()
    assert (after["x"], after["y"]) == pytest.approx((before["x"], before["y"]), abs=1.5)


@pytest.mark.parametrize("way", fast_first(["down", "right"]))
def test_levels_are_those_of_draw(opened: Callable[..., Page], way: str) -> None:
    page = opened(network(), depth=1, direction=way)
    for depth in (2, 3):
        page.page.click('[title="One level more"]')
        wanted = draw_history(network().history(), depth=depth, direction=way)
        names = {2: {"1", "3"}, 3: {"1", "1/0*", "3"}}[depth]
        assert page.shown() == page.expected(names, wanted)
    page.page.click("text=Fold all")
    assert page.shown() == page.expected(set(), draw_history(network().history(), depth=1, direction=way))


def test_unfolding_all_shows_every_operation(page: Page) -> None:
    page.page.click("text=Unfold all")
    assert len(page.shown()[0]) == len(page.drawing.picture.scene.items)


def test_pointing_at_a_box_tells_about_it_and_lights_its_tensors(page: Page) -> None:
    page.click("3")
    page.point("3/2")
    assert "cat" in page.details() and "torch.cat" in page.details() and "model.py:30" in page.details()
    assert page.page.locator(".over .ray").count() >= 2
    assert "left" in page.details() and "right" in page.details()  # what it reads from
    page.page.mouse.move(1, 1)
    assert "torch.cat" not in page.details()


def test_a_click_selects_and_the_breadcrumb_leads_back(page: Page) -> None:
    page.click("3")
    page.click("3/2")
    assert "torch.cat" in page.details()
    assert re.sub(r"\s+", " ", page.page.inner_text(".crumbs")) == "Network head cat"
    page.page.click(".crumbs >> text=head")
    assert "Sequential" in page.details()


@pytest.mark.parametrize("query", fast_first(["body.1.fc", "LINEAR", "torch.linear", "linear_2", "1x8"]))
def test_search_finds_hidden_operations_and_opens_what_hides_them(page: Page, query: str) -> None:
    page.page.keyboard.press("/")
    page.page.keyboard.type(query)
    page.page.wait_for_selector(".results li")
    for _ in range(page.page.locator(".results li").count()):
        page.page.keyboard.press("Enter")
        if page.box("1/0/1/0").count() and page.page.locator(".crumbs [aria-current]").inner_text() == "fc":
            break
    assert page.box("1/0/1/0").count() or page.box("1/0/2/0").count()
    assert page.page.locator(".over .ring.chosen").count() == 1
    page.page.keyboard.press("Escape")
    assert page.page.locator(".results li").count() == 0


def test_a_search_without_hits_says_so(page: Page) -> None:
    page.page.fill("input[type=search]", "no such thing")
    page.page.wait_for_selector("text=Nothing found")
    assert page.page.locator(".results li").count() == 0


def test_the_keyboard_goes_through_boxes_and_opens_them(page: Page) -> None:
    keyboard = page.page.keyboard
    page.page.focus(".screen")
    keyboard.press("Tab")
    keyboard.press("Tab")
    assert page.page.get_attribute(".screen", "aria-activedescendant") == "box-1"
    assert page.box("1").get_attribute("aria-expanded") == "false"
    assert page.box("1").get_attribute("aria-label") == "body, Sequential, 9 ops · 36 params, folded"
    keyboard.press("Enter")
    assert page.shown() == page.expected({"1"})
    keyboard.press("Enter")
    assert page.shown() == page.expected(set())
    keyboard.press("ArrowRight")  # the drawing is wrapped: the head stands beside the body
    assert page.page.get_attribute(".screen", "aria-activedescendant") == "box-3"
    keyboard.press("Escape")
    assert page.page.get_attribute(".screen", "aria-activedescendant") is None


def test_escape_and_tab_lead_out_of_the_drawing(page: Page) -> None:
    page.page.focus(".screen")
    for key in ("Tab", "Escape", "Tab"):
        page.page.keyboard.press(key)
    assert page.page.evaluate("document.activeElement.closest('aside, footer') !== null")


def test_boxes_with_the_same_weights_light_up_together(opened: Callable[..., Page]) -> None:
    trace = FakeTrace("Tied")
    x = trace.input()
    for _ in range(3):
        x = trace.add("tanh", trace.linear("fc", x), line=9)
    trace.output(trace.linear("other", x))
    page = opened(trace)
    page.point("1")
    assert page.page.locator(".over .ring.shared").count() == 3
    assert "marked A" in page.details()


def test_zoom_and_fit(page: Page) -> None:
    scale = page.page.locator(".scale")
    first = scale.inner_text()
    page.page.keyboard.press("+")
    assert scale.inner_text() != first
    page.page.keyboard.press("0")
    assert scale.inner_text() == first
    page.page.mouse.move(500, 400)
    page.page.mouse.wheel(0, -500)
    page.page.wait_for_selector(f'.scale:not(:text-is("{first}"))')


def test_colours_follow_a_number(page: Page) -> None:
    page.page.select_option(".toolbar select >> nth=0", "memory")
    assert "size of results" in page.page.inner_text(".legend")
    fill = page.box("1").locator("rect:not(.sheet)").first.evaluate("box => box.style.fill")
    assert fill == "rgb(254, 232, 56)"  # the most, the brightest
    page.page.select_option(".toolbar select >> nth=0", "kind")
    assert "size of results" not in page.page.inner_text(".legend")


def test_a_page_can_open_in_the_colours_of_a_number(opened: Callable[..., Page]) -> None:
    page = opened(network(), colour_by="time")
    assert "time:" in page.page.inner_text(".legend")


def test_it_is_dark_where_the_reader_is_or_wants_to(page: Page) -> None:
    def paper() -> str:
        return str(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    def card() -> str:
        return str(page.box("1").locator("rect").last.evaluate("box => getComputedStyle(box).fill"))

    light = paper(), card()
    page.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.page.wait_for_selector("html.dark")
    dark = paper(), card()
    assert light[0] == "rgb(255, 255, 255)" and dark[0] == "rgb(20, 23, 27)" and light[1] != dark[1]
    page.page.select_option(".toolbar select >> nth=1", "light")
    assert (paper(), card()) == light


def test_a_saved_svg_is_what_is_on_the_screen(page: Page) -> None:
    page.click("1")
    page.click("1/0")
    with page.page.expect_download() as download:
        page.page.click("text=Save SVG")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    leaves, frames = page.shown()
    for kind, wanted in (("leaf", leaves), ("open", frames)):
        saved = [one for one in root.iter(f"{SVG}g") if one.get("class") == kind]
        assert sorted(one.get("transform", "") for one in saved) == sorted(place for place, _ in wanted.values())
    assert "@font-face" in text and "Network" in text and "normalisation" not in text
    assert download.value.suggested_filename == "Network.svg"


@pytest.mark.slow
def test_a_saved_png_is_a_picture(page: Page) -> None:
    with page.page.expect_download() as download:
        page.page.click("text=Save PNG")
    assert Path(download.value.path()).read_bytes()[:4] == b"\x89PNG"


def test_nothing_covers_the_drawing(page: Page) -> None:
    for width, height in ((1280, 800), (700, 800), (360, 740)):
        page.page.set_viewport_size({"width": width, "height": height})
        script = """() => ["header", "main", "aside", "footer"].map((name) => {
            const { left, top, right, bottom } = document.querySelector(name).getBoundingClientRect();
            return [left, top, right, bottom];
        })"""
        boxes = page.page.evaluate(script)
        for number_, (left, top, right, bottom) in enumerate(boxes):
            assert 0 <= left < right <= width and 0 <= top < bottom <= height
            for other in boxes[number_ + 1 :]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_history_in_which_nothing_ran_opens_and_says_so(opened: Callable[..., Page]) -> None:
    page = opened(FakeTrace("Nothing"))
    assert "nothing to draw" in page.details()


def test_what_a_model_is_named_stays_text(opened: Callable[..., Page]) -> None:
    trace = FakeTrace("</title><script>alert(0)</script>")
    x = trace.input()
    for name in ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "&lt;b&gt;"):
        trace.module(name, name)
        with trace.inside(name):
            x = trace.add("relu", trace.linear(f"{name}.<i>fc</i>", x), line=1)
    trace.output(x)
    page = opened(trace)
    dialogs: list[Any] = []
    page.page.on("dialog", lambda dialog: dialogs.append(dialog))
    page.page.click("text=Unfold all")
    for path in page.shown()[0]:
        page.point(path)
    page.page.fill("input[type=search]", "<i>fc")
    page.page.wait_for_selector(".results li")
    assert page.page.locator("#torcheer img, #torcheer i, #torcheer script, .drawing b").count() == 0
    assert dialogs == []


@pytest.mark.slow
@pytest.mark.timing
def test_a_long_history_opens_and_unfolds_without_a_freeze(opened: Callable[..., Page]) -> None:
    trace = long_network(20_000)
    start = time.perf_counter()
    page = opened(trace, depth=1)
    unfolded = time.perf_counter()
    assert len(page.shown()[0]) == page.drawing.boxes
    page.page.evaluate("document.querySelector('.screen').focus()")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector('.open[data-path="1"]')
    assert time.perf_counter() - unfolded < 5 and unfolded - start < 30
    page.page.click("text=Unfold all")
    assert "boxes" in page.page.inner_text(".said")
    assert page.page.locator(".open").count() == 1
