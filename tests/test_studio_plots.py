"""The Plots tab: lines from tables, and every option of theirs, seen in the DOM, the pixels and the files it saves."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_cases import fast_first
from playwright.sync_api import expect
from seams import Column, TableHead, TableRows
from studio_pages import Pages, opened, pixels, settled  # noqa: F401
from studio_stage import MARKUP, Stage
from waiting import wait_until

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)  # of the first two lines, in light colours
SVG = "{http://www.w3.org/2000/svg}"


def drawn(page: Any, colour: tuple[int, int, int]) -> int:
    """How many pixels of the plot have a colour."""
    seen = pixels(settled(page).locator(".chart").screenshot())
    return int((np.abs(seen - np.array(colour)).max(1) <= 8).sum())


def saved(page: Any, button: str) -> tuple[str, bytes]:
    """The name and content of the file that a button of the plot saves."""
    with page.expect_download() as download:
        settled(page).locator(".plot").get_by_role("button", name=button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def epochs(count: int = 20) -> Stage:
    """A stage that has trained so many epochs and waits."""
    return Stage(paused=True, states=25 * count)


def with_table(head: TableHead, columns: dict[str, list[Any]]) -> Stage:
    """A stage whose only table is this one."""
    source = Stage(paused=True)
    count = len(next(iter(columns.values())))
    source.tables = {head.name: TableRows(head, columns, count)}
    return source


def shows_lines(page: Any, names: list[str]) -> None:
    """The legend names these lines, after x."""
    expect(page.locator(".readout li .soft")).to_have_text([re.compile(".*"), *names])


def says(page: Any, text: str) -> None:
    """The tab says this."""
    expect(page.locator("#panel-plots")).to_contain_text(text)


def test_columns_are_switched_on_and_off(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs())
    page = open_page(url, tab="plots", color_scheme="light")
    shows_lines(page, ["loss", "accuracy"])
    assert drawn(page, BLUE) > 200 and drawn(page, ORANGE) > 200
    page.get_by_role("checkbox", name="accuracy").uncheck()
    shows_lines(page, ["loss"])
    assert drawn(page, ORANGE) == 0
    page.get_by_role("button", name="None").click()
    assert not page.locator(".chart").is_visible()
    says(page, "No column is chosen")
    page.get_by_role("button", name="All", exact=True).click()
    shows_lines(page, ["loss", "loss_sem", "accuracy", "seconds"])


def test_the_table_to_plot_is_chosen_by_mouse_or_keys(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs())
    page = open_page(url, tab="plots")
    names = page.get_by_role("radiogroup", name="Table").locator("label").all_inner_texts()
    titles = [name.split("\n")[0].rstrip(" 0123456789") for name in names]
    assert titles == ["Train epochs", "Test epochs", "Test trials", "Runs", "Train steps", "Patterns"]
    page.get_by_text("Train steps").click()
    shows_lines(page, ["loss"])
    page.get_by_role("radio", name="Train steps").press("ArrowLeft")
    names = ["FirstZero · Condition large", "FirstZero · Condition small"]
    shows_lines(page, [*names, "loss · Condition large", "loss · Condition small"])
    page.get_by_text("Patterns").click()
    says(page, "no column of numbers")
    page.get_by_text("Test trials").click()
    says(page, "Nothing recorded yet")


@pytest.mark.slow
def test_of_very_many_layers_one_is_chosen_by_its_module_and_its_variable_beside_it(open_page: Pages) -> None:
    source = epochs()
    for layer in (f"layer{number}.{block}.conv" for number in range(1, 5) for block in range(4)):
        for variable in ("output", "gradient"):
            head = TableHead(f"{layer} {variable}", f"{layer} · {variable}", "Step", "",
                             (Column("Step", "int", plotted=False), Column("mean")), layer)  # fmt: skip
            source.tables[head.name] = TableRows(head, {"Step": [0, 1], "mean": [1.0, 2.0]}, 2)
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    choice = page.get_by_role("combobox", name="Table")
    groups = choice.locator("optgroup").evaluate_all("all => all.map((one) => one.label)")
    assert groups == ["Tables", "layer1", "layer2", "layer3", "layer4"]
    assert page.get_by_role("radiogroup", name="Variable").count() == 0
    choice.select_option(label="layer2.3.conv")
    shows_lines(page, ["mean"])
    page.get_by_role("radiogroup", name="Variable").get_by_text("gradient").click()
    choice.select_option(label="layer4.0.conv")  # the variable stays
    expect(page.get_by_role("radio", name="gradient")).to_be_checked()
    choice.select_option(label="Train steps (500)")
    shows_lines(page, ["loss"])


def test_lines_grow_while_it_trains(open_page: Pages) -> None:
    source = Stage(states=60)
    source.trial_secs = 0.01
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    shown = page.locator(".readout b").first
    first = int(shown.inner_text())
    assert wait_until(lambda: int(shown.inner_text()) > first + 1, "two more epochs", page=page)


@pytest.mark.slow
def test_smoothing_draws_a_line_over_the_raw_one(open_page: Pages) -> None:
    head = TableHead("train_step", "Steps", "Step", columns=(Column("Step", "int"), Column("loss")))
    source = with_table(head, {"Step": list(range(100)), "loss": [index % 2 for index in range(100)]})
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots", color_scheme="light")
    rough = drawn(page, BLUE)
    page.get_by_label("Smoothing").fill("0.95")
    assert drawn(page, BLUE) < rough / 2  # a calm line
    faint = tuple(round(255 + (part - 255) * 0x55 / 255) for part in BLUE)
    assert drawn(page, faint) > 100  # and behind it what it was made of
    name, content = saved(page, "CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert name == "train_step_plot.csv"
    assert [row["loss"] for row in rows[:3]] == ["0", "1", "0"]
    assert 0.4 < float(rows[-1]["loss (smoothed)"]) < 0.6


def test_axes_become_logarithmic_and_say_what_has_no_place(open_page: Pages) -> None:
    head = TableHead("run", "Runs", "Size", columns=(Column("Size", "int"), Column("loss")))
    source = with_table(head, {"Size": [0, 1, 10, 100, 1000], "loss": [5.0, 1.0, 0.1, -1.0, 0.001]})
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    page.get_by_label("Logarithmic y").check()
    says(page, "1 point is not above zero: a logarithmic y axis has no place for that.")
    page.get_by_label("Logarithmic x").check()
    says(page, "logarithmic x axis")
    _, content = saved(page, "SVG")
    texts = [one.text for one in ElementTree.fromstring(content).iter(f"{SVG}text")]
    assert {"1", "10", "100", "1000", "0.001", "0.01"} <= set(texts)


def test_error_bars_are_drawn(open_page: Pages) -> None:
    columns = (Column("Epoch", "int"), Column("loss", error="sem"), Column("sem"))
    rows = {"Epoch": [1, 2, 3], "loss": [1.0, 2.0, 1.0], "sem": [0.5, 0.5, 0.0]}
    url, _ = open_page.stage(with_table(TableHead("t", "T", "Epoch", columns=columns), rows))
    page = open_page(url, tab="plots", color_scheme="light")
    assert not page.get_by_role("checkbox", name="sem").is_checked()  # it is no line of its own
    _, content = saved(page, "SVG")
    paths = [one.get("d", "") for one in ElementTree.fromstring(content).iter(f"{SVG}path")]
    assert sum(path.count("V") for path in paths) == 2  # one of the three has no length
    _, numbers = saved(page, "CSV")
    assert numbers.decode().splitlines()[0] == "Epoch,loss,loss (error)"


@pytest.mark.slow
def test_each_column_can_have_an_axis_of_its_own(open_page: Pages) -> None:
    columns = (Column("Epoch", "int"), Column("small"), Column("large"))
    rows = {"Epoch": [1, 2, 3], "small": [0.001, 0.002, 0.001], "large": [1e6, 2e6, 1e6]}
    url, _ = open_page.stage(with_table(TableHead("t", "T", "Epoch", columns=columns), rows))
    page = open_page(url, tab="plots", color_scheme="light")
    page.get_by_label("Own y axis each").check()
    _, content = saved(page, "SVG")
    texts = [one.text for one in ElementTree.fromstring(content).iter(f"{SVG}text")]
    assert {"0.001", "1000000"} <= set(texts)


def test_the_x_axis_is_chosen(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(5))
    page = open_page(url, tab="plots")
    page.get_by_label("x axis").select_option(label="row")
    expect(page.locator(".readout .soft").first).to_have_text("row")
    page.get_by_label("x axis").select_option(label="loss")  # it falls
    says(page, "loss does not only rise: rows are counted instead.")


def seen_range(page: Any) -> tuple[float, float]:
    """From where to where the x axis goes, by the ticks of the SVG."""
    _, content = saved(page, "SVG")
    ticks = [one for one in ElementTree.fromstring(content).iter(f"{SVG}text") if one.get("text-anchor") == "middle"]
    numbers = [float(one.text or "nan") for one in ticks[:-1]]
    return numbers[0], numbers[-1]


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag over the plot; places are parts of its width and height."""
    settled(page)  # a change before it draws the plot anew
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=4)
    page.mouse.up()


def test_a_drag_zooms_and_a_double_click_shows_everything(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(40))
    page = open_page(url, tab="plots")
    low, high = seen_range(page)
    drag(page, (0.25, 0.5), (0.5, 0.5))
    inner_low, inner_high = seen_range(page)
    assert low < inner_low < inner_high < high
    expect(page.get_by_role("button", name="Show everything")).to_be_enabled()
    page.locator(".u-over").dblclick()
    expect(page.get_by_role("button", name="Show everything")).to_be_disabled()
    assert seen_range(page) == (low, high)


@pytest.mark.slow
def test_buttons_and_keys_zoom(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(40))
    page = open_page(url, tab="plots")
    whole = seen_range(page)
    page.get_by_role("button", name="Zoom in").click()
    half = seen_range(page)
    assert half[1] - half[0] < whole[1] - whole[0]
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    right = seen_range(page)
    assert right[0] > half[0]
    page.keyboard.press("ArrowLeft")
    assert seen_range(page) == half
    page.get_by_role("button", name="Zoom out").click()
    assert seen_range(page) == whole
    page.keyboard.press("0")
    assert seen_range(page) == whole
    page.keyboard.press("+")
    assert seen_range(page) == half
    page.keyboard.press("-")
    assert seen_range(page) == whole
    page.keyboard.press("+")
    page.get_by_role("button", name="Show everything").click()
    assert seen_range(page) == whole


def heights(page: Any) -> list[float]:
    """The numbers along the y axis, by the SVG."""
    _, content = saved(page, "SVG")
    ticks = [one for one in ElementTree.fromstring(content).iter(f"{SVG}text") if one.get("text-anchor") == "end"]
    return [float(one.text or "nan") for one in ticks if one.text not in ("loss", "accuracy")]


@pytest.mark.slow
def test_the_ends_of_the_axes_are_typed(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(40))
    page = open_page(url, tab="plots")
    whole, tall = seen_range(page), heights(page)

    def type_in(label: str, text: str) -> None:
        box = page.get_by_label(label, exact=True)
        box.fill(text)
        box.press("Enter")

    type_in("Least y", "-1")
    assert min(heights(page)) == -1 and max(heights(page)) == max(tall)  # the other end follows the lines
    type_in("Largest y", "3")
    assert max(heights(page)) == 3
    type_in("Least x", "10")
    type_in("Largest x", "20")
    assert seen_range(page) == (10, 20)
    page.get_by_role("button", name="Zoom in").click()
    assert seen_range(page)[0] > 10
    page.get_by_role("button", name="Show everything").click()
    assert seen_range(page) == (10, 20)  # everything between the limits
    type_in("Largest x", "5")  # before the least: said, and as if neither were there
    expect(page.get_by_label("Largest x")).to_have_attribute("aria-invalid", "true")
    assert seen_range(page) == whole
    page.get_by_label("Largest x").fill("abc")
    expect(page.get_by_label("Largest x")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Largest x").press("Escape")
    expect(page.get_by_label("Largest x")).to_have_value("5")
    for label in ("Least x", "Largest x", "Least y", "Largest y"):
        type_in(label, "")
    assert (seen_range(page), heights(page)) == (whole, tall)
    page.get_by_label("Own y axis each").check()
    type_in("Least loss", "-2")
    assert min(heights(page)) == -2
    assert page.get_by_label("Least accuracy").input_value() == ""


@pytest.mark.slow
def test_the_columns_of_the_lines_and_of_the_error_bars_are_chosen(open_page: Pages) -> None:
    columns = (Column("Epoch", "int"), Column("Kind", "text"), Column("loss"), Column("spread", plotted=False))
    rows = {"Epoch": [1, 1, 2, 2], "Kind": ["a", "b", "a", "b"], "loss": [1.0, 2.0, 1.5, 2.5], "spread": [0.5] * 4}
    url, _ = open_page.stage(with_table(TableHead("t", "T", "Epoch", columns=columns), rows))
    page = open_page(url, tab="plots")
    shows_lines(page, ["loss"])
    page.get_by_label("Line for each").select_option(label="Kind")
    shows_lines(page, ["loss · Kind a", "loss · Kind b"])
    page.get_by_label("Error bars").select_option(label="spread")
    _, numbers = saved(page, "CSV")
    names = ["loss · Kind a", "loss · Kind b"]
    assert numbers.decode().splitlines()[0].split(",") == [
        "Epoch", names[0], f"{names[0]} (error)", names[1], f"{names[1]} (error)",
    ]  # fmt: skip
    page.get_by_label("Line for each").select_option(label="no column")
    page.get_by_label("Error bars").select_option(label="none")
    _, numbers = saved(page, "CSV")
    assert numbers.decode().splitlines()[0] == "Epoch,loss"


def test_new_rows_do_not_move_a_zoomed_view(open_page: Pages) -> None:
    source = Stage(states=500)
    source.trial_secs = 0.01
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    drag(page, (0.25, 0.5), (0.5, 0.5))
    zoomed = seen_range(page)
    rows = source.tables["train_epoch"].count
    wait_until(lambda: source.tables["train_epoch"].count > rows + 3, page=page)
    shown = page.get_by_role("radiogroup", name="Table").locator("label").first
    wait_until(lambda: int(shown.inner_text().split()[-1]) > rows + 2, page=page)
    assert seen_range(page) == zoomed


def test_hovering_reads_the_values_there(open_page: Pages) -> None:
    url, source = open_page.stage(epochs(20))
    page = open_page(url, tab="plots")
    page.locator(".u-over").hover(position={"x": 3, "y": 50})
    wait_until(lambda: page.locator(".readout b").first.inner_text() == "1", page=page)
    loss = source.tables["train_epoch"].columns["loss"][0]
    assert float(page.locator(".readout b").nth(1).inner_text()) == pytest.approx(loss, rel=1e-3)


def test_exports_hold_what_is_drawn(open_page: Pages) -> None:
    url, source = open_page.stage(epochs(20))
    page = open_page(url, tab="plots", color_scheme="light")
    name, content = saved(page, "CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    columns = source.tables["train_epoch"].columns
    assert [float(row["loss"]) for row in rows] == columns["loss"]  # to the last digit
    assert [row["accuracy"] for row in rows].count("") == columns["accuracy"].count(None) > 0
    name, content = saved(page, "SVG")
    picture = ElementTree.fromstring(content)
    strokes = [one.get("stroke") for one in picture.iter(f"{SVG}path")]
    assert (name, strokes.count("#0072b2"), strokes.count("#d55e00")) == ("train_epoch.svg", 2, 1)  # and its error bars
    assert {"Train epochs", "loss", "accuracy", "Epoch"} <= {one.text for one in picture.iter(f"{SVG}text")}
    name, content = saved(page, "PNG")
    colours = pixels(content)
    assert name == "train_epoch.png"
    assert (np.abs(colours - np.array(BLUE)).max(1) < 8).sum() > 200
    assert tuple(colours[0]) == (255, 255, 255)  # on paper, not on nothing


@pytest.mark.slow
def test_names_with_markup_stay_text_in_plots_and_their_files(open_page: Pages) -> None:
    head = TableHead(
        "train_epoch", MARKUP, "Epoch", MARKUP, (Column("Epoch", "int"), Column('a<b&"c'), Column(MARKUP, "text"))
    )
    rows = {"Epoch": [1, 2], "a<b&\"c": [1, 2], MARKUP: [MARKUP, MARKUP]}  # fmt: skip
    url, _ = open_page.stage(with_table(head, rows))
    page = open_page(url, tab="plots")
    page.locator(".u-over").hover()
    _, content = saved(page, "SVG")
    assert MARKUP in {one.text for one in ElementTree.fromstring(content).iter(f"{SVG}text")}
    saved(page, "PNG")
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.slow
def test_a_hundred_thousand_points_are_drawn_and_zoomed(open_page: Pages) -> None:
    head = TableHead("train_step", "Steps", "Step", columns=(Column("Step", "int"), Column("loss"), Column("lr")))
    count = 100_000
    wave = np.sin(np.arange(count) / 3000).tolist()
    source = with_table(head, {"Step": list(range(count)), "loss": wave, "lr": [0.5] * count})
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots", color_scheme="light")
    page.wait_for_selector("text=99999")
    assert drawn(page, BLUE) > 500
    page.get_by_label("Smoothing").fill("0.5")
    drag(page, (0.4, 0.5), (0.6, 0.5))
    assert drawn(page, BLUE) > 200
    _, content = saved(page, "SVG")
    assert len(content) < 2_000_000  # as many points as can be seen


def test_the_table_stands_beside_the_plot(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(5))
    page = open_page(url, tab="plots", viewport={"width": 1600, "height": 900})
    page.get_by_role("button", name="Table", exact=True).click()
    plot, table = page.locator(".plotted").bounding_box(), page.locator(".table-pane").bounding_box()
    assert plot and table and table["x"] >= plot["x"] + plot["width"]
    page.set_viewport_size({"width": 1000, "height": 900})
    plot, table = page.locator(".plotted").bounding_box(), page.locator(".table-pane").bounding_box()
    assert plot and table and table["y"] >= plot["y"] + plot["height"]


def test_a_run_that_begins_anew_empties_the_plot(open_page: Pages) -> None:
    url, source = open_page.stage(epochs(5))
    page = open_page(url, tab="plots")
    page.get_by_role("button", name="Init").click()
    page.wait_for_selector("#panel-plots >> text=Nothing recorded yet")
    assert source.orders[0].action == "init"


def test_without_tables_the_tab_says_so(open_page: Pages) -> None:
    source = Stage(paused=True)
    source.tables = {}
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots", empty=True)
    says(page, "Nothing recorded yet: plots appear here")
    page.keyboard.press("3")
    assert "Nothing recorded yet: tables appear here" in page.inner_text("#panel-tables")


@pytest.mark.slow
def test_patterns_alone_do_not_keep_the_tab_from_the_logs_that_come(open_page: Pages) -> None:
    source = Stage(paused=True)
    source.trial_secs = 0.01
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots", empty=True)
    says(page, "Nothing recorded yet: lines appear here as rows come.")
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_selector(".readout b")
    assert page.locator(".segments .on").inner_text().startswith("Train ")


# -- histograms over time ----------------------------------------------------------------------------------------------


def histograms() -> Stage:
    """A table of a watch: a spike that moves from below zero to above it, and a step without a histogram."""
    columns = (
        Column("Step", "int", plotted=False), Column("mean"),
        Column("histogram", "tensor", (5,), plotted=False, edges=(-2.0, -1.0, 1.0, 2.0)),
    )  # fmt: skip
    cells = {"Step": [0, 10, 20, 30], "mean": [-1.5, 0.0, 0.0, 1.5],
             "histogram": [[0, 8, 0, 0, 0], [0, 2, 4, 2, 0], None, [0, 0, 0, 8, 0]]}  # fmt: skip
    return with_table(TableHead("0 output", "0 · output", "Step", columns=columns), cells)


@pytest.mark.parametrize("colour", fast_first(["light", "dark"]))
def test_histograms_over_time_are_drawn_and_read_with_the_arrows(open_page: Pages, colour: str) -> None:
    url, _ = open_page.stage(histograms())
    page = open_page(url, tab="plots", color_scheme=colour)
    page.get_by_text("Histogram over time").click()
    canvas = page.locator(".histogram canvas")
    expect(canvas).to_be_visible()
    seen = pixels(canvas.screenshot())
    assert len(np.unique(seen, axis=0)) > 4  # paper, shares, text
    canvas.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".reading")).to_have_text("Step 0: 0% of 8 values from -1 to 1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".reading")).to_have_text("Step 10: 50% of 8 values from -1 to 1")
    name, data = saved(page, "CSV")
    assert name == "0 output_histogram.csv"
    assert data.decode().splitlines()[1:] == ["0,8,0,0", "10,2,4,2", "30,0,0,8"]
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 0.9, "y": box["height"] * 0.5})
    expect(page.locator(".reading")).to_contain_text("Step 30: ")
    name, data = saved(page, "PNG")
    assert name.endswith(".png") and data.startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_table_without_histograms_has_no_choice_of_them(open_page: Pages) -> None:
    url, _ = open_page.stage(epochs(2))
    page = open_page(url, tab="plots")
    expect(page.locator(".shown-as")).to_have_count(0)


@pytest.mark.slow
def test_many_tables_are_a_list_that_leaves_room_for_the_plot(open_page: Pages) -> None:
    source = Stage(paused=True)
    columns = (Column("Step", "int", plotted=False), Column("mean"))
    heads = [TableHead(f"{number} output", f"{number} · output", "Step", columns=columns) for number in range(60)]
    source.tables = {head.name: TableRows(head, {"Step": [0, 1], "mean": [0.5, 1.0]}, 2) for head in heads}
    url, _ = open_page.stage(source)
    page = open_page(url, tab="plots")
    page.get_by_label("Table", exact=True).select_option("41 output")
    expect(page.locator(".chart")).to_have_attribute("aria-label", re.compile("^41 · output"))
    assert page.locator(".chart").bounding_box()["height"] > 300
