"""The Graph tab: a recorded pass as the drawing room draws it, in a frame that may do nothing else."""

from __future__ import annotations

import http.client
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from playwright.sync_api import expect
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_socket import cookie_of
from studio_stage import stage
from waiting import wait_until

import torcheer as tl
from torcheer.studio.graph_page import policy_of

MARKUP = "<img src=x onerror=parent.hacked=1>"


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(torch.relu(self.fc(x)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two recorded passes."""
    folder = tmp_path_factory.mktemp("passes")
    small = torch.nn.Sequential(torch.nn.Linear(8, 4))
    small.add_module(MARKUP.replace(".", "·"), torch.nn.ReLU())
    tl.log_forward_pass(small, torch.rand(2, 8)).save(folder / "small")
    tl.log_forward_pass(torch.nn.Sequential(Block(), Block(), torch.nn.Linear(8, 3)), torch.rand(2, 8)).save(
        folder / "blocks"
    )
    return folder


@pytest.fixture(scope="module")
def shown(saved: Path) -> Iterator[str]:
    viewer = tl.show(saved / "blocks", browser=False, block=False)
    yield viewer.url
    viewer.close()


def get(url: str, path: str, cookie: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
    return connection.getresponse()


def test_a_recorded_pass_has_a_graph_and_its_policy_lets_one_script_run(shown: str) -> None:
    answer = get(shown, "/graph?run=-1", cookie_of(shown))
    body, policy = answer.read().decode(), answer.getheader("content-security-policy") or ""
    assert answer.status == 200 and body.count("<script>") == 1
    assert policy == policy_of(body) and policy.count("sha256-") == 1
    assert "default-src 'none'" in policy and "sandbox allow-scripts allow-downloads" in policy
    assert get(shown, "/graph").status == 401


@pytest.mark.parametrize("run", ["0", "7", "x", "-2", "99999999999", "%2e%2e", "1;2", "-1&run=7"])
def test_a_graph_that_is_not_there_is_not_made(shown: str, run: str) -> None:
    answer = get(shown, f"/graph?run={run}", cookie_of(shown))
    assert answer.status == 404 and b"There is no graph here" in answer.read()


def test_what_has_no_recorded_pass_has_no_graph() -> None:
    with stage(paused=True) as (url, _):
        assert get(url, "/graph", cookie_of(url)).status == 404


def test_a_graph_that_cannot_be_drawn_is_said_so(saved: Path, tmp_path: Path) -> None:
    viewer = tl.show(shutil.copytree(saved / "small", tmp_path / "gone"), browser=False, block=False)
    cookie = cookie_of(viewer.url)
    shutil.rmtree(tmp_path / "gone")
    answer = get(viewer.url, "/graph", cookie)
    assert answer.status == 500 and b"could not be drawn" in answer.read() and "gone" in viewer.said
    viewer.close()


def test_the_graph_tab_shows_boxes_that_can_be_moved_and_follows_the_dark(open_page: Pages, shown: str) -> None:
    page = open_page(shown)
    page.get_by_role("tab", name="Graph").click()
    frame = page.frame_locator(".graph iframe")
    frame.locator("#torcheer[data-ready=true]").wait_for()
    words = frame.locator("svg.drawing").text_content()
    assert all(word in words for word in ("Block", "LayerNorm", "relu", "8→3"))

    where = "() => document.querySelector('svg.drawing > g').getAttribute('transform')"
    inner = page.frames[1]
    first = inner.evaluate(where)
    box = wait_until(page.locator(".graph iframe").bounding_box, "the frame", page=page)
    middle = (box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.8)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 40, middle[1] - 30, steps=3)
    page.mouse.up()
    moved = wait_until(lambda: inner.evaluate(where) != first and inner.evaluate(where), "the drag", page=page)
    page.mouse.wheel(0, -300)
    nearer = wait_until(lambda: inner.evaluate(where) != moved and inner.evaluate(where), "the wheel", page=page)
    scale = [float(re.search(r"scale\(([\d.]+)\)", one)[1]) for one in (moved, nearer)]  # type: ignore[index]
    assert scale[1] > scale[0]

    assert pixels(page, page.locator(".graph iframe").screenshot()).mean() > 200
    page.get_by_role("tab", name="Graph").focus()
    page.keyboard.press("d")
    frame.locator("html.dark").wait_for(state="attached")
    drawn = page.locator(".graph iframe")
    wait_until(lambda: pixels(page, drawn.screenshot()).mean() < 70, "a dark drawing", page=page)
    assert inner.evaluate(where) == nearer  # it was not loaded again
    page.get_by_role("tab", name="Network").click()
    page.keyboard.press("4")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    assert inner.evaluate(where) == nearer


def test_the_graph_can_reach_neither_the_page_nor_the_server(open_page: Pages, shown: str) -> None:
    page = open_page(shown, tab="graph")
    page.frame_locator(".graph iframe").locator("#torcheer[data-ready=true]").wait_for()
    open_page.forgiven += ["Content Security Policy", "Failed to fetch"]
    inner = page.frames[1]
    assert inner.evaluate("origin") == "null"
    asked = "() => fetch('/studio.js').then(() => 'read', () => 'refused')"
    assert inner.evaluate(asked) == "refused"
    assert inner.evaluate("() => { try { return parent.document.title } catch { return 'refused' } }") == "refused"


@pytest.mark.slow
def test_another_pass_of_the_folder_has_another_graph_and_markup_is_text(open_page: Pages, saved: Path) -> None:
    viewer = tl.show(saved, browser=False, block=False)
    try:
        page = open_page(viewer.url, tab="graph")
        runs = page.get_by_label("Run", exact=True)
        drawing = page.frame_locator(".graph iframe").locator("svg.drawing")
        for name, word in (("small", "onerror=parent"), ("blocks", "LayerNorm")):
            runs.select_option(runs.locator("option", has_text=name).get_attribute("value"))
            drawing.filter(has_text=word).wait_for()
            assert page.evaluate("window.hacked") is None
    finally:
        open_page.close()
        viewer.close()
