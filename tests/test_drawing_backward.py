"""Forward and backward in one picture: what it shows, which way its arrows point, where it goes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import hand_steps
import pytest
import torch
from drawing_checks import faults, leaves, overlaps, words
from seams import (
    CHARACTERS,
    DARK,
    GRADIENT,
    KEPT,
    LIGHT,
    BackwardFlow,
    BoxView,
    Theme,
    draw_face,
    family_colours,
    gradient_fill,
    latex_to_text,
    typeset,
    walk,
)
from test_drawing_colours import contrast
from test_drawing_html_page import Page
from torch import nn

import torcheer as tl
from torcheer import autograd
from torcheer.drawing import Drawing, draw_history
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"


# As it was looked at


@pytest.mark.parametrize("name", hand_steps.ALL)
@pytest.mark.parametrize("options", [{}, {"depth": 1}, {"depth": "all", "direction": "right"}], ids=str)
def test_nothing_overlaps_and_no_line_crosses_a_box(name: str, options: dict[str, Any]) -> None:
    picture = draw_history(hand_steps.ALL[name](), **options).picture
    assert faults(picture) == [] and overlaps(picture) == []


@pytest.mark.parametrize("name", ["chain", "diamond", "perceptron"])
def test_it_is_drawn_as_it_was_looked_at(name: str, request: pytest.FixtureRequest) -> None:
    drawing = draw_history(hand_steps.ALL[name]())
    file = GOLDEN / f"backward-{name}.svg"
    if request.config.getoption("--overwrite"):
        drawing.save(file)
    assert drawing.svg() == file.read_text(encoding="utf-8")


def test_the_tree_is_written_as_it_was_looked_at(request: pytest.FixtureRequest) -> None:
    text = draw_history(hand_steps.perceptron(), depth="all").text()
    file = GOLDEN / "backward-perceptron.txt"
    if request.config.getoption("--overwrite"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


# What it shows


def test_every_operation_with_a_gradient_has_its_rule_beside_it() -> None:
    drawing = draw_history(hand_steps.attention(), depth="all")
    items = drawing.picture.scene.items
    rules = [item for item in items if item.look == "gradient"]
    operations = {item.number: item for item in items if item.ops}
    assert len(rules) == len(operations) == sum(op.kind == "op" for op in hand_steps.attention())
    assert all(rule.path == operations[rule.pair].path for rule in rules)


def test_a_rule_stands_right_of_its_operation_and_never_above_it() -> None:
    for history in (hand_steps.chain(), hand_steps.diamond(), hand_steps.perceptron()):
        drawing = draw_history(history, depth="all", direction="down")
        at = {drawing.picture.scene.items[first].number: (x, y) for _, x, y, first in placed(drawing)}
        for item in drawing.picture.scene.items:
            if item.look == "gradient":
                assert at[item.number][0] > at[item.pair][0]
                assert at[item.number][1] > at[item.pair][1] - 20


def test_rules_are_formulas_one_line_for_each_gradient() -> None:
    faces = [view.face for view in leaves(draw_history(hand_steps.perceptron())).values()]
    assert "X̄ = Ȳ W\nW̄ = Ȳᵀ X\nb̄ = ∑ Ȳ" in [face.body for face in faces if face.look == "gradient"]


def test_a_bar_is_drawn_above_its_letter_and_a_power_above_the_line() -> None:
    runs = {run.text: run for run in draw_face("", rule_face("tanh", hand_steps.diamond())).runs}
    assert "x" in runs and "¯" in runs and runs["2"].size < runs["x"].size and runs["2"].y < runs["x"].y
    assert all(run.text == run.text.strip() for run in runs.values()), "SVG would leave the spaces out"


def test_no_letter_of_a_formula_is_missing_in_the_font() -> None:
    every = r"\bar y \odot \otimes \oplus A^\top \partial \sqrt x \sum x^2 x_i e^{-x^2} x_{\text{index}} \eta \mathbb 1"
    pieces, width = typeset(latex_to_text(every), 11.5)
    assert width > 0 and set("".join(piece.text for piece in pieces)) <= CHARACTERS


def test_the_loss_sends_a_one_back() -> None:
    drawing = draw_history(hand_steps.chain())
    loss = leaves(drawing)["loss"]
    assert loss.face.look == "output" and loss.face.entries == ("", "1") and loss.face.body == "3.25"


def test_the_title_is_the_users() -> None:
    tape = hand_steps.Tape("energy")
    tape.op("sum", tape.parameter("a", 3), shape=())
    assert words(draw_history(tape.history()))[0] == "energy"


def test_gradients_of_several_uses_meet_at_a_plus() -> None:
    drawing = draw_history(hand_steps.diamond())
    sums = {view.name or view.face.kind for view in shown(drawing) if "+=" in view.face.exits}
    assert sums == {"a", "tanh"}
    assert "gradients of several uses, added up" in words(drawing)
    assert "+=" not in words(draw_history(hand_steps.chain()))


def test_a_value_used_twice_by_one_operation_gets_a_sum_too() -> None:
    history = hand_steps.residual()
    assert flow_of(history).uses[-3 + len(history)] == 2


def test_constants_get_no_gradient_and_stand_muted() -> None:
    drawing = draw_history(hand_steps.chain())
    constant = next(item for item in drawing.picture.scene.items if item.look == "constant")
    assert not [
        net for item in drawing.picture.scene.items for net, _ in item.parents if net == (constant.number, GRADIENT)
    ]
    assert 'class="still"' in drawing.svg()


def test_a_constant_without_a_name_stands_where_it_is_read_and_an_input_outside() -> None:
    items = draw_history(hand_steps.attention(), depth="all").picture.scene.items
    homes = {item.kind: [call.address for call in item.path] for item in items if item.look == "constant"}
    assert homes == {"x": [], "target": [], "constant": ["block", "block.attn"]}


def test_a_parameter_stands_in_its_module_and_a_shared_one_around_all_that_read_it() -> None:
    items = draw_history(hand_steps.residual(), depth="all").picture.scene.items
    homes = {item.step: (item.name, item.path) for item in items if item.look == "parameter"}
    names = [(name, path[-1].address if path else "") for name, path in homes.values()]
    assert ("weight", "blocks.1.fc") in names and ("tied", "") in names


def test_a_rule_that_said_nothing_to_a_parent_has_no_line_to_it() -> None:
    tape = hand_steps.Tape()
    a, b = tape.parameter("a", 3), tape.parameter("b", 3)
    tape.op("sum", tape.op("mul", a, b, sent=(False, True)), shape=(), sent=(True,))
    assert flow_of(tape.history()).sent[2] == [b]


def test_a_composite_that_is_all_there_is_in_a_module_needs_no_box_of_its_own() -> None:
    with autograd.record():
        loss = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))(torch.ones(4, 2)).square().sum()
        items = tl.draw(loss, depth="all").picture.scene.items
    assert {tuple(call.address for call in item.path) for item in items} == {(), ("0",), ("1",)}


def test_a_borrowed_rule_is_marked() -> None:
    drawing = draw_history(hand_steps.attention(), depth="all")
    borrowed = [view.face for view in shown(drawing) if "borrowed" in view.face.marks and view.face.look == "gradient"]
    assert [face.kind for face in borrowed] == ["nll_loss"]
    assert "torch's own rule" in words(drawing)


def test_without_a_parameter_nothing_flows_back() -> None:
    tape = hand_steps.Tape()
    tape.op("sum", tape.constant("x", 3), shape=())
    drawing = draw_history(tape.history())
    assert drawing.boxes == 3 and "no parameters" in drawing.text()


def test_a_style_may_skip_an_operation_and_its_rule() -> None:
    drawing = draw_history(hand_steps.chain(), style=lambda node: False if node.kind == "exp" else None)
    kinds = [item.kind for item in drawing.picture.scene.items]
    assert "exp" not in kinds and faults(drawing.picture) == []
    carries = {
        drawing.picture.scene.items[0].carries[net[1]]
        for item in drawing.picture.scene.items
        for net, _ in item.parents
    }
    assert GRADIENT in carries


# What is kept


def test_the_header_counts_operations_parameters_and_the_bytes_that_are_kept() -> None:
    _, *facts = words(draw_history(hand_steps.perceptron(), depth="all"))
    results = 4 * (4 * 8 + 4 * 16 + 4 * 3)  # x, the tanh and the difference; each once
    assert facts[0].split("  ·  ") == [
        "6 operations", "4 parameters (195 numbers)", f"{results} B kept for backward",
        "704 B of parameters read again",
    ]  # fmt: skip


def test_a_value_that_two_rules_read_is_kept_once() -> None:
    flow = flow_of(hand_steps.diamond())  # tanh keeps its result, and mul reads it
    assert flow.kept_bytes("op") == 2 * 12 and flow.kept_bytes("parameter") == 12


def test_what_is_kept_is_a_dotted_line_to_the_rule_that_reads_it() -> None:
    drawing = draw_history(hand_steps.chain())
    items = {item.number: item for item in drawing.picture.scene.items}
    kept = {
        (items[net[0]].kind, item.kind, item.look)
        for item in items.values()
        for net, _ in item.parents
        if net[1] == KEPT
    }
    assert kept == {("exp", "exp", "gradient"), ("exp", "mul", "gradient"), ("c", "mul", "gradient")}
    assert 'class="kept"' in drawing.svg() and "kept for backward" in words(drawing)


# Lines


def test_gradient_arrows_point_up_and_value_arrows_point_down() -> None:
    for kind, up in (("head-gradient", True), ("head-edge", False), ("head-kept", False)):
        heads = arrow_heads(draw_history(hand_steps.diamond(), direction="down"), kind)
        assert heads and all((base > tip) == up for tip, base in heads), kind


def test_gradients_that_meet_have_one_head() -> None:
    drawing = draw_history(hand_steps.diamond(), direction="down")
    arrivals = {net for item in drawing.picture.scene.items for net, _ in item.parents if net[1] == GRADIENT}
    assert len(arrow_heads(drawing, "head-gradient")) == len(arrivals)


def test_the_legend_tells_the_three_kinds_of_lines() -> None:
    found = words(draw_history(hand_steps.perceptron()))
    assert {"value, forward", "gradient, backward", "kept for backward", "backward rule", "parameter"} <= set(found)


def test_a_folded_module_has_a_line_each_way() -> None:
    drawing = draw_history(hand_steps.perceptron(), depth=1, direction="down")
    svg = drawing.svg()
    assert {view.name for view in shown(drawing) if view.face.folded} == {"0", "1", "2", "mse_loss"}
    assert not [view for view in shown(drawing) if view.face.look == "gradient"]
    assert svg.count('class="head-gradient"') == 1 and len(arrow_heads(drawing, "head-gradient")) == 4


def test_lines_run_straight_from_one_folded_box_to_the_next() -> None:
    drawing = draw_history(hand_steps.perceptron(), depth=1, direction="down")
    root = drawing.picture.root
    assert root.layout and root.composed
    names = [view.name for view in root.inside]
    first = root.layout.entries
    paths = [
        path
        for route, path in zip(root.layout.routes, root.composed.paths)
        if (names[route.source - first], names[route.target - first]) in (("0", "1"), ("1", "2"))
    ]
    assert len(paths) == 5 and all(len(path) == 2 for path in paths)


def test_identical_blocks_are_one_box_with_lines_both_ways() -> None:
    drawing = draw_history(hand_steps.residual(5), depth=1)
    stack = next(view for view in shown(drawing) if view.face.times > 1)
    assert stack.face.times == 4, "the last one's result is read by no other block"
    assert GRADIENT in stack.face.lines[0] and GRADIENT in stack.face.lines[1]


def test_a_picture_of_a_forward_pass_knows_nothing_of_this() -> None:
    text = (Path(__file__).parents[1] / "docs" / "gallery" / "alexnet.svg").read_text()
    assert "gradient{" not in text and "kept" not in text


# Colours


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_formulas_can_be_read(theme: Theme) -> None:
    for paper in (theme.paper, theme.card):
        assert contrast(theme.gradient, paper) >= 4.5 and contrast(theme.kept, paper) >= 3
    assert contrast(theme.ink, gradient_fill(theme)) >= 7 and contrast(theme.soft, gradient_fill(theme)) >= 4.4


def test_a_dark_page_turns_the_new_lines_dark_too() -> None:
    svg = draw_history(hand_steps.chain()).svg("auto")
    assert f".gradient{{stroke:{DARK.gradient}}}" in svg and f".kept{{stroke:{DARK.kept}}}" in svg
    assert LIGHT.gradient not in draw_history(hand_steps.chain(), style="dark").svg()
    assert family_colours("linear", DARK)[1] in draw_history(hand_steps.chain(), style="dark").svg()


# Where it goes


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html", "dot", "txt"])
def test_it_is_saved_in_every_form(ending: str, tmp_path: Path) -> None:
    if ending in ("png", "pdf"):
        pytest.importorskip("resvg_py" if ending == "png" else "reportlab")
    file = tmp_path / f"loss.{ending}"
    draw_history(hand_steps.perceptron(), file)
    assert file.stat().st_size > 300


def test_dot_ranks_gradients_with_the_values_and_points_them_back() -> None:
    text = draw_history(hand_steps.perceptron(), depth="all").dot()
    lines = [line for line in text.splitlines() if " -> " in line]
    assert any("dir=back" in line for line in lines) and any("style=dotted" in line for line in lines)
    assert "W̄ = Ȳᵀ X" in text and text.count("{") == text.count("}")
    for line in text.splitlines():
        quoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)
        assert '"' not in quoted, line


@pytest.mark.skipif(not shutil.which("dot"), reason="no Graphviz here")
def test_graphviz_reads_it() -> None:
    text = draw_history(hand_steps.attention(), depth="all").dot()
    assert subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True).returncode == 0


def test_the_tree_tells_rules_sums_and_what_is_kept() -> None:
    text = str(draw_history(hand_steps.diamond()))
    assert "tanh_1  3  ← a  ↑ x̄ = ȳ ⊙ (1 − y²)  keeps its result  += of 2" in text


def test_a_wrong_option_is_told_before_any_work() -> None:
    with pytest.raises(BadArgument, match="direction='up': use one of auto, down, right"):
        draw_history(hand_steps.chain(), direction="up")
    with pytest.raises(BadArgument, match="drawings are written as"):
        draw_history(hand_steps.chain(), "loss.jpg")
    with pytest.raises(BadArgument, match="a backward pass is drawn with every operation"):
        draw_history(hand_steps.chain(), rolled=True)


@pytest.mark.parametrize("count", [400, pytest.param(1500, marks=pytest.mark.slow)])
def test_many_steps_are_drawn_in_reasonable_time(count: int) -> None:
    random.seed(0)
    tape = hand_steps.Tape()
    values = [tape.parameter("a", 3)]
    for _ in range(count):
        one, two = random.choices(values[-6:], k=2)
        values.append(tape.op(random.choice(["mul", "add"]), one, two))
    picture = draw_history(tape.history(), depth="all", direction="down").picture
    assert faults(picture) == []


# The page


@pytest.fixture
def page(browser_page: Any, tmp_path: Path) -> Page:
    """The perceptron, folded to one level."""
    return Page(browser_page, draw_history(hand_steps.perceptron(), depth=1, direction="down"), tmp_path)


def test_the_page_draws_the_same_lines_as_python(page: Page) -> None:
    for depth in (1, 2):
        drawing = draw_history(hand_steps.perceptron(), depth=depth, direction="down")
        if depth == 2:
            page.page.click('[title="One level more"]')
        for kind in ("gradient", "kept", "head-gradient"):
            script = (
                f"""() => [...document.querySelectorAll(".drawing path.{kind}")].map((one) => one.getAttribute("d"))"""
            )
            assert len(page.page.evaluate(script)) == drawing.svg().count(f'<path class="{kind}" d="M') - in_legend(
                kind
            )


def test_boxes_stand_where_python_puts_them(page: Page) -> None:
    assert page.shown() == page.expected(set())
    page.click("1")
    assert page.shown() == page.expected({"1"})


def test_pointing_at_a_rule_tells_why_and_what_it_keeps(page: Page) -> None:
    page.click("2")
    rule = f"2/{[part.look == 'gradient' for part in page.drawing.picture.scene.root.parts[2].parts].index(True)}"  # type: ignore[union-attr]
    page.point(rule)
    told = page.details()
    assert (
        "tanh, backward" in told
        and "x̄ = ȳ ⊙ (1 − y²)" in told
        and "the slope of tanh." in told
        and "its result" in told
    )


def test_the_page_has_the_legend_of_the_picture(page: Page) -> None:
    legend = page.page.inner_text(".legend")
    assert "value, forward" in legend and "gradient, backward" in legend and "kept for backward" in legend


# Parts of the tests


def in_legend(kind: str) -> int:
    return int(not kind.startswith("head"))


def shown(drawing: Drawing) -> list[BoxView]:
    return [view for view, *_ in walk(drawing.picture.root, 0, 0) if not view.open]


def placed(drawing: Drawing) -> list[tuple[BoxView, float, float, int]]:
    return [(view, x, y, first) for view, x, y, first, *_ in walk(drawing.picture.root, 0, 0) if not view.open]


def flow_of(history: ModelHistory) -> BackwardFlow:
    assert history.facts.backward is not None
    return history.facts.backward


def rule_face(kind: str, history: ModelHistory) -> Any:
    drawing = draw_history(history)
    return next(view.face for view in shown(drawing) if view.face.look == "gradient" and view.face.kind == kind)


def arrow_heads(drawing: Drawing, kind: str) -> list[tuple[float, float]]:
    """For each head the height of its tip and of its base."""
    found = []
    for path in xml.fromstring(drawing.svg()).iter(f"{SVG}path"):
        if path.get("class") == kind:
            for head in re.findall(r"M\S+ (\S+?)L\S+ (\S+?)[HV]", path.get("d") or ""):
                found.append((float(head[0]), float(head[1])))
    return found
