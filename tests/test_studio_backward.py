"""The Backward tab: a pass of `torcheer.autograd` step by step, live and in a report; its names are text."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import _awake, watch
from playwright.sync_api import expect
from seams import PassSource
from studio_socket import Page
from torch import nn
from waiting import WAIT_SECS, wait_until

import torcheer as tl
import torcheer.autograd as autograd
from torcheer.errors import NotTraced

READY = "#torcheer[data-ready=true]"
HOSTILE = "<img src=x onerror=window·hacked=1>"


def explained() -> Any:
    """A value that is used twice, and a module whose name is markup."""
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module(HOSTILE, nn.Linear(3, 2))
    model.add_module("last", nn.Tanh())
    a = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    with autograd.record():
        b = a + a
        loss = (model(b.exp() * b.sin()) ** 2).sum()
        return autograd.explain(loss)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("passes") / "loss"
    explained().history.save(folder)
    return folder


def test_a_page_is_told_of_the_steps_and_gets_them_when_it_asks(saved: Path) -> None:
    source = PassSource(saved)
    with tl.show(saved, browser=False, block=False) as viewer, Page(viewer.url) as page:
        told = next(message for message in page.heard if message["kind"] == "backward_came")
        assert told["steps"] == source.backward_steps == 2 * 8 + 3 and told["loss"] == "loss"
        assert zlib.decompress(page.ask_bytes("ask_backward", 3)).decode() == source.backward_text()


def test_a_pass_without_steps_says_what_shows_them(tmp_path: Path) -> None:
    tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2)).save(tmp_path / "pass")
    with tl.show(tmp_path / "pass", browser=False, block=False) as viewer, Page(viewer.url) as page:
        assert "tl.show(loss)" in page.ask("ask_backward", 4)


def test_a_tensor_that_nothing_recorded_cannot_be_shown() -> None:
    with pytest.raises(NotTraced, match=r"autograd\.record"):
        tl.show(torch.ones(3), browser=False, block=False)


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_at(browser: tuple[Any, Any]) -> Iterator[Any]:
    """`open_at(address)`: a page whose pass is drawn; none may complain."""
    loop, chromium = browser
    complaints = list[list[str]]()

    def open_address(address: str, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        context.set_default_timeout(WAIT_SECS * 1000)
        complaints.append(watch(context))
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(f".backward-graph {READY}")
        return page

    with _awake(loop):
        yield open_address
    said = [complaint for each in complaints for complaint in each if "request: http://127.0.0.1" not in complaint]
    assert said == [], said


@pytest.fixture(scope="module")
def page(saved: Path, open_at: Any) -> Iterator[Any]:
    """One page for all tests: each begins by choosing its step."""
    with tl.show(saved, browser=False, block=False) as viewer:
        page = open_at(viewer.url)
        yield page
        page.context.close()


def go(page: Any, step: int) -> Any:
    """Move the slider; the panel that comes."""
    page.locator("#backward-slider").fill(str(step))
    return page.locator(".backward-panel")


def test_a_pass_opens_on_its_first_step_and_keys_walk_through_it(page: Any) -> None:
    assert page.locator("#tab-backward").get_attribute("aria-selected") == "true"
    panel = go(page, 0)
    expect(panel.locator("h2")).to_have_text("add")
    page.locator(".backward-panel h2").click()  # away from the slider, which has its own keys
    for key, text in (
        ("ArrowRight", "forward 2 of 8"),
        ("b", "backward 7 of 8"),
        ("b", "forward 2 of 8"),
        ("End", "gradients 3 of 3"),
    ):
        page.keyboard.press(key)
        expect(page.locator(".backward-bar .when")).to_have_text(text)
    for name, text in (
        ("First step", "forward 1 of 8"),
        ("1 step on", "forward 2 of 8"),
        ("Last step", "gradients 3 of 3"),
        ("1 step back", "gradients 2 of 3"),
    ):
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".backward-bar .when")).to_have_text(text)
    page.locator(".backward-panel h2").click()
    page.keyboard.press("Home")
    page.get_by_role("button", name="backward", exact=True).click()
    expect(page.locator(".backward-bar .when")).to_have_text("backward 1 of 8")


def test_a_reload_comes_back_to_the_step(page: Any) -> None:
    go(page, 5)
    expect(page.locator(".backward-bar .when")).to_have_text("forward 6 of 8")
    page.reload()
    page.wait_for_selector(f".backward-graph {READY}")
    expect(page.locator(".backward-bar .when")).to_have_text("forward 6 of 8")


def test_where_gradients_meet_the_contributions_are_named_and_added(page: Any) -> None:
    panel = go(page, 15)
    expect(panel.locator("h2")).to_have_text("add")
    expect(panel).to_contain_text("2 gradients meet here")
    rows = panel.locator(".backward-sum > .backward-row")
    numbers = [[float(cell) for cell in row.locator("td").all_inner_texts()] for row in rows.all()]
    assert [row.locator("button").inner_text() for row in rows.all()[:2]] == ["sin", "exp"]
    assert [a + b for a, b in zip(*numbers[:2])] == pytest.approx(numbers[2], rel=1e-2)
    rows.first.locator("button").click()
    expect(page.locator(".backward-panel h2")).to_have_text("sin")


def test_a_rule_shows_its_formula_with_numbers_why_what_it_needs_and_its_check(page: Any) -> None:
    panel = go(page, 13)
    expect(panel.locator(".backward-symbols")).to_have_text("x̄ = ȳ ⊙ cos x")
    assert panel.locator(".backward-substituted table").count() == 3
    expect(panel).to_contain_text("The slope of the sine is the cosine.")
    expect(panel).to_contain_text("It needs add, kept from the forward pass.")
    expect(panel.locator(".backward-good")).to_have_text("✓ agrees")
    assert panel.locator(".backward-check-rows tbody tr").count() == 3


def test_the_graph_and_the_steps_show_the_same(page: Any) -> None:
    go(page, 13)
    ring = page.locator(".backward-graph .ring.chosen")
    expect(ring).to_have_count(1)
    before = ring.bounding_box()
    go(page, 2)
    # drawn a frame after the step that the panel shows; another box than its rule's
    assert wait_until(lambda: ring.bounding_box() not in (None, before))
    box = ring.bounding_box()
    go(page, 0)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".backward-bar .when")).to_have_text("forward 3 of 8")


def test_names_are_text(page: Any) -> None:
    panel = go(page, 18)
    expect(panel.locator("h2")).to_contain_text(HOSTILE)
    assert page.locator(".backward-tab img").count() == 0 and page.evaluate("() => window.hacked") is None


@pytest.mark.parametrize("width", [1024, 390])
def test_nothing_is_wider_than_the_window(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    go(page, 11)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    panel = page.locator(".backward-panel").bounding_box()
    assert panel["width"] > 280 and panel["x"] + panel["width"] <= width
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_report_walks_through_a_pass_offline(saved: Path, tmp_path: Path, open_at: Any) -> None:
    tl.report(saved, tmp_path / "loss.html")
    page = open_at((tmp_path / "loss.html").as_uri() + "#backward", offline=True)
    expect(go(page, 15)).to_contain_text("2 gradients meet here")
    page.context.close()
