"""The Samples tab in a real browser: what was logged, at one step, live and from disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect
from seams import Live, LogWriter, about_log, open_catalog
from studio_pages import Pages, opened  # noqa: F401
from studio_serving import serving
from test_runlog_logged_samples import log_to, put
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Writer
from torcheer.records import Sample

MARKUP = "<img src=x onerror=alert(1)><b>bold</b>"


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The studio's server on a folder."""
    with serving(open_catalog(run)) as (url, _, _):
        yield url


def log_step(log: LogWriter, step: int) -> None:
    tone = np.sin(np.arange(1600) / 5).astype(np.float32)
    put(log, step, image=np.full((5, 6, 3), (step, 100, 200), np.uint8), text=f"step {step} {MARKUP}",
        tone=tl.Audio(tone, rate=16000, caption="a tone"), table={"word": [MARKUP, "dog"], "p": [0.25, float("nan")]},
        confusion=tl.Confusion([[8 + step, 2], [0, 5]], names=("cat", MARKUP)), many=tl.Confusion(np.eye(30) * step),
        long=tl.Audio(np.tile(tone, 100), rate=16000))  # fmt: skip


def pixel(page: Any) -> list[int]:
    """The first pixel of the first image."""
    script = "() => [...document.querySelector('.sample-image').getContext('2d').getImageData(0, 0, 1, 1).data]"
    return list(page.evaluate(script))


def card(page: Any, name: str) -> Any:
    return page.locator(f".sample-card[aria-label$=' {name}']")


def test_a_finished_run_shows_every_kind_and_one_slider_moves_them_all(open_page: Pages, tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=lambda text: None)
    for step in (0, 10, 20):
        log_step(log, step)
    log.close()
    with served(tmp_path) as url:
        page = open_page(url, tab="samples")
        page.wait_for_selector(".sample-image.crisp")
        wait_until(lambda: pixel(page) == [20, 100, 200, 255], page=page)
        expect(card(page, "text").locator("pre")).to_have_text(f"step 20 {MARKUP}")  # each comes when it is read
        expect(card(page, "table").locator("td")).to_have_text([MARKUP, "0.25", "dog", "NaN"])
        expect(card(page, "confusion").locator("td")).to_have_text(["28", "2", "0", "5"])
        assert "94.3% on the diagonal" in card(page, "confusion").inner_text()
        assert not page.locator(".sample-card b, .sample-card img").count()  # text is never HTML

        page.locator("#sample-slider").fill("0")
        wait_until(lambda: pixel(page) == [0, 100, 200, 255], page=page)
        wait_until(lambda: card(page, "text").locator("pre").inner_text().startswith("step 0 "), page=page)
        assert page.locator(".step-bar .when").inner_text().startswith("step 0 ")
        card(page, "confusion").get_by_label("Percent of each row").check()
        expect(card(page, "confusion").locator("td")).to_have_text(["80", "20", "0", "100"])

        page.get_by_role("button", name="1 step on").click()
        wait_until(lambda: pixel(page) == [10, 100, 200, 255], page=page)
        page.locator(".step-bar .when").click()
        page.keyboard.press(".")
        wait_until(lambda: pixel(page) == [20, 100, 200, 255], page=page)
        page.get_by_role("button", name="1 step back").click()
        wait_until(lambda: pixel(page) == [10, 100, 200, 255], page=page)
        before = card(page, "image").bounding_box()["width"]
        card(page, "image").get_by_role("button").click()
        wait_until(lambda: card(page, "image").bounding_box()["width"] > before, "a large picture", page=page)
        matrix = card(page, "many").locator("canvas")
        matrix.focus()
        matrix.press("ArrowRight")
        assert card(page, "many").locator(".reading").inner_text().startswith("true 0, predicted ")

        page.get_by_role("button", name="Newest").click()
        wait_until(lambda: pixel(page) == [20, 100, 200, 255], page=page)
        card(page, "long").locator("canvas").click()  # plays from there: it is long
        card(page, "long").get_by_role("button", name="Stop").click()
        card(page, "long").get_by_role("button", name="Play").wait_for()
        card(page, "tone").get_by_role("button", name="Play a tone").click()
        card(page, "tone").get_by_role("button", name="Play a tone").wait_for()  # it is short: it has ended by itself
        page.close()


def test_what_is_logged_less_often_keeps_its_last_sample_and_says_which_step(open_page: Pages, tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=lambda text: None)
    put(log, 5, rare=tl.Text("rare"), often=tl.Text("first"))
    put(log, 9, often=tl.Text("second"))
    log.close()
    with served(tmp_path) as url:
        page = open_page(url, tab="samples")
        card(page, "rare").locator(".earlier", has_text="step 5").wait_for()
        assert not card(page, "often").locator(".earlier").count()
        page.close()


@pytest.mark.slow
def test_a_live_page_gets_them_as_they_are_logged(open_page: Pages) -> None:
    model = torch.nn.Linear(4, 2)

    def step(view: Live, number: int) -> None:
        model(torch.ones(1, 4))
        view.log(loss=0.5, image=torch.full((3, 8, 8), number / 255))

    with tl.live(model, browser=False) as view:
        page = open_page(view.url)
        assert page.get_by_role("tab", name="Samples").count() == 0
        step(view, 10)
        page.get_by_role("tab", name="Samples").click()
        page.wait_for_selector(".sample-image")
        wait_until(lambda: pixel(page)[0] == 10, page=page)
        step(view, 99)
        wait_until(lambda: pixel(page)[0] == 99, page=page)
        page.locator(".step-bar .when").click()  # keys of the tab list are its own
        page.keyboard.press(",")
        wait_until(lambda: pixel(page)[0] == 10, page=page)
        step(view, 77)  # who looks back stays there
        page.locator(".step-bar .when", has_text="of 3").wait_for()
        assert pixel(page)[0] == 10
        page.keyboard.press("End")
        wait_until(lambda: pixel(page)[0] == 77, page=page)
        view.finish()
        page.keyboard.press("Home")  # what the loop left is still there
        wait_until(lambda: pixel(page)[0] == 10, page=page)
        page.close()
    view.close()


@pytest.mark.slow
def test_samples_that_cannot_be_read_are_said_and_the_others_shown(open_page: Pages, tmp_path: Path) -> None:
    records = [
        ("layout", "image", np.zeros((4, 4), np.uint8), {"layout": "NCHW"}),
        ("words", "text", np.full(9, 255, np.uint8), {}),
        ("cells", "table", np.frombuffer(b"[" * 50_000, np.uint8), {}),
        ("sound", "audio", np.zeros(9, np.int16), {"rate": 0}),
    ]
    with Writer(tmp_path / "log" / "live", about=about_log("live")) as archive:
        named = [{"name": name, "kind": kind, "item": -1, "time": 1e300, **more} for name, kind, _, more in records]
        archive.step([Sample(0, name, kind, -1, array) for name, kind, array, _ in records], samples=named, opened=1.0)
    log_to(tmp_path, 0, "other", text="fine")
    with served(tmp_path) as url:
        page = open_page(url, tab="samples")
        card(page, "text").locator("pre", has_text="fine").wait_for()
        for name, *_ in records:
            wrong = card(page, name).locator(".wrong")
            wrong.wait_for()
            assert "cannot be shown" in wrong.inner_text()
        page.close()
