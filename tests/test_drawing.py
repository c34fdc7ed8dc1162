"""Pictures of real models: what they show, how they are asked for, where they go."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing_checks import faults, leaves, words
from fake_trace import FakeTrace
from models import LinearRelu, Swap
from seams import OF_A_PASS, QUANTITIES, STRANGE, overlays_of, walk
from torch import nn

import torcheer as tl
from torcheer.drawing import Style, draw_history
from torcheer.errors import BadArgument

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gallery

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
X = torch.rand(2, 5)


# The gallery


@pytest.mark.parametrize("name", gallery.GALLERY)
def test_the_gallery_is_drawn_as_it_was_looked_at(name: str, request: pytest.FixtureRequest) -> None:
    drawing = gallery.GALLERY[name]()
    assert faults(drawing.picture) == []
    file = GALLERY / f"{name}.svg"
    if request.config.getoption("--overwrite"):
        drawing.save(file)
    assert drawing.svg() == file.read_text(encoding="utf-8")


def test_every_picture_of_the_gallery_is_shown_in_the_docs() -> None:
    text = (GALLERY.parent / "gallery.md").read_text()
    assert {f"gallery/{name}.svg" for name in gallery.GALLERY} == {
        part.partition(")")[0] for part in text.split("](")[1:] if part.startswith("gallery/")
    }
    assert {file.stem for file in GALLERY.glob("*.svg")} == set(gallery.GALLERY)


# What it shows


def test_inputs_and_outputs_stand_outside_all_boxes() -> None:
    drawing = tl.draw(gallery.AlexNet(), torch.rand(1, 3, 64, 64))
    ends = [view for view in drawing.picture.root.inside if view.face.look in ("input", "output")]
    assert len(ends) == 2


def test_each_operation_lies_in_the_box_of_its_module() -> None:
    model = nn.Sequential(gallery.ResNet18().eval(), nn.TransformerEncoderLayer(1000, 2, 8, batch_first=True))
    history = tl.log_forward_pass(model, torch.rand(1, 3, 32, 32), layers_to_save="none")
    drawing = draw_history(history, depth="all")
    seen: list[int] = []
    for view, _, _, first, address, _ in walk(drawing.picture.root, 0, 0):
        if view.open:
            continue
        for index in drawing.picture.scene.items[first].ops:  # none for a bare parameter
            seen.append(index)
            around = history.ops[index].modules[-1].address if history.ops[index].modules else ""
            assert re.sub(":[0-9]+", "", address) == around, "the boxes around it spell the address of its module"
    assert sorted(seen) == list(range(len(history)))


def test_every_operation_is_drawn_where_all_are_asked_for() -> None:
    history = tl.log_forward_pass(gallery.LstmByHand(), torch.rand(2, 6, 8), layers_to_save="none")
    assert draw_history(history, depth="all").boxes == len(history)
    assert draw_history(history, depth="all", rolled=True).boxes == len(history.layers)


def test_a_module_is_named_by_its_attribute_and_class_and_says_what_differs_from_the_defaults() -> None:
    found = words(tl.draw(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1)), torch.rand(1, 3, 8, 8)))
    assert {"0", "Conv2d", "3→8 3×3 /2 pad 1 · 224 params", "1×8×4×4"} <= set(found)


def test_a_loop_is_one_node_with_its_passes_and_a_way_back() -> None:
    drawing = tl.draw(gallery.Recurrent(), X, rolled=True)
    assert words(drawing).count("×4") == 3
    layout = drawing.picture.root.layout
    assert layout and sum(route.back for route in layout.routes) == 1
    assert "runs again (loop)" in words(drawing)


def test_arguments_are_named_where_their_order_matters() -> None:
    query, key, value = (torch.rand(1, 2, 4, 8) for _ in range(3))

    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v) - q

    found = words(tl.draw(Attention(), (query, key, value)))
    assert {"query", "key", "value", "input", "other"} <= set(found)


def test_addition_needs_no_names() -> None:
    class Add(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + x

    assert all(not name for view in leaves(tl.draw(Add(), X)).values() for name in view.face.entries)


def test_several_results_are_numbered() -> None:
    found = words(tl.draw(Swap(), X))
    assert {"0: 2×2", "1: 2×3"} <= set(found)


def test_parameters_buffers_frozen_and_shared_weights_are_marked() -> None:
    drawing = gallery.GALLERY["tuning"]()
    found = words(drawing)
    looks = {address: view.face for address, view in leaves(drawing).items()}
    assert looks["places"].look == "parameter" and looks["mask"].look == "buffer"
    assert looks["encoder.0"].marks == ("frozen",) and looks["embed"].badge == looks["head"].badge == "A"
    assert {"frozen parameters", "same letter: shared weights", "parameter", "buffer"} <= set(found)
    assert "2.1k params frozen" in " ".join(found)


def test_edges_say_where_gradients_flow() -> None:
    svg = tl.draw(nn.Sequential(nn.Linear(5, 5), nn.ReLU()), X).svg()
    assert 'class="still"' in svg and 'class="edge"' in svg
    with torch.no_grad():
        svg = tl.draw(nn.Sequential(nn.Linear(5, 5), nn.ReLU()), X).svg()
    assert 'class="still"' not in svg


def test_identical_blocks_are_one_box_that_unfolds() -> None:
    history = tl.log_forward_pass(nn.Sequential(*(LinearRelu() for _ in range(6))), X, layers_to_save="none")
    assert "×6" in words(draw_history(history))
    unrolled = draw_history(history, depth="all")
    assert "×6" not in words(unrolled) and unrolled.boxes == len(history)


@torch.no_grad()
def test_the_inside_of_a_fused_kernel_is_drawn_beside_it_and_holds_its_weights() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    drawn = words(tl.draw(encoder, torch.rand(1, 4, 8)))
    assert "×3" in drawn and "inside of a fused kernel, computed beside it" in drawn
    folded = words(tl.draw(encoder, torch.rand(1, 4, 8), depth=1))
    assert "1.8k params" in folded and 3 * sum(p.numel() for p in layer.parameters()) == 1800
    opened = words(tl.draw(layer.eval(), torch.rand(1, 4, 8), depth="all"))
    assert "_transformer_encoder_layer_fwd" in opened
    assert "self_attn.in_proj_weight" not in opened and "same letter: shared weights" not in opened


def test_blocks_whose_results_are_kept_are_not_made_one() -> None:
    class Keeper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(LinearRelu() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for block in self.blocks:
                x = block(x)
                kept.append(x)
            return torch.stack(kept)

    assert not any(word.startswith("×") for word in words(tl.draw(Keeper(), X)))


def test_chains_of_reshapes_are_one_pill() -> None:
    class Shapes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(5, 2).transpose(0, 1).contiguous().unsqueeze(0).relu()

    drawing = tl.draw(Shapes(), X)
    assert "reshape ×4" in words(drawing) and drawing.boxes == 4
    assert tl.draw(Shapes(), X, depth="all").boxes == 7


def test_the_counter_of_a_batch_norm_is_part_of_its_box() -> None:
    drawing = tl.draw(nn.Sequential(nn.BatchNorm1d(5), nn.ReLU()).train(), X)
    assert drawing.boxes == 4


def test_a_model_that_raised_shows_what_ran_and_where_it_stopped(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(gallery.Broken(), torch.rand(2, 8), vis_opt="unrolled", vis_path=tmp_path / "broken.svg")
    text = (tmp_path / "broken.svg").read_text()
    assert ">stopped<" in text and "RuntimeError in linear" in text and ">ReLU<" in text
    assert str(tmp_path / "broken.svg") in capsys.readouterr().out
    drawing = raised.value.history.draw()  # type: ignore[attr-defined]
    stop = leaves(drawing)["stopped"]
    assert stop.face.look == "stop" and "stopped early" in drawing.svg()


def test_calls_of_a_recording_are_boxes_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
    with tl.recording(model) as history:
        loss = model(model(X)).sum()
        loss.backward()
    found = words(history.draw(depth="all"))
    assert found.count("call 1") == found.count("call 2") == 1 and "sum" in found


# How it is asked for


def test_vis_opt_writes_the_models_name_and_says_where(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    tl.log_forward_pass(gallery.Recurrent(), X, vis_opt="rolled")
    assert capsys.readouterr().out == "drawing written to Recurrent.svg\n"
    assert "×4" in Path("Recurrent.svg").read_text()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html", "dot", "gv", "txt", "SVG"])
def test_the_ending_of_the_path_names_the_form(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    tl.draw(nn.Linear(5, 2), X, path=path)
    start = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype html>", "txt": b"Linear"}
    assert path.read_bytes().startswith(start.get(ending.lower(), b"digraph"))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_path_without_an_ending_is_svg(tmp_path: Path) -> None:
    assert tl.draw(nn.Linear(5, 2), X).save(tmp_path / "model") == tmp_path / "model.svg"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "model.gif"}, r"drawings are written as .svg, .png, .pdf, .html, .dot, .gv, .txt, not .gif"),
        ({"path": "no/such/folder/x.svg"}, "there is no folder 'no/such/folder'"),
        ({"direction": "up"}, "direction='up': use one of auto, down, right"),
        ({"colour_by": "size"}, f"colour_by='size': use one of kind, {', '.join(OF_A_PASS)}"),
        ({"colour_by": "gradient"}, "this history holds no gradients"),
        ({"depth": 0}, "depth=0: use a number from 1, 'all', or None"),
        ({"depth": True}, "depth=True"),
        ({"style": "blue"}, "theme='blue': use one of auto, light, dark"),
        ({"style": {"theem": "dark"}}, "the keys are theme, node, collapse, header, legend"),
        ({"style": 7}, "use 'light', 'dark', a function of a node"),
        ({"style": lambda node: "red"}, "answer None to leave it, False to skip it, or a dict"),
    ],
)
def test_what_cannot_be_drawn_is_said_plainly(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        tl.draw(nn.Linear(5, 2), X, **options)


def test_a_model_needs_inputs_and_a_history_none() -> None:
    with pytest.raises(BadArgument, match=r"give it inputs: draw\(model, x\)"):
        tl.draw(nn.Linear(5, 2))
    with pytest.raises(BadArgument, match="a history has run already"):
        tl.draw(tl.log_forward_pass(nn.Linear(5, 2), X), X)
    with pytest.raises(BadArgument, match="got str"):
        tl.draw("model")  # type: ignore[arg-type]


def test_depth_folds_modules() -> None:
    history = tl.log_forward_pass(gallery.ResNet18().eval(), torch.rand(1, 3, 32, 32), layers_to_save="none")
    boxes = [draw_history(history, depth=depth).boxes for depth in (1, 2, 3)]
    assert boxes == sorted(set(boxes))
    assert "layer1" in leaves(draw_history(history, depth=1))


def test_modules_are_collapsed_by_pattern_class_or_function() -> None:
    history = tl.log_forward_pass(gallery.ResNet18().eval(), torch.rand(1, 3, 32, 32), layers_to_save="none")
    for collapse in ("layer*", ["layer?"], nn.Sequential, lambda address, kind, depth: kind == "Sequential"):
        assert "layer2" in leaves(draw_history(history, depth="all", style=Style(collapse=collapse)))
    by_class = leaves(draw_history(history, depth="all", style={"collapse": "Block"}))
    assert "layer2.0" in by_class and "layer2.0.conv1" not in by_class


def test_a_function_restyles_and_skips_nodes() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Dropout(), nn.ReLU())

    def style(node: Any) -> Any:
        if node.kind == "Dropout":
            return False
        return {"title": "first", "fill": "#ffeeee"} if node.address == "0" else None

    drawing = tl.draw(model, X, style=style)
    assert {"first", "ReLU"} <= set(words(drawing)) and "Dropout" not in words(drawing)
    assert 'fill="#ffeeee"' in drawing.svg()
    layout = drawing.picture.root.layout
    assert layout and len(layout.routes) == 3, "what was before and after the skipped node is joined"


def test_the_function_is_told_everything_about_a_node() -> None:
    seen = []
    tl.draw(nn.Sequential(nn.Linear(5, 3)), X, style=seen.append)
    linear = next(node for node in seen if node.kind == "Linear")
    assert (linear.address, linear.look, linear.family, linear.parameters) == ("0", "module", "linear", 18)
    assert linear.labels == ("linear_1_1",) and linear.shapes == ((2, 3),)


def test_gradients_that_are_not_finite_colour_their_own_boxes_and_the_page_can_be_read() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            z = torch.sqrt(y * 0)  # its slope is infinite, and 0 times that is no number
            return torch.cos(x).sum() + z.sum()

    history = tl.log_forward_pass(Model(), torch.rand(3, requires_grad=True), save_gradients=True)
    history.backward(history["output_1"].tensor_contents)
    drawing = draw_history(history, colour_by="gradient")
    svg = drawing.svg()
    assert "mean |gradient|: 1" in svg and "NaN or infinite" in svg and svg.count(STRANGE) >= 2
    values = overlays_of(history, drawing.picture.scene.items)["gradient"]
    assert json.dumps(values, allow_nan=False) == '["NaN", "NaN", "Infinity", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]'


@pytest.mark.parametrize("way", OF_A_PASS)
def test_boxes_are_coloured_by_a_number(way: str) -> None:
    history = tl.log_forward_pass(gallery.AlexNet(), torch.rand(1, 3, 64, 64), save_gradients=True)
    history.backward()
    svg = draw_history(history, colour_by=way, depth=1).svg()
    assert f"{QUANTITIES[way].legend}: " in svg
    assert "#fee838" in svg, "the largest has the last colour of the ramp"


def test_boxes_have_the_parameters_of_the_model_together_each_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.body(self.embedding(x))))

    model = Tied()
    drawing = draw_history(tl.log_forward_pass(model, torch.tensor([[1, 2]])), colour_by="parameters")
    values = overlays_of(drawing.history, drawing.picture.scene.items)["parameters"]
    assert sum(value or 0 for value in values) == sum(weight.numel() for weight in model.parameters()) == 28 + 20
    assert "parameters: 20 – 28" in drawing.svg()


def test_dark_is_asked_for_or_left_to_the_reader() -> None:
    drawing = tl.draw(nn.Linear(5, 2), X)
    assert "prefers-color-scheme: dark" in drawing.svg() and "prefers" not in drawing.svg("light")
    assert 'fill="#14171b"' in tl.draw(nn.Linear(5, 2), X, style="dark").svg()


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_header_says_which_mode_the_model_was_in(mode: str) -> None:
    model = nn.Sequential(nn.Linear(5, 2)).train(mode == "train")
    history = tl.log_forward_pass(model, X)
    model.train()
    assert f"{mode} mode" in words(history.draw())[1]


def test_header_and_legend_can_be_left_out() -> None:
    whole, bare = (words(tl.draw(nn.Linear(5, 2), X, style=Style(header=on, legend=on))) for on in (True, False))
    assert whole[0] == "Linear" and "1 operation" in whole[1] and "linear, embedding, recurrent" in whole
    assert bare[0] == "2×5" and "linear, embedding, recurrent" not in bare


def test_a_drawing_shows_itself_in_a_notebook_and_in_print() -> None:
    drawing = tl.draw(nn.Linear(5, 2), X)
    assert drawing._repr_svg_().startswith("<svg")
    assert repr(drawing).startswith("<Drawing of Linear: 3 boxes, ")
    assert "linear_1_1" in str(drawing)


# Quality


def test_a_default_drawing_is_readable_on_a_page_and_not_too_long() -> None:
    for model, x in ((gallery.AlexNet(), gallery.picture(64)), (gallery.ResNet18(), gallery.picture(64))):
        box = tl.draw(model, x).picture.root.box
        assert min(1400 / box.width, 820 / box.height) >= 0.9
        assert 1 / 2.5 <= box.width / box.height <= 2.5


@pytest.mark.parametrize("direction", ["down", "right"])
def test_a_long_chain_is_wrapped(direction: str) -> None:
    chain = nn.Sequential(*(nn.Linear(5, 5) if n % 2 else nn.ReLU() for n in range(60)))
    box = tl.draw(chain, X, direction=direction).picture.root.box
    assert 1 / 2.5 <= box.width / box.height <= 2.5


def test_hostile_names_are_only_text() -> None:
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>&\"'\x00", nn.Linear(5, 2))
    drawing = tl.draw(model, X)
    xml.fromstring(drawing.svg())
    assert "<img" not in drawing.svg() and "<img" not in drawing.html()
    assert drawing.png() and drawing.pdf() and drawing.dot()


@pytest.mark.parametrize(("ops", "depth"), [(0, None), (1, "all"), (4000, None), (4000, "all")])
def test_any_number_of_operations_is_drawn(ops: int, depth: str | None) -> None:
    trace = FakeTrace("Long")
    for index in range(ops):
        trace.add("relu", *([index - 1] if index else []))
    drawing = draw_history(trace.history(), depth=depth)
    assert drawing.boxes == ops
    box = drawing.picture.root.box
    assert not ops or 1 / 4 < box.width / box.height < 4
    xml.fromstring(drawing.svg())


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_no_edge_passes_through_a_box_in_a_drawing_of_thousands(count: int) -> None:
    trace = FakeTrace("Wide")
    for index in range(count):
        near = [index - 1] if index else []
        trace.add("add", *near, *([index - 7] if index % 5 == 0 and index > 7 else []))
    drawing = draw_history(trace.history(), depth="all")
    assert drawing.boxes == count and faults(drawing.picture) == []
