"""How long a person waits for the page, in Chromium with software GL; rows of `make bench-studio`.

Times are by the clock of the page or of this process, so they want a quiet machine. A drag is 60 moves of the mouse on
the 3D view; its time is that from frame to frame. The 100,000 operations are 980 equal blocks of 100 in a saved pass,
which the viewer has opened before the page comes (that time is listed, without a floor).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

START_SECS, DRAG_SECS, GRAPH_SECS, ACT_SECS = 2.0, 0.05, 2.0, 0.1
HEADER = ["the page", "what", "median", "slowest", "floor"]
NAMES = ("page-start", "drag-demo", "drag-gpt2", "drag-resnet152", "graph-100k", "graph-unfold", "graph-search")
_BLOCKS, _QUICK_BLOCKS = 980, 20
_TIMEOUT_MS = 120_000
# Milliseconds from frame to frame, of frames in which the scene was drawn.
_FRAMES = """() => { window.frameTimes = []; let last = performance.now(), drawn = window.__studio.drawn();
  const next = (now) => { const count = window.__studio.drawn();
    if (count > drawn) window.frameTimes.push(now - last);
    last = now; drawn = count; again() };
  const again = () => { window.frameRequest = requestAnimationFrame(next) };
  again() }"""
_FRAMES_END = "() => { cancelAnimationFrame(window.frameRequest); return window.frameTimes.slice(1) }"
_PAINTED = "const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
_UNFOLD = (
    "async () => {"
    + _PAINTED
    + """
  const root = document.querySelector('.graph-host').shadowRoot, screen = root.querySelector('.screen');
  const press = (key) => screen.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, composed: true }));
  const pause = () => new Promise((done) => setTimeout(done, 300));
  root.querySelector("button[title='Fold every box']").click();
  screen.focus();
  await pause();
  const times = [];
  for (let n = 0; n < 40 && times.length < 8; n++) {
    press('Tab');
    await painted();
    const chosen = root.getElementById(screen.getAttribute('aria-activedescendant'));
    if (chosen?.getAttribute('aria-expanded') !== 'false') continue;
    await pause();
    const began = performance.now();
    press('Enter');
    await painted();
    times.push(performance.now() - began);
    await pause();
  }
  return times }"""
)
_SEARCH = (
    "async (queries) => {"
    + _PAINTED
    + """
  const root = document.querySelector('.graph-host').shadowRoot, input = root.querySelector('input[type=search]');
  const times = [];
  for (const query of queries) {
    const began = performance.now();
    input.value = query;
    input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    await painted();
    times.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, 250));
  }
  return times }"""
)


class Block(nn.Module):
    """One hundred operations around which values are added."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(*(layer for _ in range(25) for layer in _part()))

    def forward(self, x: Tensor) -> Tensor:
        """Add what the parts make of it."""
        added: Tensor = x + self.parts(x)
        return added


def _part() -> tuple[nn.Module, ...]:
    return nn.Linear(4, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 4)


class ManyBlocks(nn.Module):
    """About 100,000 operations in equal blocks."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """Run the blocks one after the other."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        answer: Tensor = self.head(x)
        return answer


# -- pages -----------------------------------------------------------------------------------------------------------


@contextmanager
def shown(model: nn.Module, *inputs: Any) -> Iterator[tuple[str, float]]:
    """A viewer of a recorded pass: its address, and the seconds until it had opened it."""
    import torcheer as tl

    with tempfile.TemporaryDirectory() as folder:
        with torch.no_grad():
            tl.log_forward_pass(model.eval(), inputs if len(inputs) > 1 else inputs[0]).save(Path(folder) / "pass")
        began = time.monotonic()
        viewer = tl.show(Path(folder) / "pass", browser=False, block=False)
        try:
            yield viewer.url, time.monotonic() - began
        finally:
            viewer.close()


@contextmanager
def chromium_page() -> Iterator[Any]:
    """An empty page of a real browser."""
    from browser import FLAGS, chromium_path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        page.goto("about:blank")
        yield page
        browser.close()


def wait_for_picture(page: Any) -> None:
    """Until the 3D view has drawn values."""
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    drawn = "() => window.__studio?.seen().moment >= 0 && window.__studio.drawn() > 0"
    while not page.evaluate(drawn):
        if time.monotonic() > deadline:
            raise TimeoutError("no picture")
        page.wait_for_timeout(10)


def model_of(name: str) -> tuple[nn.Module, Any]:
    """A model by its name, and what it is called with; an ImportError where its package is missing."""
    from capture_models import CASES, torchvision_models

    torch.manual_seed(0)
    if name == "demo":
        from torcheer.demo.project.digits import Digits, Net

        return Net(), Digits().images[:16]
    if name == "gpt2":
        model, (tokens,) = CASES[name].make()
        return model, tokens
    models = torchvision_models()
    if models is None:
        raise ImportError("torchvision is not installed")
    return models.resnet152(), torch.rand(1, 3, 224, 224)


# -- rows ------------------------------------------------------------------------------------------------------------


def page_start(quick: bool) -> list[list[str]]:
    """From the address to the first picture, of the demo's network."""
    times = []
    with shown(*model_of("demo")) as (url, _):
        for _ in range(1 if quick else 5):
            with chromium_page() as page:
                began = time.monotonic()
                page.goto(url)
                wait_for_picture(page)
                times.append(time.monotonic() - began)
    return [row("demo", "start to the first picture", times, START_SECS)]


def drag(name: str, quick: bool) -> list[list[str]]:
    """From frame to frame while the 3D view is turned."""
    title = {"demo": "demo", "gpt2": "GPT-2, 64 tokens", "resnet152": "ResNet-152"}[name]
    try:
        model, inputs = model_of(name)
    except ImportError as missing:
        return [[title, "drag, a frame", "", "", str(missing)]]
    with shown(model, inputs) as (url, _), chromium_page() as page:
        page.goto(url)
        wait_for_picture(page)
        page.wait_for_timeout(1000)
        box = page.locator(".network-stage").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.evaluate(_FRAMES)
        for move in range(10 if quick else 60):
            page.mouse.move(x + 4 * move, y + move)
        times = [milliseconds / 1000 for milliseconds in page.evaluate(_FRAMES_END)]
        page.mouse.up()
    return [row(title, "drag, a frame", times, DRAG_SECS)]


def graph(names: list[str], quick: bool) -> list[list[str]]:
    """100,000 operations: to the first picture of the graph, folded; unfold a box; search."""
    blocks = _QUICK_BLOCKS if quick else _BLOCKS
    title = f"{102 * blocks + 4:,} operations"
    rows = []
    with shown(ManyBlocks(blocks), torch.rand(2, 4)) as (url, opening), chromium_page() as page:
        began = time.monotonic()
        page.goto(f"{url}#graph")
        page.locator("svg.drawing .leaf").first.wait_for(state="attached")
        folded = time.monotonic() - began
        if "graph-100k" in names:
            rows.append(row(title, "folded: start to the first picture of the graph", [folded], GRAPH_SECS))
            rows.append([title, "the viewer opens the pass, before", f"{opening:.1f} s", "", ""])
        page.locator("#torcheer[data-ready=true]").wait_for()
        for name, what, measure in (
            ("graph-unfold", "unfold a box", lambda: page.evaluate(_UNFOLD)),
            ("graph-search", "search, the index is built", lambda: searched(page)),
        ):
            if name in names:
                rows.append(row(title, what, [milliseconds / 1000 for milliseconds in measure()], ACT_SECS))
    return rows


def searched(page: Any) -> list[float]:
    """Milliseconds of searches by name, class, label and shape, after one that builds the index."""
    page.get_by_placeholder("Search name").fill("head")
    page.wait_for_timeout(500)
    while "so far" in page.locator(".results").inner_text() or "Reading" in page.locator(".results").inner_text():
        page.wait_for_timeout(100)
    times: list[float] = page.evaluate(_SEARCH, ["blocks.7.parts.12", "Tanh", "2×4", "linear_500", "nowhere"])
    return times


def row(title: str, what: str, secs: list[float], limit: float) -> list[str]:
    """A row; the median must meet the floor."""
    median = statistics.median(secs)
    met = "floor met" if median <= limit else "FLOOR MISSED"
    return [title, what, _text(median), _text(max(secs)), f"≤{_text(limit)} {met}"]


def _text(secs: float) -> str:
    return f"{secs:.2f} s" if secs >= 1 else f"{1000 * secs:.0f} ms"


def rows(names: list[str], quick: bool = False) -> list[list[str]]:
    """The chosen rows, each printed as it is measured."""
    parts: list[Callable[[], list[list[str]]]] = []
    if "page-start" in names:
        parts.append(lambda: page_start(quick))
    parts += [lambda name=name: drag(name[5:], quick) for name in names if name.startswith("drag-")]
    graphs = [name for name in names if name.startswith("graph-")]
    if graphs:
        parts.append(lambda: graph(graphs, quick))
    lines: list[list[str]] = []
    for part in parts:
        lines += (made := part())
        for line in made:
            print(" | ".join(line), file=sys.stderr, flush=True)
    return lines
