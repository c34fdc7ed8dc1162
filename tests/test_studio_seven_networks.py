"""The seven networks of docs/studio-networks.md open readable: every slab has its name, and no name covers another."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from studio_pages import Pages, opened  # noqa: F401
from studio_scene import View
from waiting import wait_until

import torcheer as tl

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

WINDOWS = {"1440": (1440, 900), "1024": (1024, 768), "phone": (390, 844)}
NETWORKS = ("llama", "resnet152", "unet", "swin", "lstm", "gan", "mixture")
NAMES = """() => [...document.querySelectorAll(".network-label:not([hidden])")].map((label) => {
    const { left, right, top, bottom } = label.getBoundingClientRect();
    return { title: label.querySelector("b").textContent, isFrame: label.classList.contains("frame"),
             left, right, top, bottom };
})"""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", NETWORKS)
def test_every_slab_has_its_name_and_no_name_covers_another(name: str, open_page: Pages) -> None:
    try:
        from studio_picture_models import build

        model, inputs = build(name)
    except (ImportError, AttributeError) as missing:
        pytest.skip(f"{name}: {missing}")
    with tl.show(model, inputs, browser=False, block=False) as viewer:
        for width, height in WINDOWS.values():
            page = open_page(viewer.url, viewport={"width": width, "height": height}, reduced_motion="reduce")
            view = View(page)
            wait_until(lambda view=view: view.moment >= 0, "values", page=page)
            titles = {item["title"] for item in view.ask("shown")}

            def missing(page: Any = page, titles: set[str] = titles) -> set[str]:
                return titles - {label["title"] for label in page.evaluate(NAMES)}

            wait_until(lambda missing=missing: not missing(), f"the names of {missing()} at {width}", page=page)
            for one, other in combinations(page.evaluate(NAMES), 2):
                beside = one["right"] <= other["left"] or other["right"] <= one["left"]
                assert beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (one, other)
            page.close()
