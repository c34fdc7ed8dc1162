"""Every way into the studio as a program of its own: its address in a real browser, its layers, an exact value."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import _awake
from children import run_python
from playwright.sync_api import expect
from seams import inline
from studio_pages import Pages, opened, pixels  # noqa: F401
from studio_programs import GONE, Panel, project, started
from studio_stage import stage
from waiting import wait_until

from torcheer.archive import Archive

MODEL = """
import json, time
import torch
import torcheer as tl
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
x = torch.rand(2, 1, 8, 8)

def say(layer, values):
    value, unit = values[0].flatten().max(0)  # a ReLU that follows leaves it as it is
    print(json.dumps([layer, int(unit), float(value.detach())]), flush=True)
"""
HISTORY = (
    MODEL
    + """
viewer = tl.show(tl.log_forward_pass(model, x), browser=False, block=False)
say("0", model[0](x))
viewer.wait()
"""
)
SHOWN = (
    MODEL
    + """
viewer = tl.show(model, x, browser=False, block=False)
say("0", model[0](x))
viewer.wait()
"""
)
LIVE = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # so that the value stays
with tl.live(model, optimizer=optimizer, browser=False) as view:
    say("0", model[0](x))
    while True:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        view.log(loss=loss)
        time.sleep(0.01)
"""
)
FORWARD = (
    MODEL
    + """
from torcheer.studio import Network, NetView, State

class Associator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(25, 35)
        self.est = State(self)

    def forward(self, x):
        self.est.rec(x, "Input.Act")
        x = self.fc(x)
        self.est.rec(x, "Hidden.Net")
        x = torch.relu(x)
        self.est.rec(x, "Hidden.Act")
        return x

net = Network("RA25")
net.add_layer("Input", (5, 5))
net.add_layer("Hidden", (5, 7), above="Input")
model, x = Associator(), torch.rand(8, 25)
model.est.set_net(net)
view = NetView(net).open(browser=False)
say("Hidden", model(x))
for epoch in range(1_000_000):
    model(x)
    view.update({"Epoch": epoch})
    time.sleep(0.01)
"""
)


@dataclass
class Way:
    """A program, what it shows, and what a page of it has."""

    command: Callable[[Path], list[Any]]
    layers: tuple[str, ...]
    tabs: tuple[str, ...] = ("Network", "Plots", "Tables", "Graph")
    message: str = ""  # at the top, or at the bottom


def script(text: str) -> Callable[[Path], list[Any]]:
    """A program that says itself what its page has to show."""

    def written(folder: Path) -> list[Any]:
        (folder / "program.py").write_text(text)
        return [folder / "program.py"]

    return written


def studio(*at: str) -> Callable[[Path], list[Any]]:
    """`torcheer studio` on what a training left behind."""
    return lambda folder: ["-m", "torcheer", "studio", folder.joinpath(*at), "--no-browser"]


CONV = ("Input", "0", "3")
DIGITS = ("edges.0", "strokes.0", "digit")
WAYS = {
    "show a history": Way(script(HISTORY), CONV, message="A recorded"),
    "show a model": Way(script(SHOWN), CONV, message="A recorded"),
    "live": Way(script(LIVE), CONV, message="Running"),
    "netview in forward": Way(script(FORWARD), ("Input", "Hidden"), message="only looked at"),
    "studio run": Way(studio("runs", "first"), DIGITS, message="not training now"),
    "studio folder": Way(studio("runs"), DIGITS, ("Runs", *Way.tabs), "1 epoch"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one epoch."""
    folder = project(tmp_path_factory.mktemp("trained"), batch=80)
    command = ["-m", "torcheer", "train", "training.yaml", "session_dir=runs/first", "train.epochs=1", "--no-control"]
    run_python(*command, cwd=folder)
    return folder


def captured(folder: Path) -> tuple[str, int, float]:
    """A layer, one of its units, and its value in the last capture of the run."""
    archive = Archive(folder / "runs" / "first" / "captures")
    entry = next(one for one in archive.frames[-1]["entries"] if one.layer == "strokes.0")
    values = np.ravel(archive.array(entry)[0])
    unit = int(np.argmax(values))
    return "strokes.0", unit, float(values[unit])


SLOW = {"show a history", "show a model", "live", "netview in forward", "studio run"}  # each like one that CI goes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WAYS]
)
def test_a_way_in_leads_to_layers_and_exact_values(
    open_page: Pages, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    way = WAYS[name]
    folder = request.getfixturevalue("trained") if name.startswith("studio") else tmp_path
    with started(*way.command(folder), cwd=tmp_path) as (url, process):
        at_rest = name.startswith("studio")
        layer, unit, value = captured(folder) if at_rest else json.loads(process.line())
        panel = Panel(open_page(url))
        open_page.forgiven += GONE
        panel.until_moment()
        labels = panel.page.locator(".network-stage")
        for one in way.layers:
            labels.get_by_text(one, exact=True).first.wait_for()
        assert panel.tabs == list(way.tabs)
        expect(panel.page.locator("body")).to_contain_text(way.message)
        assert panel.reads(layer, unit, re.escape(str(np.float32(value))))


@contextmanager
def served(text: str) -> Iterator[str]:
    """A page of somebody else on this machine, such as a notebook: its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *about: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/notebook"
        server.shutdown()


@pytest.mark.slow
def test_below_the_cell_of_a_notebook_the_network_is_drawn(browser: tuple[Any, Any]) -> None:
    loop, chromium = browser
    with _awake(loop), stage(paused=True, states=3) as (url, _), served(f"<p>In [1]:</p>{inline(url)}") as notebook:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(notebook)
        drawn = "() => !!window.__studio && window.__studio.seen().moment >= 0"
        assert wait_until(lambda: len(page.frames) > 1 and page.frames[1].evaluate(drawn), "a state", page=page)
        frame = page.frame_locator("iframe")
        expect(frame.get_by_text("Hidden1", exact=True).first).to_be_visible()
        colours = pixels(frame.locator(".network-picture").screenshot())
        strong = colours.max(1) - colours.min(1) > 100  # neither paper nor text
        assert 0.01 < strong.mean() < 0.9
        page.close()
