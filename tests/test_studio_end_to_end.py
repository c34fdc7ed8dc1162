"""The whole way in a real browser: a program that a person would start, its server, its page, every button."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from studio_pages import Pages, opened  # noqa: F401
from studio_programs import GONE, ROOT, Panel, project, started

WEIGHT = r"r\.Wt\s+-?\d\.\d+"  # in a unit's tip


@pytest.mark.slow
def test_the_random_associator_under_every_button(open_page: Pages, tmp_path: Path) -> None:
    with started(ROOT / "examples" / "random_associator" / "main.py", "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        open_page.forgiven += GONE
        for layer in ("Input", "Hidden1", "Hidden2", "Output"):
            panel.page.get_by_text(layer, exact=True).first.wait_for()
        panel.press("Step trial")
        panel.until(lambda: panel.count("Trial") == 0, "a trial")
        panel.until_status("Paused")
        first = panel.until_moment()

        panel.fill("How many trials to step", 7)
        panel.press("Step 7 trials")
        panel.until(lambda: panel.count("Trial") == 7, "seven trials more")
        panel.until_status("Paused")
        panel.fill("Which item to test, 0 to 24", 4)
        panel.press("Test item 4")
        panel.until(lambda: panel.counter("Name") == "p04", "the item")
        panel.press("Test trial")
        panel.until(lambda: panel.counter("Name") == "p05", "the next one")
        panel.until_status("Paused")

        epoch = panel.count("Epoch")
        panel.press("Step epoch")
        panel.until(lambda: panel.count("Trial") == 24, "the end of the epoch")
        panel.until_status("Paused")
        panel.press("Train")
        panel.until(lambda: panel.count("Epoch") > epoch + 3, "some epochs")
        panel.press("Stop")
        panel.until_status("Paused")
        assert panel.until_moment(first) > first

        panel.view.click("Hidden1", 3)
        panel.page.locator("#network-variable").select_option("r.Wt")  # the weights into the unit that was clicked
        assert panel.reads("Input", 12, WEIGHT)

        panel.press("Test all")
        panel.open("Plots")
        panel.until(lambda: panel.rows("Test trials") >= 25 and panel.rows("Test epochs") >= 1, "25 tests")
        panel.until(lambda: panel.rows("Train epochs") > 3 and panel.rows("Patterns") == 25, "all other rows")
        run, seed = panel.count("Run"), panel.page.get_by_label("seed", exact=True).input_value()
        panel.press("New seed")
        panel.until(lambda: panel.page.get_by_label("seed", exact=True).input_value() != seed, "another seed")
        panel.press("Init")
        panel.until(lambda: panel.count("Epoch") == 0, "a new run")
        assert panel.count("Run") >= run
        panel.fill("epochs", 2)
        runs = panel.rows("Runs")
        panel.press("Step run")
        panel.until(lambda: panel.rows("Runs") == runs + 1, "the end of the run")
        assert panel.until(lambda: panel.rows("Train epochs") == 2, "its epochs")


@pytest.mark.slow
def test_a_recording_of_a_program_shows_the_same_numbers_when_the_program_is_gone(
    open_page: Pages, tmp_path: Path
) -> None:
    open_page.forgiven += GONE
    unit = ("Hidden2", 7)

    def values(panel: Panel) -> list[str]:
        """Those of a unit at the first moment, two later, and at the newest."""
        found = []
        for button in ("First moment", "1 moment on", "1 moment on", ""):
            before = panel.view.moment
            panel.page.get_by_role("button", name=button or re.compile("Live|Newest"), exact=True).click()
            panel.until(lambda before=before: panel.view.moment != before, "another moment")
            panel.page.mouse.move(2, 2)
            found.append(panel.view.point(*unit).splitlines()[-1])
        return found

    with started(ROOT / "examples" / "random_associator" / "main.py", "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        panel.until_moment()
        panel.page.locator("#network-variable").select_option("Net")
        for _ in range(3):
            before = panel.view.moment
            panel.press("Step trial")
            panel.until_moment(before)
            panel.until_status("Paused")
        live = values(panel)
        panel.page.get_by_role("button", name="Save recording").click()
        panel.page.get_by_label("Name", exact=True).fill("kept")
        panel.page.get_by_role("button", name="Save", exact=True).click()
        panel.page.get_by_text("Saved kept:").wait_for()
    assert len(set(live)) > 2
    recording = tmp_path / "recordings" / "kept"
    with started("-m", "torcheer", "studio", recording, "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        panel.until_moment()
        panel.page.locator("#network-variable").select_option("Net")
        assert values(panel) == live


def test_a_config_is_trained_from_the_page_and_outlives_it(open_page: Pages, tmp_path: Path) -> None:
    run = project(tmp_path, batch=80) / "run"  # 18 steps an epoch
    command = ["-m", "torcheer", "train", "training.yaml", "session_dir=run", "--studio", "--no-browser", "--paused"]
    with started(*command, cwd=tmp_path) as (url, process):
        panel = Panel(open_page(url))
        open_page.forgiven += GONE
        panel.until_status("Paused")
        panel.press("Step batch")
        panel.until(lambda: panel.count("Step") == 1, "a step")
        panel.fill("lr", 0.002)
        watch = panel.page.locator(".field[title^='watch.every'] input")
        watch.fill("3")
        watch.press("Enter")
        panel.until(lambda: changes(run) >= {("optimizers.adam.lr", "0.002"), ("watch.every", "3")}, "both edits")

        panel.fill("How many batches to step", 6)
        panel.press("Step 6 batches")
        panel.until(lambda: panel.count("Step") == 7, "six steps")
        panel.until_status("Paused")
        panel.until_moment()
        assert "strokes.0" in panel.view.point("strokes.0", 5)
        panel.open("Plots")
        panel.fill("Which item to test, 0 to 358", 2)
        panel.press("Test item 2")
        panel.until(lambda: panel.rows("Test batches") == 1, "one test")
        panel.press("Test all")
        panel.until(lambda: panel.rows("Test batches") == 6 and panel.rows("Test epochs") == 1, "all 6 batches")
        panel.until_status("Paused")

        panel.press("Step epoch")
        panel.until(lambda: panel.count("Epoch") >= 1 and panel.count("Step") >= 18, "an epoch", secs=120)
        panel.until_status("Paused")
        panel.press("Train")
        panel.until(lambda: panel.count("Step") > 20, "some steps")
        panel.press("Stop")
        panel.until_status("Paused")

        seed = panel.page.locator(".field[title^='seed']").inner_text()
        panel.press("New seed")
        panel.press("Init")
        panel.until(lambda: panel.count("Step") == 0, "a new run")
        panel.until(lambda: panel.page.locator(".field[title^='seed']").inner_text() != seed, "its seed")
        panel.press("Train")
        panel.until_status("Running")
        panel.page.close()
        done = run / "metrics" / "0.csv"
        panel_less = Panel(open_page(url))  # another page, which has control of nothing
        panel_less.until(lambda: done.exists() and len(done.read_text().splitlines()) > 1, "training goes on", secs=120)
        assert process.poll() is None


def changes(run: Path) -> set[tuple[str, str]]:
    """What was edited in a run, as its journal has it."""
    if not (run / "metrics" / "changes.csv").exists():
        return set()
    with open(run / "metrics" / "changes.csv", newline="") as file:
        return {(row["name"], row["after"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_alexnet_shows_feature_maps_at_every_step(open_page: Pages, tmp_path: Path) -> None:
    with started(ROOT / "examples" / "alexnet_netview" / "main.py", "--no-browser", cwd=tmp_path) as (url, _):
        panel = Panel(open_page(url))
        open_page.forgiven += GONE
        before = panel.until_moment()
        blank = panel.view.picture()
        panel.fill("Which item to test, 0 to 3", 3)
        panel.press("Test item 3")
        panel.until(lambda: panel.counter("Name") == "disk", "the disk")
        panel.until_moment(before)
        assert panel.view.picture() != blank

        place = 55 * 50 + 27  # of its 55 × 55, near the lower edge
        for number in (57, 60, 63):  # maps of the first convolution, in the row that no other layer covers
            assert f"map {number}" in panel.reads("C1", number * 55 * 55 + place, r"Act\s+-?\d")
        panel.view.click("C1", 60 * 55 * 55 + place)
        assert "map 60" in panel.page.get_by_label("Selected unit").inner_text()
        panel.page.locator("#network-variable").select_option("r.Wt")
        seen, unseen = (224 * (224 + 4 * 50) + column for column in (4 * 27, 20))  # of green: where it looks; elsewhere
        assert "[1, 200, 108]" in panel.reads("Image", seen, WEIGHT)
        assert "[1, 200, 20]" in panel.reads("Image", unseen, r"r\.Wt\s+(NaN|no )")
