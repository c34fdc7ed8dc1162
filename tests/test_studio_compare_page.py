"""Runs compared in a browser: configs, parallel coordinates, ridgelines; two checkpoints side by side."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compared_runs import HOSTILE, run_with_checkpoints, two_files
from folder_runs import logged, sweep
from playwright.sync_api import expect
from safetensors.numpy import load_file, save_file
from seams import Column, ComparisonCatalog, SourceCatalog, TableHead, TableRows, open_catalog
from studio_pages import Pages, opened, settled  # noqa: F401
from studio_serving import serving
from studio_stage import Stage
from torch import nn
from waiting import wait_until

import torcheer as tl

Served = Callable[[SourceCatalog], str]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serves catalogs until the test ends."""
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    with ExitStack() as servers:
        yield lambda catalog: servers.enter_context(serving(catalog))[0]


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
    page.get_by_label("Checkpoint of the first").select_option("20")
    expect(page.locator("dialog")).to_contain_text("Choose two different steps.")
    page.get_by_label("Checkpoint of the first").select_option("10")
    page.locator("dialog").get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".compare-names b")).to_have_text(["trained step 10", "trained step 20"])
    expect(page.locator(".compare-heading .soft")).to_have_text("3 tensors: 2 equal, 1 differ")
    page.keyboard.press("h")
    expect(page.locator(".runs-pane .count")).to_have_text("6 runs")


def test_two_files_stand_side_by_side_with_what_differs(served: Served, open_page: Pages, tmp_path: Path) -> None:
    files = two_files(tmp_path)
    for place, file in enumerate(files):  # more numbers than a picture has cells
        wide = np.arange(40_000, dtype=np.float32).reshape(200, 200) * 1e-9
        wide[150, 60] += place * 1e-3
        save_file({**load_file(file), "wide.weight": wide}, file)
    page = open_page(served(ComparisonCatalog(*files)))
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".compare-pair h2")).to_have_text("conv.bias")  # the first that differs
    assert page.locator(".grid tr.first-difference td").first.inner_text() == "conv.bias"
    assert f"{HOSTILE}.weight" in [row[0] for row in table(page, ".compare-tab")]  # as text
    _sorted_and_filtered(page)
    _side_by_side(page)
    _what_one_side_lacks(page)
    _looked_at_closely(page)


def test_a_comparison_opens_on_its_first_difference_and_its_legend_knows_nan(
    served: Served, open_page: Pages, tmp_path: Path
) -> None:
    first = {f"h.{n:02}.weight": np.ones((4, 4), np.float32) for n in range(60)}
    second = dict(first)
    second["h.50.weight"] = first["h.50.weight"] + np.array([[np.nan, 0.5, 0, 0]], np.float32)
    for name, tensors in (("a", first), ("b", second)):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    page = open_page(served(ComparisonCatalog(tmp_path / "a.safetensors", tmp_path / "b.safetensors")))
    expect(page.locator(".compare-pair h2")).to_have_text("h.50.weight")
    expect(page.locator(".grid tr.first-difference td").first).to_be_in_viewport()
    assert page.locator(".grid tbody tr").first.inner_text() != "h.00.weight"
    page.get_by_role("tab", name="Network").click()
    expect(page.locator(".network-legend")).to_contain_text("all others: 0 or unknown")
    expect(page.locator(".network-legend")).to_contain_text("NaN or infinite: magenta")


def _sorted_and_filtered(page: Any) -> None:
    page.locator(".grid th", has_text="Max").get_by_role("button").dblclick()
    wait_until(lambda: table(page, ".compare-tab")[0][0] == "head.weight", "the largest difference first", page=page)
    page.get_by_label("Differences only").check()
    expect(page.get_by_role("region", name="Differences").locator(".count")).to_have_text("6 of 7 rows")
    page.get_by_label("Filter layers").fill("Max>0.1")
    wait_until(lambda: [row[0] for row in table(page, ".compare-tab")] == ["head.weight"], "filtered", page=page)
    with page.expect_download() as download:
        page.get_by_role("region", name="Differences").get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 2 and lines[1].startswith("head.weight,")
    page.locator(".grid tbody tr:not(.spare)").press("Enter")
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


def _looked_at_closely(page: Any) -> None:
    """A click, or Enter, goes to the same part of all three pictures; a button, or Escape, shows the whole."""
    page.locator(".grid tr", has_text="wide.weight").click()
    pictures, whole = page.locator(".compare-picture canvas"), page.get_by_role("button", name="Show the whole")
    readings = page.locator(".compare-picture .tensor-reading")
    expect(readings.nth(2)).to_contain_text("click to look closer")
    size = pictures.nth(2).bounding_box()
    spot = {"x": size["width"] * 60.5 / 200, "y": size["height"] * 150.5 / 200}
    for closer, back in (
        (lambda: pictures.nth(2).click(position=spot), whole.click),
        (
            lambda: pictures.nth(2).press("Enter"),
            lambda: (pictures.first.press("Escape"), pictures.first.press("Escape")),
        ),
    ):
        pictures.nth(2).hover(position=spot)
        expect(readings.nth(2)).to_contain_text("farthest from 0: 0.001")
        closer()
        for place in range(3):
            expect(pictures.nth(place)).to_have_attribute("aria-label", re.compile("1 × 48 × 48 cells"))
        pictures.nth(2).press("Home")
        expect(readings.first).to_contain_text(" = ")
        back()
        expect(pictures.first).not_to_have_attribute("aria-label", re.compile("1 × 48 × 48 cells"))
        expect(whole).to_have_count(0)


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


FILLS = """boxes => boxes.map((box) =>
    [box.textContent, getComputedStyle(box.querySelector("rect:not(.sheet):not(.badge)")).fill])"""


def test_graph_and_3d_view_have_the_same_colours_of_the_differences(
    served: Served, open_page: Pages, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(OrderedDict(same=nn.Linear(4, 6), other=nn.Linear(6, 3))), torch.rand(2, 4)
    changed = deepcopy(model)
    with torch.no_grad():
        changed.other.weight[0] *= 1.1
    sides = [tl.log_forward_pass(side, x).save(tmp_path / name) for side, name in ((model, "a"), (changed, "b"))]
    page = open_page(served(ComparisonCatalog(*sides)))
    page.get_by_role("tab", name="Network").click()
    assert page.locator("#network-colour-by").input_value() == "difference"

    def tints() -> dict[str, dict[str, str]]:
        return {layer: tint for layer, tint in (page.evaluate("window.__studio.tints()") or {}).items() if tint["text"]}

    wait_until(lambda: {"same", "other"} <= set(tints()), "colours of the slabs", page=page)
    slabs = tints()
    assert float(slabs["same"]["text"]) == 0 < float(slabs["other"]["text"]) < 1
    assert slabs["same"]["fill"] != slabs["other"]["fill"]
    assert "0.000001" in page.locator(".network-legend").inner_text()
    page.get_by_role("tab", name="Graph").click()
    for layer in ("same", "other"):

        def has_its_colour(layer: str = layer) -> bool:
            boxes = page.locator("svg.drawing .leaf").evaluate_all(FILLS)
            red, green, blue = bytes.fromhex(slabs[layer]["fill"][1:])
            return f"rgb({red}, {green}, {blue})" in [fill for text, fill in boxes if layer in text]

        wait_until(has_its_colour, f"the colour of {layer} in the graph", page=page)
