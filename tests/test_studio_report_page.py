"""Reports opened from disk in a real browser, offline: they show everything, and ask nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import _awake, watch
from children import run_python
from studio_programs import project
from studio_scene import View
from torch import nn
from waiting import WAIT_SECS, wait_until

import torcheer as tl
from torcheer import Image

pytestmark = pytest.mark.browser
HOSTILE = "</script><img src=x onerror=window&#46;hacked=1>"


@pytest.fixture(scope="module")
def chromium(browser: tuple[Any, Any]) -> Iterator[Any]:
    loop, chromium = browser
    with _awake(loop):
        yield chromium


@pytest.fixture(scope="module")
def open_file(chromium: Any) -> Iterator[Any]:
    """`open_file(report)`: a page on a file, offline; it must not complain, nor ask for anything but itself."""
    contexts, complaints = list[Any](), list[str]()

    def open_report(path: Path, tab: str = "") -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, offline=True)
        context.set_default_timeout(WAIT_SECS * 1000)
        contexts.append((context, watch(context)))
        page = context.new_page()
        page.goto(path.as_uri() + (f"#{tab}" if tab else ""))
        page.wait_for_selector(".connection.open", state="attached")
        return page

    yield open_report
    for context, said in contexts:
        complaints += said
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def model_page(open_file: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of a pass, whose first layer has a hostile name."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.add_module(HOSTILE, nn.Linear(4, 6))
            self.head = nn.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            return self.head(getattr(self, HOSTILE)(x))

    path = tmp_path_factory.mktemp("report") / "a.html"
    tl.report(tl.log_forward_pass(Named(), torch.ones(2, 4)), path, title=HOSTILE)
    return open_file(path)


@pytest.fixture(scope="module")
def run_page(open_file: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of a run with rows and images."""
    folder = tmp_path_factory.mktemp("report")
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with tl.live(model, to=folder / "run", open_server=False, browser=False) as view:
        for step in range(4):
            model(torch.rand(2, 3)).sum().backward()
            view.log(loss=1.0 / (step + 1), sample=Image(np.full((4, 4), step * 10, np.uint8)))
    tl.report(folder / "run", folder / "a.html")
    return open_file(folder / "a.html")


def go(page: Any, tab: str) -> None:
    page.get_by_role("tab", name=tab).click()


def test_a_report_opens_on_its_summary_with_names_as_text(model_page: Any) -> None:
    go(model_page, "Summary")
    assert model_page.locator(".report h2").inner_text() == HOSTILE
    assert HOSTILE in model_page.locator(".report table").inner_text()
    assert model_page.locator(".report img").count() == 0
    assert model_page.evaluate("window.hacked") is None


def test_values_are_drawn_and_read_from_the_file(model_page: Any) -> None:
    go(model_page, "Network")
    view = View(model_page)
    wait_until(lambda: view.moment == 0, "the values", page=model_page)
    assert view.ask("seen")["missing"] == []
    model_page.mouse.click(*view.spot("head", 1))
    value = model_page.locator("#network-value")
    wait_until(lambda: value.inner_text().startswith("≈"), "a value of the picture", page=model_page)


def test_the_inspector_answers_from_the_file_and_says_what_it_does_not_keep(model_page: Any) -> None:
    go(model_page, "Network")
    search = model_page.locator(".network-way input")
    search.fill(HOSTILE)
    search.press("Enter")
    panel = model_page.locator(".network-unit")
    wait_until(lambda: "Items 0 to 0 of 2 are kept" in panel.inner_text(), "the layer", page=model_page)
    panel.locator("canvas, svg").first.wait_for()
    wait_until(lambda: "std" in panel.inner_text(), "statistics", page=model_page)
    assert "hacked" not in model_page.evaluate("Object.keys(window).join()")


def test_the_report_of_the_demo_opens_from_disk(open_file: Any, tmp_path: Path) -> None:
    run = project(tmp_path, batch=80) / "run"
    run_python("-m", "torcheer", "train", "training.yaml", "session_dir=run", "train.epochs=1", cwd=tmp_path)
    report = tl.report(run, tmp_path / "demo.html")
    assert report.size_bytes < 5_000_000
    page = open_file(report.path)
    words = page.locator(".report").inner_text()
    assert "val acc" in words and str(tmp_path) not in page.content()
    go(page, "Network")
    view = View(page)
    wait_until(lambda: view.moment >= 0, "values", page=page)
    search = page.locator(".network-way input")
    search.fill("strokes.0")
    search.press("Enter")
    panel = page.locator(".network-unit")
    wait_until(lambda: "float32" in panel.inner_text() and "std" in panel.inner_text(), "its numbers", page=page)
    panel.get_by_label("Tensor", exact=True).select_option(label="strokes.0.weight")
    wait_until(lambda: "32 × 16 × 3 × 3" in panel.inner_text(), "a parameter", page=page)
    go(page, "Graph")
    page.locator("svg.drawing").wait_for()


def test_the_graph_folds_in_the_report(open_file: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Tanh()), nn.Linear(6, 2))
    tl.report(tl.log_forward_pass(model, torch.ones(2, 4)), tmp_path / "a.html")
    page = open_file(tmp_path / "a.html")
    go(page, "Graph")
    graph = page.locator(".graph-host")
    inside = graph.locator("svg").get_by_text("ReLU")
    for button, is_open in (("Unfold all", True), ("Fold all", False), ("Unfold all", True)):
        graph.get_by_role("button", name=button, exact=True).click()
        assert wait_until(lambda is_open=is_open: (inside.count() > 0) == is_open, button, page=page)


def test_a_raster_is_made_of_the_states_in_the_file(model_page: Any) -> None:
    go(model_page, "Network")
    view = View(model_page)
    look = view.ask("seen")["look"]
    model_page.get_by_role("radio", name="Raster").click()
    wait_until(lambda: view.ask("seen")["look"] > look, "a raster", page=model_page)
    assert view.ask("seen")["missing"] == []
    model_page.get_by_role("radio", name="Auto").click()


def test_nothing_can_be_saved_or_pressed_in_a_report(model_page: Any) -> None:
    assert model_page.get_by_role("button", name="Save recording").count() == 0
    assert "A report" in model_page.get_by_role("toolbar", name="Control").inner_text()


def test_plots_tables_and_samples_of_a_run_come_from_the_file(run_page: Any) -> None:
    assert re.search(r"loss\s+1\s+0.25", run_page.locator(".report table").first.inner_text())
    go(run_page, "Plots")
    run_page.wait_for_selector(".readout b")
    go(run_page, "Tables")
    run_page.wait_for_selector(".grid")
    go(run_page, "Samples")
    wait_until(lambda: run_page.locator(".sample-card canvas, .sample-card img").count() == 1, "image", page=run_page)
    go(run_page, "Graph")
    run_page.locator(".graph-host").get_by_text("Linear").first.wait_for()
