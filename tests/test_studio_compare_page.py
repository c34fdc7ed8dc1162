"""Runs compared in a browser: configs, parallel coordinates, ridgelines; two checkpoints side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compared_runs import HOSTILE, run_with_checkpoints, two_files
from folder_runs import logged, sweep
from playwright.sync_api import expect
from studio_pages import Pages, opened, settled  # noqa: F401
from studio_stage import Stage
from waiting import wait_until

from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.studio.comparison.open_comparison import ComparisonCatalog
from torcheer.studio.connections.source_pages import SourceCatalog
from torcheer.studio.server import listen, server_of, url_of
from torcheer.studio.sources.open_source import open_catalog


class Served:
    """Serves catalogs until the test ends."""

    def __init__(self) -> None:
        self._ends: list[tuple[Any, threading.Thread]] = []

    def __call__(self, catalog: SourceCatalog) -> str:
        listener, keys = listen()
        server = server_of(catalog, keys)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        wait_until(lambda: server.started, "the server")
        self._ends.append((server, thread))
        return url_of(listener, keys)

    def close(self) -> None:
        for server, thread in self._ends:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    served = Served()
    yield served
    served.close()


def side(page: Any, name: str) -> Any:
    page.locator(".runs-side .segments").get_by_text(name, exact=True).click()
    return settled(page).locator(".runs-side")


def table(page: Any, place: str) -> list[list[str]]:
    rows = page.locator(f"{place} .grid tbody tr:not(.spare)")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_configs_parallel_coordinates_and_checkpoints_of_chosen_runs_are_compared(
    served: Served, open_page: Pages, tmp_path: Path
) -> None:
    sweep(tmp_path / "runs", 4)
    run_with_checkpoints(tmp_path / "runs" / "trained", {10: 0.5, 20: 0.0})
    logged(tmp_path / "runs" / HOSTILE, rate=2.0, config={"lr": 5.0, "seed": 0})
    page = open_page(served(open_catalog(tmp_path / "runs")))
    _configs(page)
    _parallel(page)
    _checkpoints(page)


def _configs(page: Any) -> None:
    """Only settings that differ among the chosen runs are listed, names as text."""
    for name in ("sweep-0", "sweep-3"):
        page.get_by_label(f"Choose {name}").click()
    side(page, "Differences")
    expect(page.locator(".differences .grid th")).to_have_text(["Setting", "sweep-0", "sweep-3"])
    assert sorted(table(page, ".differences")) == [["train.optimizer", "sgd", "adam"], ["train.seed", "0", "3"]]
    expect(page.locator(".differences .remark")).to_have_text("1 settings are the same in all of them.")
    page.get_by_label(f"Choose {HOSTILE}").click()
    expect(page.locator(".differences .grid th", has_text=HOSTILE)).to_have_count(1)
    page.get_by_title("Choose none").click()


def _parallel(page: Any) -> None:
    """Lines are those of the runs; a click, and an arrow, make one the current run."""
    panel = side(page, "Parallel coordinates").locator(".parallel")
    expect(panel.locator(".run-line")).to_have_count(6)
    names = panel.locator(".run-axis .name").evaluate_all("all => all.map(each => each.firstChild.data)")
    assert "train.lr" in names and names[-1] == "loss"
    picture = panel.locator("svg")
    picture.focus()
    page.keyboard.press("End")  # the run with the largest loss
    expect(panel.get_by_role("status")).to_have_text("Current run: sweep-0")
    assert panel.locator(".run-line.current title").text_content() == "sweep-0"
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("status")).to_have_text("Current run: sweep-1")
    where = panel.locator(".run-axis").last.locator("line").bounding_box()
    page.mouse.click(where["x"] + 1, where["y"] + 9)  # near the end of a line, as a finger would
    expect(panel.get_by_role("status")).to_have_text("Current run: sweep-0")
    expect(page.locator(".runs-pane .grid tr[aria-current] td").nth(1)).to_have_text("sweep-0")


def _checkpoints(page: Any) -> None:
    """One run's checkpoints are compared; a run without any says so."""
    page.get_by_label("Choose sweep-0").click()
    page.get_by_role("button", name="Compare…").click()
    expect(page.locator("dialog .wrong")).to_contain_text("sweep-0 has no checkpoints")
    expect(page.locator("dialog").get_by_role("button", name="Compare", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_label("Choose sweep-0").click()
    page.get_by_label("Choose trained").click()
    page.get_by_role("button", name="Compare…").click()
    options = page.get_by_label("Checkpoint of the first").locator("option")
    expect(options).to_have_text(["step 20 · latest · best", "step 10"])
    page.locator("dialog").get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".compare-names b")).to_have_text(["trained step 10", "trained step 20"])
    expect(page.locator(".compare-heading .soft")).to_have_text("3 tensors: 2 equal, 1 differ")
    page.keyboard.press("h")
    expect(page.locator(".runs-pane .count")).to_have_text("6 runs")


def test_two_files_stand_side_by_side_with_what_differs(served: Served, open_page: Pages, tmp_path: Path) -> None:
    page = open_page(served(ComparisonCatalog(*two_files(tmp_path))))
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".compare-pair h2")).to_have_text("conv.bias")  # the first that differs
    assert page.locator(".grid tr.first-difference td").first.inner_text() == "conv.bias"
    assert f"{HOSTILE}.weight" in [row[0] for row in table(page, ".compare-tab")]  # as text
    _sorted_and_filtered(page)
    _side_by_side(page)
    _what_one_side_lacks(page)


def _sorted_and_filtered(page: Any) -> None:
    page.locator(".grid th", has_text="Max").get_by_role("button").dblclick()
    wait_until(lambda: table(page, ".compare-tab")[0][0] == "head.weight", "the largest difference first", page=page)
    page.get_by_label("Differences only").check()
    expect(page.get_by_role("region", name="Differences").locator(".count")).to_have_text("5 of 6 rows")
    page.get_by_label("Filter layers").fill("Max>0.1")
    wait_until(lambda: [row[0] for row in table(page, ".compare-tab")] == ["head.weight"], "filtered", page=page)
    page.locator(".grid tbody tr:not(.spare)").focus()
    expect(page.locator(".compare-pair h2")).to_have_text("head.weight")


def _side_by_side(page: Any) -> None:
    """The same cell is read in all three pictures; both sides have the same scale."""
    pictures = page.locator(".compare-picture")
    expect(pictures.locator("canvas")).to_have_count(3)
    scales = [pictures.nth(place).locator(".tensor-scale span").all_inner_texts() for place in range(3)]
    assert scales[0] == scales[1] and scales[2][-1] == "0.5"
    pictures.first.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    readings = pictures.locator(".tensor-reading")
    expect(readings.nth(2)).to_have_text("[0, 1] = 0.5")
    first, second = (float(readings.nth(place).inner_text().partition("= ")[2]) for place in range(2))
    assert second - first == pytest.approx(0.5, rel=1e-5)


def _what_one_side_lacks(page: Any) -> None:
    page.get_by_label("Filter layers").fill("")
    page.locator(".grid tr", has_text="old.weight").click()
    expect(page.locator(".compare-picture.of-second .tensor-why")).to_have_text("Not there: it is only in the first.")
    page.locator(".grid tr", has_text="tail.weight").click()
    expect(page.locator(".compare-picture.of-difference .tensor-why")).to_have_text(
        "Not there: the shapes are 3×4 and 5×4."
    )
    expect(page.locator(".compare-picture canvas")).to_have_count(2)
    page.get_by_role("button", name="First difference").click()
    expect(page.locator(".compare-pair h2")).to_have_text("conv.bias")


def test_ridgelines_are_read_by_keys_and_pointer(open_page: Pages) -> None:
    columns = (
        Column("Step", "int", plotted=False), Column("mean"),
        Column("histogram", "tensor", (5,), plotted=False, edges=(-2.0, -1.0, 1.0, 2.0)),
    )  # fmt: skip
    source = Stage(paused=True)
    cells = {
        "Step": [0, 10, 30],
        "mean": [-1.5, 0.0, 1.5],
        "histogram": [[0, 8, 0, 0, 0], [0, 2, 4, 2, 0], [0, 0, 0, 8, 0]],
    }
    head = TableHead("0 output", "0 · output", "Step", columns=columns)
    source.tables = {head.name: TableRows(head, cells, 3)}
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    page.get_by_text("Ridgelines").click()
    expect(page.locator(".ridge")).to_have_count(3)
    reading = page.locator(".ridgelines .reading")
    expect(reading).to_have_text("Step 30 in front")
    page.locator(".ridgelines svg").focus()
    page.keyboard.press("ArrowUp")
    expect(reading).to_have_text("Step 10")
    page.keyboard.press("Home")
    expect(reading).to_have_text("Step 0")
    page.keyboard.press("Escape")
    expect(reading).to_have_text("Step 30 in front")
    box = page.locator(".ridge").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.83, box["y"] + box["height"] * 0.7)  # inside of its outline
    expect(reading).to_have_text("Step 30")
