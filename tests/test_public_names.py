"""What editors, notebooks and type checkers are told of the public names."""

from __future__ import annotations

import ast
import importlib
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import torcheer as tl
from torcheer import _HOMES
from torcheer.history.op_views import LayerView, OpView, RecordFields
from torcheer.inspector import open_watch
from torcheer.records import Op
from torcheer.runlog.log_frames import COUNTS, STATISTICS
from torcheer.runlog.watch_reader import Series


def test_the_list_of_names_that_is_written_out_is_the_whole_list() -> None:
    assert sorted(tl.__all__) == sorted([*_HOMES, "__version__"])
    assert set(tl.__all__) <= {*dir(tl), "__version__"}
    assert tl.training.Session.__name__ == "Session" and tl.errors.TorcheerError.__name__ == "TorcheerError"


ROOMS = (
    "torcheer", "torcheer.training", "torcheer.training.control", "torcheer.integrations", "torcheer.inspector",
    "torcheer.studio", "torcheer.autograd", "torcheer.archive", "torcheer.extraction", "torcheer.drawing",
    "torcheer.modelfiles",
)  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_the_programs_for_type_checkers_use_every_public_name(room: str) -> None:
    """They are checked strictly by mypy (`make check-python`) and by pyright (`make check-types`)."""
    used = set[str]()
    for program in ("typed_user.py", "typed_user_parts.py"):
        tree = ast.parse((Path(__file__).parent / program).read_text())
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(importlib.import_module(room).__all__) - used == set()


def test_every_field_of_a_record_is_typed_in_its_views() -> None:
    typed = RecordFields.__annotations__.keys()
    names = {field.name for field in fields(Op)} | {"tensors"}
    for view in (OpView, LayerView):
        assert names <= typed | view.__annotations__.keys() | vars(view).keys()
    assert typed <= names
    own = {name for name, value in vars(OpView).items() if isinstance(value, property)}
    per_pass = {
        "label",
        "layer",
        "pass_number",
        "tensor_contents",
        "written_contents",
        "grad_contents",
        "gradients",
    } | {"variables"}
    assert own - per_pass - {"below", "key", "passes", "numbers", "num_passes", "lookup_keys"} <= (
        LayerView.__annotations__.keys() | vars(LayerView).keys()
    )


def test_every_column_of_a_watch_is_typed_in_its_series() -> None:
    annotated = [name for name in Series.__annotations__ if not name.startswith("_")]
    assert annotated == [*STATISTICS, *COUNTS]


def test_keys_are_completed_in_a_notebook(tmp_path: Path) -> None:
    completer = pytest.importorskip("IPython.core.completer")
    model, data = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.rand(4, 2)
    with tl.watch(model, to=tmp_path / "watched"):
        model(data).sum().backward()
    history = tl.log_forward_pass(model, data)
    names = {
        "history": history,
        "modules": history.modules,
        "extraction": tl.extract(model, data, layers=["0", "1"], to=tmp_path / "layers", progress=False),
        "watched": open_watch(tmp_path / "watched"),
    }
    offers = completer.IPCompleter(namespace=names, use_jedi=False)

    def completed(text: str) -> set[str]:
        with completer.provisionalcompleter():
            return {completion.text for completion in offers.completions(text, len(text))}

    assert "relu_1" in completed("history['rel")
    assert completed("modules['") >= {"0", "1"} and completed("extraction['") >= {"0", "1"}
    assert any("output" in text for text in completed("watched['1', '"))


def test_a_history_writes_its_own_report(tmp_path: Path) -> None:
    history = tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2))
    history.report(tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()
