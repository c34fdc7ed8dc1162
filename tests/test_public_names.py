"""What editors, notebooks and type checkers are told of the public names."""

from __future__ import annotations

import abc
import ast
import copy
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import COUNTS, STATISTICS, LayerView, OpView, RecordFields, RunFolder, Series

import torcheer as tl
from torcheer import _HOMES
from torcheer.errors import BadArgument, NotAnArchive
from torcheer.inspector import open_watch
from torcheer.records import Op


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
    names = {field.name for field in fields(Op)} | {"tensors", "is_launch_timed"}
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
    annotated = [name for cls in Series.__mro__ for name in getattr(cls, "__annotations__", ()) if name[0] != "_"]
    assert sorted(annotated) == sorted([*STATISTICS, *COUNTS])


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


X = torch.ones(4, 2)


@functools.cache
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())


@functools.cache
def captured() -> tl.ModelHistory:
    return tl.log_forward_pass(model(), X)


@functools.cache
def session() -> tl.training.Session:
    linear = torch.nn.Linear(2, 2)
    samples = tl.training.Loader(torch.utils.data.TensorDataset(X, X))
    return tl.training.Session(
        models={"net": linear},
        optimizers={"sgd": torch.optim.SGD(linear.parameters(), 0.1)},
        loaders={"train": samples, "val": samples},
        losses={"loss": torch.nn.MSELoss()},
    )


TENSOR = "Did you mean 'tensor_contents'?"
FIRST_TRIES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: tl.log_forward_pass(model(), X, layers=["0"]), TypeError, "Did you mean 'layers_to_save'?"),
    (lambda: tl.log_forward_pass(model(), X, save=["0"]), TypeError, "Did you mean 'layers_to_save'?"),
    (lambda: tl.log_forward_pass(model(), X, gradients=True), TypeError, "Did you mean 'save_gradients'?"),
    (lambda: tl.log_forward_pass(model(), X, random_seed=0), TypeError, "Did you mean 'seed'?"),
    (lambda: captured()["relu_1"].output, AttributeError, TENSOR),
    (lambda: captured()["relu_1"].value, AttributeError, TENSOR),
    (lambda: captured()["relu_1"].activation, AttributeError, TENSOR),
    (lambda: captured()[0].data, AttributeError, TENSOR),
    (lambda: captured()["relu_1"].gradient, AttributeError, "Did you mean 'grad_contents'?"),
    (lambda: captured().parameters["0.weight"].value, AttributeError, TENSOR),
    (lambda: captured().modules["0"].activation, AttributeError, "Did you mean 'output'?"),
    (lambda: captured().modules["0"].weight, AttributeError, "Did you mean 'parameters'?"),
    (lambda: captured().to_dataframe(), AttributeError, "Did you mean 'to_pandas'?"),
    (lambda: captured().df, AttributeError, "Did you mean 'to_pandas'?"),
    (lambda: captured().plot(), AttributeError, "Did you mean 'draw'?"),
    (lambda: captured().draw(color_by="time"), TypeError, "Did you mean 'colour_by'?"),
    (lambda: tl.draw(captured(), color_by="time"), TypeError, "Did you mean 'colour_by'?"),
    (lambda: captured().save("x", exist_ok=True), TypeError, "Did you mean 'overwrite'?"),
    (lambda: captured().report("x.html", max_bytes=3), TypeError, "report has no option 'max_bytes'. It has path."),
    (lambda: tl.watch(model(), stop="error"), TypeError, "Did you mean 'stop_on'?"),
    (lambda: tl.show(captured(), browsr=False), TypeError, "Did you mean 'browser'?"),
    (lambda: tl.extract(model(), X, layers="0", out="x"), TypeError, "Did you mean 'to'?"),  # type: ignore[call-overload]
    (
        lambda: tl.log_forward_pass(model(), X, edits={"relu_1": tl.edits.zero}),
        BadArgument,
        "tl.edits.zero makes an edit when it is called: write tl.edits.zero()",
    ),
    (lambda: tl.Edit(tl.edits.scale, head=1), BadArgument, "write tl.edits.scale(…)"),
    (lambda: tl.training.Options(lr=3), TypeError, "Options has no option 'lr'. "),  # type: ignore[call-arg]
    (lambda: tl.training.Loader(X, bs=3), TypeError, "Did you mean 'batch_size'?"),  # type: ignore[call-arg]
    (lambda: tl.Save("all", half=True), TypeError, "Did you mean 'dtype'?"),  # type: ignore[call-arg]
    (
        lambda: tl.draw(model(), X, "a.svg"),
        TypeError,
        "takes what, inputs by position, not 3 arguments: name the others",
    ),  # type: ignore[misc]
    (lambda: session().fit(), AttributeError, "Session has no attribute 'fit'. Did you mean 'run'?"),  # type: ignore[attr-defined]
    (lambda: session().metrics_, AttributeError, "Session has no attribute 'metrics_'."),  # type: ignore[attr-defined]
    (lambda: session().evaluate("vall"), BadArgument, "there is no 'vall' among the pipelines"),
    (lambda: tl.inspector.Transport().size, AttributeError, "Transport has no attribute 'size'."),  # type: ignore[attr-defined]
    (lambda: tl.compare, AttributeError, "history.compare(other) compares two runs"),
    (lambda: tl.train, AttributeError, "`torcheer train CONFIG`"),
    (lambda: tl.Session, AttributeError, "'Session': it is torcheer.training.Session"),
    (lambda: tl.Every, AttributeError, "it is torcheer.inspector.Every"),
    (lambda: tl.explain, AttributeError, "it is torcheer.autograd.explain"),
    (lambda: tl.export_model, AttributeError, "it is torcheer.integrations.export_model"),
    (lambda: tl.TorcheerCallback, AttributeError, "torcheer.integrations.lightning"),
    (
        lambda: tl.integrations.TorcheerCallback,
        AttributeError,
        "it is torcheer.integrations.lightning.TorcheerCallback",
    ),
    (lambda: tl.training.Trainer, AttributeError, "Did you mean 'Session'?"),
    (lambda: tl.lod, AttributeError, "Did you mean 'load'?"),
]


@pytest.mark.parametrize("number", range(len(FIRST_TRIES)))
def test_a_plausible_wrong_name_is_answered_with_the_right_one(number: int) -> None:
    call, kind, text = FIRST_TRIES[number]
    with pytest.raises(kind) as raised:
        call()
    assert text in str(raised.value)


def test_a_name_that_only_programs_ask_for_loads_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torcheer.public_names"], "import_module", pytest.fail)
    assert not hasattr(tl, "__wrapped__") and not hasattr(tl.training, "_repr_html_")


def test_a_session_evaluates_a_pipeline_by_its_name_alone() -> None:
    assert session().evaluate("val").keys() == session().evaluate(["val"]).keys() != set()


def test_an_error_inside_a_property_of_ours_is_seen() -> None:
    class Broken(tl.training.EpochsCompleted):
        @property
        def best(self) -> Any:
            return [].append_  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'list' object has no attribute 'append_'"):
        print(Broken(1).best)
    assert not hasattr(Broken(1), "__deepcopy__") and copy.copy(Broken(1)).num_epochs == 1


def test_a_class_of_ours_can_be_mixed_with_an_abstract_one_and_keeps_its_signature() -> None:
    class Own(tl.training.EpochsCompleted, abc.ABC): ...

    assert Own(num_epochs=3).num_epochs == 3
    assert list(inspect.signature(tl.training.Clip).parameters) == ["model", "value", "norm"]


def test_every_name_that_people_try_is_none_of_ours() -> None:
    assert not tl._ELSEWHERE.keys() & _HOMES.keys()


def test_a_path_without_anything_is_answered_with_the_nearest_beside_it(tmp_path: Path) -> None:
    captured().save(tmp_path / "first-run")
    with pytest.raises(NotAnArchive, match=r"no file or folder .*frist-run\. Did you mean 'first-run'\?"):
        tl.load(tmp_path / "frist-run")
    with pytest.raises(NotAnArchive, match=r"no file or folder .*nothing_here\. In .* there are: first-run"):
        tl.load(tmp_path / "nothing_here")
    with pytest.raises(NotAnArchive, match="Its folder is missing, too"):
        tl.load(tmp_path / "nothing" / "here")


def test_a_table_of_a_run_is_asked_for_by_the_names_that_there_are(tmp_path: Path) -> None:
    with tl.live(model(), to=tmp_path / "run", open_server=False) as view:
        view.log(loss=1.0)
    tables = RunFolder(tmp_path / "run").tables
    with pytest.raises(KeyError, match=rf"no table named 'trian' among {len(tables)}\. (Did you mean|There are) "):
        tables["trian"]
    with pytest.raises(KeyError, match="Did you mean"):
        tables[next(iter(tables)).upper()]
