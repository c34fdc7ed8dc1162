"""The public verbs: whole signatures, every parameter described, the same words for the same thing."""

from __future__ import annotations

import importlib.util
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import RunFolder
from torch import nn
from training_loop_cases import session

import torcheer as tl
from torcheer import archive, autograd, drawing, extraction, inspector, studio, training
from torcheer.archive import Archive
from torcheer.errors import BadArgument, NotAnArchive, UnknownOption
from torcheer.extraction import Extraction
from torcheer.integrations import OutsideRun
from torcheer.studio import Table

OLD = Path(__file__).parent / "data" / "0.1"
VERBS = [name for name in tl.__all__ if inspect.isfunction(getattr(tl, name))]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_the_function_in_its_room_and_nothing_there_has_its_name(name: str) -> None:
    verb = getattr(tl, name)
    assert getattr(importlib.import_module(verb.__module__), name) is verb
    is_package = hasattr(sys.modules[verb.__module__], "__path__")
    assert not is_package or importlib.util.find_spec(f"{verb.__module__}.{name}") is None  # imported, it would be it
    shown = pydoc.plain(pydoc.render_doc(verb))
    assert all(line in shown for line in (f"{name}(", *filter(None, inspect.getdoc(verb).splitlines())))


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_its_whole_signature_and_describes_every_parameter(name: str) -> None:
    verb = getattr(tl, name)
    parameters = inspect.signature(verb).parameters
    assert all(one.annotation is not one.empty for one in parameters.values())
    others = [one for one in parameters.values() if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    assert all(one.annotation.startswith("Unpack[") for one in others)  # a TypedDict: each option has its type
    described = set(re.findall(r"`(\w+)`", verb.__doc__))
    assert set(parameters) <= described | {"model"}


@pytest.mark.parametrize(
    "word", ["seed", "device", "progress", "to", "path", "inputs", "input_kwargs", "title", "port"]
)
def test_a_word_stands_for_the_same_type_in_every_verb(word: str) -> None:
    types = {
        str(parameter.annotation).removesuffix(" | None")
        for name in VERBS
        for parameter in inspect.signature(getattr(tl, name)).parameters.values()
        if parameter.name == word
    }
    assert len(types) == 1


@pytest.mark.parametrize("third", [None, {}, {"scale": 2.0}])
def test_keyword_arguments_and_layers_may_be_the_third_and_fourth_argument(third: Any) -> None:
    class Scales(nn.Module):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return x.relu() * scale

    x = torch.ones(2)
    assert tl.log_forward_pass(Scales(), x, third)["mul_1"].tensor_contents.tolist() == [2.0 if third else 1.0] * 2
    history = tl.log_forward_pass(Scales(), x, third, ["relu_1"])
    assert [op.is_saved for op in history] == [False, True, False, False]


@pytest.mark.parametrize("third", ["relu_1", ["relu_1"], torch.ones(2)])
def test_a_third_argument_of_another_kind_is_told_where_it_belongs(third: Any) -> None:
    with pytest.raises(BadArgument, match=r"input_kwargs is a .*layers_to_save=, several inputs into a tuple"):
        tl.log_forward_pass(nn.ReLU(), torch.ones(2), third)


def test_looking_at_the_verbs_loads_no_torch() -> None:
    code = (
        f"import sys, torcheer as tl; [getattr(tl, n) for n in {VERBS}]; help(tl.draw); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_loops_watch_takes_the_options_of_watch_and_does_as_it_does_without_them(tmp_path: Path) -> None:
    """What an option is where it is left out stands in one place, the signature of the verb."""
    run, model = OutsideRun(tmp_path / "run", made_by="a loop", system_secs=0), nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(UnknownOption, match=r"watch has no option 'evry'\. Did you mean 'every'"):
        run.watch(model, evry=5)
    with run.watch(model, layers="0") as ours, tl.watch(model) as plain:
        assert (ours.every, ours.rules, ours.stop_on) == (plain.every, plain.rules, plain.stop_on)
        assert plain.every.steps == inspect.signature(tl.watch).parameters["every"].default
    run.finish()


# Destinations


def test_a_history_is_drawn_to_the_path_that_comes_second(tmp_path: Path) -> None:
    history = tl.log_forward_pass(nn.Linear(2, 3), torch.ones(1, 2))
    tl.draw(history, tmp_path / "a.svg")
    tl.draw(history, path=tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(BadArgument, match="two paths"):
        tl.draw(history, tmp_path / "a.svg", path=tmp_path / "c.svg")


WRITES: dict[
    str, tuple[str, Callable[..., Any], tuple[Any, ...]]
] = {  # name -> its destination, itself, what comes first
    "tl.draw": ("path", tl.draw, ("history",)),
    "history.draw": ("path", tl.ModelHistory.draw, ("history",)),
    "tl.report": ("path", tl.report, ("history",)),
    "Drawing.save": ("path", drawing.Drawing.save, ("drawing",)),
    "archive.export": ("path", archive.export, ("archive",)),
    "Table.to_csv": ("path", Table.to_csv, ("table",)),
    "Network.save_weights": ("path", studio.Network.save_weights, ("network",)),
    "history.save": ("to", tl.ModelHistory.save, ("history",)),
    "archive.save_history": ("to", archive.save_history, ("history",)),
    "archive.import_from": ("to", archive.import_from, ("file",)),
    "archive.repair": ("to", archive.repair, ("archive",)),
    "archive.Writer": ("to", archive.Writer, ()),
    "tl.extract": ("to", tl.extract, ()),
    "tl.watch": ("to", tl.watch, ()),
    "tl.live": ("to", tl.live, ()),
    "training.Session": ("to", training.Session, ()),
    "Simulation.listen": ("to", studio.Simulation.listen, ("simulation",)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_is_written_to_path_and_a_folder_to_to(name: str) -> None:
    word, verb, before = WRITES[name]
    parameters = list(inspect.signature(verb).parameters.values())
    assert [one.name for one in parameters if one.name in ("path", "to")][-1] == word
    if before and name != "tl.draw":  # whose second argument may be a model's inputs
        assert (
            parameters[len(before)].name == word
            and parameters[len(before)].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        )


RUN = ("tl.draw", "history.draw", "tl.report", "Drawing.save", "archive.export", "Table.to_csv", "history.save",
       "archive.save_history", "archive.import_from")  # fmt: skip


@pytest.fixture
def things(tmp_path: Path) -> dict[str, Any]:
    history = tl.log_forward_pass(nn.Linear(2, 3), torch.ones(1, 2))
    kept, exported = history.save(tmp_path / "kept"), tmp_path / "kept.npz"
    archive.export(kept, exported)
    return {
        "history": history, "drawing": history.draw(), "archive": kept, "table": Table({"x": [1, 2]}), "file": exported,
    }  # fmt: skip


@pytest.mark.parametrize("name", RUN)
def test_a_destination_is_taken_by_place_and_by_name(name: str, things: dict[str, Any], tmp_path: Path) -> None:
    word, verb, before = WRITES[name]
    ending = {"archive.export": ".npz", "tl.draw": ".svg", "history.draw": ".svg", "Drawing.save": ".svg"}.get(name, "")
    by_place, by_name = tmp_path / f"place{ending}", tmp_path / f"name{ending}"
    verb(*(things[thing] for thing in before), by_place)
    verb(*(things[thing] for thing in before), **{word: by_name})
    assert by_place.is_file() == by_name.is_file() == (word == "path")
    assert by_place.is_dir() == by_name.is_dir() == (word == "to")


# The same words in every room

PUBLIC = [archive, autograd, drawing, extraction, inspector, studio, tl, training]
OTHER_WORDS = {
    "to": "directory dir folder out_dir output_folder path_root output_dir",
    "path": "file filename filepath file_path out outpath output_path dest destination target save_path archive_path",
    "seed": "random_seed rng_seed",
    "device": "dev devices",
    "progress": "verbose quiet show_progress bar",
}
THEIRS = {  # names of the originals
    ("DataRecorder", "output_folder"), ("DataRecorder", "path_root"), ("tracer.wrap", "out"),
}  # fmt: skip


def public_parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    """Every parameter of every public function, class and method, with the name of its owner."""
    for room in PUBLIC:
        for name in room.__all__:
            thing = getattr(room, name)
            members = inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else []
            ours = [(f"{name}.{member}", method) for member, method in members if member[0] != "_"]
            for owner, function in [(name, thing), *ours]:
                home = str(getattr(function, "__module__", ""))
                if callable(function) and home.startswith("torcheer"):
                    yield from ((owner, parameter) for parameter in inspect.signature(function).parameters.values())


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_no_public_function_has_another_word_for_it(word: str) -> None:
    others = set(OTHER_WORDS[word].split())
    found = {(owner, parameter.name) for owner, parameter in public_parameters() if parameter.name in others}
    assert found - THEIRS == set()


@pytest.mark.parametrize("word", ["seed", "device", "progress"])
def test_a_word_is_never_positional_only_and_means_one_kind_of_thing(word: str) -> None:
    kinds = {"seed": {"int", "int | None"}, "device": {"Any", "str", "str | None"}, "progress": {"bool", "bool | None"}}
    found = [(owner, parameter) for owner, parameter in public_parameters() if parameter.name == word]
    assert found and {str(parameter.annotation) for _, parameter in found} <= kinds[word], found


@pytest.mark.parametrize(
    ("method", "function"),
    [("draw", drawing.draw_history), ("save", archive.save_history), ("backward", torch.Tensor.backward)],
)
def test_a_method_of_a_history_has_the_whole_signature_of_what_it_calls(method: str, function: Any) -> None:
    here = inspect.signature(getattr(tl.ModelHistory, method)).parameters
    there = inspect.signature(function).parameters
    assert [one for one in here if one not in ("self", "loss")] == [
        one for one in there if one not in ("self", "history")
    ]
    assert all(here[one].default == there[one].default for one in here if one in there)


def test_no_method_of_a_history_takes_just_anything() -> None:
    methods = inspect.getmembers(tl.ModelHistory, inspect.isfunction)
    taken = [
        (name, parameter.name)
        for name, method in methods
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    assert taken == []


def test_a_history_can_be_validated_and_takes_no_inputs() -> None:
    history = tl.log_forward_pass(nn.Linear(2, 3), torch.ones(1, 2))
    assert tl.validate(history) and tl.validate(nn.Linear(2, 3), torch.ones(1, 2))
    with pytest.raises(BadArgument, match="a history has run already"):
        tl.validate(history, torch.ones(1, 2))


# Whatever torcheer wrote


@pytest.mark.parametrize(
    ("name", "kind"),
    [("archive", tl.ModelHistory), ("step", tl.ModelHistory), ("extraction", Extraction),
     ("recordings/recording", Archive)],
)  # fmt: skip
def test_load_opens_what_any_verb_wrote(name: str, kind: type) -> None:
    assert isinstance(tl.load(OLD / name), kind)


def test_a_loaded_run_has_its_tables_watches_captures_and_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {"watch": {"every": 1}, "capture": {"every": 5}}
    list(session({"net": nn.Linear(4, 1)}, epochs=1, others={"to": tmp_path}, **options).run())
    run = tl.load(tmp_path)
    assert isinstance(run, RunFolder)
    assert len(run.tables["train_epoch"]) and run.checkpoints and run.watches
    assert "train_epoch" in repr(run) and "checkpoint" in repr(run)
    assert run.captures is not None and len(run.captures.entries)


def test_load_opens_what_is_written_today(tmp_path: Path) -> None:
    model, data = nn.Sequential(nn.Linear(2, 3)), torch.ones(5, 2)
    tl.extract(model, data, layers=["0"], to=tmp_path / "extraction", progress=False)
    tl.log_forward_pass(model, data).save(tmp_path / "history")
    with tl.watch(model, every=1, to=tmp_path / "watch"):
        for _ in range(3):
            model(data).sum().backward()
    found: Any = tl.load(tmp_path / "extraction")
    assert found["0"].shape == (5, 3)
    history: Any = tl.load(tmp_path / "history")
    np.testing.assert_array_equal(history["linear_1"].tensor_contents, found["0"])
    watched: Any = tl.load(tmp_path / "watch")
    assert ("0", "output") in watched


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_what_is_nothing_of_ours_is_refused_by_name(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "thing")
    with pytest.raises(NotAnArchive, match="thing"):
        tl.load(tmp_path / "thing")


def test_a_name_that_its_module_shares_is_the_function_and_one_that_is_a_module_the_module() -> None:
    from types import FunctionType, ModuleType

    from torcheer import inspector, studio

    assert isinstance(studio.show, FunctionType) and isinstance(inspector.watch, FunctionType)
    assert isinstance(tl.edits, ModuleType)
