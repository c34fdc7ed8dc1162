"""Names with markup, wherever a page shows a name: they are text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from studio_pages import Pages, opened_for_a_module  # noqa: F401
from torch import Tensor, nn
from waiting import wait_until

import torcheer as tl
from torcheer import Image, Text

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=hacked=1>"


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(HOSTILE, nn.Linear(4, 6))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(getattr(self, HOSTILE)(x))


@pytest.fixture(scope="module")
def page(open_shared_page: Pages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of a live run in which everything that has a name is called like that."""
    model = Named()
    optimizer = type(HOSTILE, (torch.optim.SGD,), {})(model.parameters(), lr=0.1)
    run = tmp_path_factory.mktemp("runs") / HOSTILE
    with tl.live(model, to=run, optimizer=optimizer, title=HOSTILE, browser=False) as live:
        page = open_shared_page(live.url)

        def step() -> bool:
            model(torch.rand(2, 4)).square().mean().backward()
            live.log(**{HOSTILE: 1.0, f"{HOSTILE}!": Image(np.zeros((4, 4), np.uint8)), "said": Text(HOSTILE)})
            return bool(page.evaluate("window.__studio?.seen().moment >= 0"))

        wait_until(step, "values", page=page)
        live.host.alert(f"look: {HOSTILE}", layer=HOSTILE)
        yield page
        page.close()


def open_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def select_layer(page: Any) -> None:
    open_tab(page, "Network")
    search = page.locator(".network-way input")
    search.fill(HOSTILE)
    search.press("Enter")


PLACES = {
    "title": (lambda page: None, ".title"),
    "parameters": (lambda page: None, ".parameters"),
    "3D view": (lambda page: open_tab(page, "Network"), ".network-labels"),
    "inspector": (select_layer, ".network-unit"),
    "graph": (lambda page: open_tab(page, "Graph"), "svg.drawing"),
    "plots": (lambda page: open_tab(page, "Plots"), ".plots-tab"),
    "tables": (lambda page: open_tab(page, "Tables"), ".tables-tab"),
    "samples": (lambda page: open_tab(page, "Samples"), "#panel-samples"),
    "alerts": (lambda page: page.get_by_role("button", name="Alerts").click(), ".alert-list"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_with_markup_is_text(page: Any, place: str) -> None:
    go, where = PLACES[place]
    go(page)
    words = page.locator(where)
    wait_until(lambda: "<img src=x" in (words.text_content() or ""), f"the name in {place}", page=page)
    assert page.locator("img[src='x']").count() == 0 and page.evaluate("window.hacked") is None
