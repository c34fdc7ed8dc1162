"""The tensors of a layer, from every source: which there are, why others are not, and code that opens the same."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import (
    AskSlice,
    AskStatistics,
    InvalidMessage,
    LogSource,
    Moment,
    RecordedValue,
    Source,
    TensorHead,
    Timeline,
    Window,
    answer_slice,
    answer_statistics,
    cut,
    open_source,
    tensors_of,
)
from seams import parse_message as parse
from studio_runs import captured, trained
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, ValueUnavailable


class Small(nn.Module):
    """A convolution with its normalisation, and a layer in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.head = nn.Linear(288, 5).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.act(self.norm(self.conv(x))).flatten(1).to(torch.bfloat16))
        return result


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, tl.ModelHistory]:
    torch.manual_seed(0)
    model, path = Small(), tmp_path_factory.mktemp("history") / "pass"
    history = tl.log_forward_pass(model, torch.randn(4, 3, 8, 8), save_gradients=True)
    history[-1].tensor_contents.float().sum().backward()
    history.save(path, parameters=True)
    return open_source(path), history


def heads(source: Source, layer: str) -> dict[tuple[str, str], TensorHead]:
    return {(head.parameter, head.variable): head for head in tensors_of(source, layer, -1).tensors}


def cells(source: Source, layer: str, variable: str, parameter: str = "", **choices: Any) -> tuple[Any, dict[str, Any]]:
    """A slice, decoded as a page does, and its header; by default the axes that the server proposes."""
    head = heads(source, layer)[parameter, variable]
    axes = {"tiles": head.tiles, "rows": head.rows, "columns": head.columns, "index": (0,) * len(head.shape)}
    message = answer_slice(source, AskSlice(1, layer, variable, parameter, **{**axes, **choices}))()
    (length,) = struct.unpack_from("<I", message, 4)
    frame = json.loads(message[8 : 8 + length])
    start = -(-(8 + length) // 8) * 8
    return np.frombuffer(message[start:], frame["coded"]).reshape(frame["shape"]), frame


def run_code(code: str, **names: Any) -> Any:
    """The array that the copied code makes."""
    space: dict[str, Any] = dict(names)
    exec(code, space)  # what a user pastes into a notebook
    return space["array"]


def test_a_layer_of_a_pass_has_its_values_parameters_buffers_and_all_their_gradients(passed: Any) -> None:
    found = heads(passed[0], "conv")
    names = [(parameter, variable) for parameter in ("conv.weight", "conv.bias", "norm.weight", "norm.bias")
             for variable in ("Wt", "WtGrad")]  # fmt: skip
    values = [("", "Act"), ("", "Net"), ("", "Grad")]
    buffers = [(f"norm.{name}", "Wt") for name in ("running_mean", "running_var", "num_batches_tracked")]
    assert list(found) == [*values, *names, *buffers]
    assert all(head.why == "" for head in found.values())
    act = found["", "Act"]
    assert (act.shape, act.axes, act.first) == ((4, 8, 6, 6), ("batch", "channel", "row", "column"), 0)
    assert (act.tiles, act.rows, act.columns) == (1, 2, 3)  # feature maps side by side
    assert found["norm.num_batches_tracked", "Wt"].shape == ()


@pytest.mark.parametrize(
    ("layer", "parameter", "variable", "choices"),
    [
        ("conv", "", "Act", {"index": (2, 0, 0, 0)}),
        ("conv", "", "Grad", {"tiles": -1, "rows": 3, "columns": 0, "index": (0, 5, 1, 0)}),
        ("conv", "", "Act", {"tiles": 0, "rows": 3, "columns": 1, "index": (0, 0, 2, 0), "firsts": (1, 2, 3),
                             "counts": (2, 2, 2)}),
        ("conv", "conv.weight", "Wt", {}),
        ("conv", "conv.weight", "WtGrad", {"tiles": 3, "rows": 2, "columns": 0, "index": (0, 1, 0, 0)}),
        ("conv", "norm.running_var", "Wt", {}),
        ("conv", "norm.num_batches_tracked", "Wt", {}),
        ("head", "", "Act", {}),
        ("head", "head.weight", "Wt", {"rows": 1, "columns": 0}),
    ],
)  # fmt: skip
def test_the_copied_code_opens_the_same_numbers(
    passed: Any, layer: str, parameter: str, variable: str, choices: dict[str, Any]
) -> None:
    block, frame = cells(passed[0], layer, variable, parameter, **choices)
    array = run_code(frame["code"])
    assert array.dtype == ("float32" if frame["type"] == "bfloat16" else frame["type"])
    np.testing.assert_array_equal(array.reshape(block.shape), block)


def test_bfloat16_values_keep_their_name_and_every_digit(passed: Any) -> None:
    source, history = passed
    block, frame = cells(source, "head", "Act")
    assert (frame["type"], frame["coded"]) == ("bfloat16", "float32")
    wanted = history[-1].tensor_contents.detach().float().numpy()
    np.testing.assert_array_equal(block[0], wanted)


def test_a_pass_without_parameters_says_how_to_keep_them(tmp_path: Path) -> None:
    tl.log_forward_pass(nn.Linear(3, 2), torch.randn(2, 3), layers_to_save=[]).save(tmp_path / "pass")
    source = open_source(tmp_path / "pass")
    found = heads(source, source.net.layers[-1].layer.name)  # type: ignore[union-attr]
    assert "parameters=True" in found["weight", "Wt"].why and "backward()" in found["weight", "WtGrad"].why
    assert "layers_to_save='all'" in found["", "Act"].why
    with pytest.raises(ValueUnavailable, match="parameters=True"):
        answer_statistics(source, AskStatistics(1, source.net.layers[-1].layer.name, "Wt", "weight"))  # type: ignore[union-attr]


def test_dead_channels_and_sparsity_are_counted(passed: Any) -> None:
    facts = answer_statistics(passed[0], AskStatistics(1, "conv", "Act"))()
    values = passed[1]["relu_1"].tensor_contents
    assert facts.zeros == int((values == 0).sum()) and facts.units == 8 and facts.unit_axis == 1
    assert facts.dead == int((values == 0).all(dim=(0, 2, 3)).sum())


def test_a_recording_opens_in_python_with_the_code_that_is_copied(passed: Any, tmp_path: Path) -> None:
    source = passed[0]
    source.home = tmp_path
    saved = source.save("kept")
    recording = LogSource(tmp_path / saved.name)
    for parameter, variable in (("", "Act"), ("conv.weight", "Wt"), ("norm.bias", "WtGrad")):
        block, frame = cells(recording, "conv", variable, parameter)
        np.testing.assert_array_equal(run_code(frame["code"]).reshape(block.shape), block)
        np.testing.assert_array_equal(cells(source, "conv", variable, parameter)[0], block)


def test_a_live_state_says_that_it_is_in_no_file_and_which_items_it_kept(passed: Any) -> None:
    timeline = Timeline()
    source = Source("live", None, timeline)
    source.net = passed[0].net
    part = np.arange(2 * 288.0, dtype=np.float32).reshape(2, 8, 6, 6)
    timeline.add(Moment(3, 30), {("conv", "Act"): RecordedValue(16, part)}, {("conv", "Grad"): "the layer is frozen"})
    found = heads(source, "conv")
    assert found["", "Act"].first == 16 and found["", "Grad"].why == "the layer is frozen"
    block, frame = cells(source, "conv", "Act", index=(1, 0, 0, 0))
    np.testing.assert_array_equal(block, part[1])
    assert frame["code"] == "" and "save a recording" in frame["code_note"] and frame["moment"] == 3


def test_a_source_without_a_state_says_so_of_each_tensor(passed: Any) -> None:
    source = Source("live", None, Timeline())
    source.net = passed[0].net
    tensors = tensors_of(source, "conv", -1)
    assert tensors.moment == -1 and {head.variable for head in tensors.tensors} == {
        "Act",
        "Net",
        "Grad",
        "Wt",
        "WtGrad",
    }
    assert tensors.tensors[0].why == "no step was recorded yet" and all(head.why for head in tensors.tensors)
    with pytest.raises(ValueUnavailable, match="no state of 'conv' yet"):
        answer_slice(source, AskSlice(1, "conv", "Act"))


def test_what_is_not_there_is_refused_with_what_is(passed: Any) -> None:
    with pytest.raises(BadArgument, match=r"no layer named 'cnov' among 3\. Did you mean 'conv'"):
        tensors_of(passed[0], "cnov", -1)
    with pytest.raises(BadArgument, match=r"no parameter 'conv\.wieght'; it has 7\. Did you mean 'conv\.weight'"):
        answer_slice(passed[0], AskSlice(1, "conv", "Wt", "conv.wieght"))


def test_of_a_large_tensor_a_page_gets_131072_cells_and_no_more() -> None:
    question = {"kind": "ask_slice", "question": 1, "layer": "large", "variable": "Wt", "most_cells": 1 << 17}
    with pytest.raises(InvalidMessage, match="most_cells is 131073"):
        parse(json.dumps(question | {"most_cells": (1 << 17) + 1}))
    asked, large = parse(json.dumps(question)), np.ones((2000, 40, 30), np.float32)
    assert isinstance(asked, AskSlice)
    whole = [Window(0, 0, -1), Window(1, 0, -1), Window(2, 0, -1)]
    block = cut(large, whole, [0, 0, 0], asked.most_cells)
    assert block.cells.size <= 1 << 17 < large.size and len(block.cells) == 1024


def test_attention_weights_of_a_pass_stand_as_heads(tmp_path: Path) -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    tl.log_forward_pass(block, torch.randn(2, 5, 8)).save(tmp_path / "pass", parameters=True)
    source = open_source(tmp_path / "pass")
    name = next(placed.layer.name for placed in source.net.layers if placed.layer.view == "heads")  # type: ignore[union-attr]
    head = heads(source, name)["", "Act"]
    assert head.axes == ("batch", "head", "query", "key") and (head.tiles, head.rows, head.columns) == (1, 2, 3)
    weights, frame = cells(source, name, "Act", index=(1, 0, 0, 0))
    assert weights.shape == (2, 5, 5) and "history.attention" in frame["code_note"]
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=1e-5)


def test_captures_and_checkpoints_of_a_run_open_with_the_code_that_is_copied(tmp_path: Path) -> None:
    source = LogSource(trained(tmp_path / "run"))
    layer = "body.4"
    kept = {key: head for key, head in heads(source, layer).items() if not head.why}
    weights = [key for key in kept if key[1] == "Wt"]
    assert ("", "Act") in kept and len(weights) == 2, heads(source, layer)
    for parameter, variable in (("", "Act"), *weights):
        block, frame = cells(source, layer, variable, parameter)
        np.testing.assert_array_equal(run_code(frame["code"]).reshape(block.shape), block)
    assert "tl.watch(model, what='weight_grad')" in heads(source, layer)[weights[0][0], "WtGrad"].why


def test_captures_alone_show_what_is_in_them(tmp_path: Path) -> None:
    source = LogSource(captured(tmp_path / "captures"))
    assert list(heads(source, "conv")) == [("", "Act")]
    block, frame = cells(source, "conv", "Act", index=(3, 0, 0, 0))
    wanted = np.random.default_rng(3).normal(size=(4, 3, 5, 5)).astype(np.float32)[3]
    np.testing.assert_array_equal(block, wanted)
    np.testing.assert_array_equal(run_code(frame["code"]), wanted)


class Transposed(nn.Module):
    """A linear layer as transformers' GPT-2 has it: (inputs, outputs)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(3, 5)), nn.Parameter(torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


Conv1D = type("Conv1D", (Transposed,), {})
Unheard = type("Unheard", (Transposed,), {})
AXES = {
    "conv": ("output", "input", "row", "column"), "up": ("input", "output", "row", "column"),
    "dense": ("output", "input"), "gpt": ("input", "output"), "own": ("axis 1", "axis 2"),
    "words": ("entry", "feature"),
}  # fmt: skip


class Kinds(nn.Module):
    """A layer of each kind that lays out its weights in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3)
        self.dense, self.gpt, self.own, self.words = nn.Linear(8, 3), Conv1D(), Unheard(), nn.Embedding(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.dense(self.up(self.conv(x))[:, 0])
        words = self.words(torch.zeros(len(rows), dtype=torch.long))
        return self.gpt(rows[:, 0]) + self.own(words)


@pytest.mark.parametrize("layer", AXES)
def test_axes_of_a_weight_are_those_of_its_kind_of_layer_and_numbers_where_it_is_unknown(
    kinds: Source, layer: str
) -> None:
    assert heads(kinds, layer)[f"{layer}.weight", "Wt"].axes == AXES[layer]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("kinds") / "pass"
    tl.log_forward_pass(Kinds(), torch.randn(4, 1, 8, 8)).save(path, parameters=True)
    return open_source(path)
