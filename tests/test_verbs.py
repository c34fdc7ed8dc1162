"""The public verbs: whole signatures, every parameter described, the same words for the same thing."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer import verbs
from torcheer.archive import Archive
from torcheer.capture import forward_pass
from torcheer.errors import BadArgument, NotAnArchive
from torcheer.extraction import extract
from torcheer.extraction.extraction_reader import Extraction
from torcheer.host import live, show
from torcheer.monitor import watch
from torcheer.runlog.run_folder import RunFolder
from torcheer.runlog.watch_reader import Watched

OLD = Path(__file__).parent / "data" / "0.1"
ROOMS = {  # each verb beside the function of its room
    "log_forward_pass": forward_pass.log_forward_pass, "recording": forward_pass.recording, "extract": extract,
    "watch": watch.watch, "show": show.show, "live": live.live,
}  # fmt: skip
ONLY_HERE = {"vis_opt", "vis_path"}


@pytest.mark.parametrize("name", verbs.__all__)
def test_a_verb_has_its_whole_signature_and_describes_every_parameter(name: str) -> None:
    verb = getattr(tl, name)
    parameters = inspect.signature(verb).parameters
    assert all(one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters.values())
    assert all(one.annotation is not one.empty for one in parameters.values())
    described = set(re.findall(r"`(\w+)`", verb.__doc__))
    assert set(parameters) <= described | {"model"}


@pytest.mark.parametrize("name", ROOMS)
def test_a_verb_takes_what_its_room_takes_with_the_same_defaults(name: str) -> None:
    here = inspect.signature(getattr(tl, name)).parameters
    there = inspect.signature(inspect.unwrap(ROOMS[name])).parameters
    assert [one for one in here if one not in ONLY_HERE] == list(there)
    assert {one: there[one].default for one in there} == {one: here[one].default for one in there}


@pytest.mark.parametrize(
    "word", ["seed", "device", "progress", "to", "path", "inputs", "input_kwargs", "title", "port"]
)
def test_a_word_stands_for_the_same_type_in_every_verb(word: str) -> None:
    types = {
        str(parameter.annotation).removesuffix(" | None")
        for name in verbs.__all__
        for parameter in inspect.signature(getattr(tl, name)).parameters.values()
        if parameter.name == word
    }
    assert len(types) == 1


def test_looking_at_the_verbs_loads_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, torcheer as tl; [getattr(tl, n) for n in tl._VERBS]; help(tl.draw); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# Destinations


def test_a_history_is_drawn_to_the_path_that_comes_second(tmp_path: Path) -> None:
    history = tl.log_forward_pass(nn.Linear(2, 3), torch.ones(1, 2))
    tl.draw(history, tmp_path / "a.svg")
    tl.draw(history, path=tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(BadArgument, match="two paths"):
        tl.draw(history, tmp_path / "a.svg", path=tmp_path / "c.svg")


def test_a_history_can_be_validated_and_takes_no_inputs() -> None:
    history = tl.log_forward_pass(nn.Linear(2, 3), torch.ones(1, 2))
    assert tl.validate(history) and tl.validate(nn.Linear(2, 3), torch.ones(1, 2))
    with pytest.raises(BadArgument, match="a history has run already"):
        tl.validate(history, torch.ones(1, 2))


# Whatever torcheer wrote


@pytest.mark.parametrize(
    ("name", "kind"),
    [("archive", tl.ModelHistory), ("step", tl.ModelHistory), ("extraction", Extraction), ("watch", Watched),
     ("training/run", RunFolder), ("recordings/recording", Archive)],
)  # fmt: skip
def test_load_opens_what_any_verb_wrote(name: str, kind: type) -> None:
    assert isinstance(tl.load(OLD / name), kind)


def test_a_loaded_run_has_its_tables_watches_captures_and_config() -> None:
    run = tl.load(OLD / "training" / "run")
    assert isinstance(run, RunFolder)
    assert len(run.tables["train_epoch"]) and run.config is not None and run.checkpoints
    assert "train_epoch" in repr(run) and "checkpoint" in repr(run)
    assert run.captures is None or len(run.captures.entries)


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
