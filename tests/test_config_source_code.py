"""What the source of a config's code tells without an import: names, arguments, and what it leaves open."""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Unclear
from torch import nn

from torcheer import cli
from torcheer.config import bind, find, read_source
from torcheer.errors import BadConfig, NotTrusted

CODE = """
import abc
import torch
import torch.nn as layers
import torch.utils.data as data
from dataclasses import dataclass
from functools import cache, partial
from torch import nn
from parts import Block, Block as Renamed
from parts.blocks import *

Path("canary").touch()  # this would be seen


class Net(nn.Module):
    def __init__(self, width, /, depth=2, *rest, bias: bool = True, **more):
        super().__init__()

class Inherits(Net): ...
class Rows(data.Dataset[int]): ...
class Modules(layers.Sequential): ...
class Both(Rows, Net): ...
class Own(abc.ABC): ...
class Twice(Rows, Modules, Net): ...
class Generic(torch.utils.data.IterableDataset): ...

class Single:
    def __new__(cls, key): ...

class Meta(metaclass=abc.ABCMeta):
    def __init__(self, key): ...

class Later:
    if torch.cuda.is_available():
        def __init__(self, key): ...

@dataclass
class Facts:
    width: int

def make(width: int, *, depth=3): ...

@cache
def cached(width): ...

@torch.no_grad()
def plain(width): ...

@partial(partial, 3)
def decorated(width): ...

assigned = partial(make, 3)
Alias = Net
Distant = layers.Linear

if torch.cuda.is_available():
    class Conditional: ...

def change():
    global Changed
class Changed: ...
"""
BLOCKS = """
class Starred:
    def __init__(self, size, gain=1.0): ...

class Block:
    def __init__(self, width): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "blocks.py").write_text(BLOCKS)
    (tmp_path / "parts" / "__init__.py").write_text("from .blocks import Block\n")
    (tmp_path / "code_38.py").write_text(CODE)
    return tmp_path


SIGNATURES = {
    "Net": "(width, /, depth=2, *rest, bias: 'bool' = True, **more)",
    "Inherits": "(width, /, depth=2, *rest, bias: 'bool' = True, **more)",
    "Rows": "()",
    "Own": "()",
    "Both": "(width, /, depth=2, *rest, bias: 'bool' = True, **more)",
    "Modules": str(inspect.signature(nn.Sequential)),
    "Generic": "()",
    "Alias": "(width, /, depth=2, *rest, bias: 'bool' = True, **more)",
    "Distant": str(inspect.signature(nn.Linear)),
    "Block": "(width)",
    "Renamed": "(width)",
    "Starred": "(size, gain=1.0)",
    "make": "(width: 'int', *, depth=3)",
    "cached": "(width)",
    "plain": "(width)",
}
UNCLEAR = {
    "Single": "Single makes its objects in its own way (code_38.py:27)",
    "Meta": "Meta makes its objects in its own way",
    "Later": "the constructor of Later is made by a statement",
    "Facts": "Facts is made by a decorator",
    "Twice": "Twice has several constructors to inherit",
    "decorated": "decorated is made by a decorator",
    "assigned": "assigned is made by a statement",
    "Conditional": "Conditional is made by a statement",
    "Changed": "a function changes Changed",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_read_from_the_source_through_imports_and_bases(folder: Path, name: str) -> None:
    target = read_source(f"code_38.{name}", folder=folder)
    assert target.__name__ == {"Renamed": "Block", "Alias": "Net", "Distant": "Linear"}.get(name, name)
    assert str(inspect.signature(target)) == SIGNATURES[name]
    assert inspect.isclass(target) == name[0].isupper()
    assert not Path("canary").exists() and "code_38" not in sys.modules and "parts" not in sys.modules


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_a_source_leaves_open_is_neither_right_nor_wrong(folder: Path, name: str) -> None:
    with pytest.raises(Unclear) as caught:
        read_source(f"code_38.{name}", folder=folder)
    assert UNCLEAR[name] in str(caught.value)


def test_a_name_that_is_not_there_is_named_with_its_nearest(folder: Path) -> None:
    with pytest.raises(BadConfig, match=r"code_38.py has no class or function 'Nett'. Did you mean 'Net'\?"):
        read_source("code_38.Nett", folder=folder)
    with pytest.raises(BadConfig, match=r"parts has no class or function 'Blok'. Did you mean 'Block'\?"):
        read_source("parts.Blok", folder=folder)
    with pytest.raises(BadConfig, match=r"code_38.py has no class or function 'Stared'. Did you mean 'Starred'\?"):
        read_source("code_38.Stared", folder=folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:\n", "own_38.py:1: this is no Python"),
        ("x = 1\nraise RuntimeError\nclass Net: ...\n", "own_38.py:2: this module raises when it is imported"),
        ("from torch import nn\nclass Net(nn.Modul): ...\n", "torch.nn has no 'Modul'. Did you mean 'Module'?"),
    ],
)
def test_a_module_that_cannot_be_imported_is_found_where_its_source_shows_it(
    folder: Path, text: str, message: str
) -> None:
    Path("own_38.py").write_text(text)
    with pytest.raises(BadConfig) as caught:
        read_source("own_38.Net", folder=folder)
    assert str(caught.value).startswith(f"own_38.Net: {message}")


@pytest.mark.parametrize(
    "text",
    ["def __getattr__(name): ...", "globals()['Net'] = 3", "import sys\nsys.modules['x'] = 3", "exec('Net = 3')"],
)
def test_a_module_that_makes_its_names_while_it_runs_is_not_judged(folder: Path, text: str) -> None:
    Path("own_38.py").write_text(text)
    with pytest.raises(Unclear, match="some of its names are made while it runs"):
        read_source("own_38.Net", folder=folder)


def test_imports_in_a_circle_end(folder: Path) -> None:
    Path("own_38.py").write_text("from other_38 import Net")
    Path("other_38.py").write_text("from own_38 import Net")
    with pytest.raises(Unclear, match="lead in a circle"):
        read_source("own_38.Net", folder=folder)


def test_what_a_config_may_not_name_is_refused_behind_an_import_too(folder: Path) -> None:
    Path("own_38.py").write_text("from subprocess import Popen\nfrom torch import load\nfrom xml.sax import parse\n")
    for name in ("Popen", "load", "parse"):
        with pytest.raises(NotTrusted):
            read_source(f"own_38.{name}", folder=folder)


def test_a_source_agrees_with_the_import_about_arguments(folder: Path) -> None:
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, []),
        ({"size": 1}, []),
        ({"gain": 1}, [2]),
        ({"gian": 1}, [2]),
    ]
    for kwargs, args in cases:
        read = bind(read_source("parts.blocks.Starred", folder=folder), kwargs, args)
        assert read == bind(find("parts.blocks.Starred", folder=folder), kwargs, args)


CONFIG = "session_dir: run\ndataset: points.Points\nmodel: {class: points.Net}\noptimizer: {class: Adam, lr: 0.01}\n"
POINTS = """
from torch import nn
class Points:
    def __len__(self): return 8
    def __getitem__(self, index): return 0.0, 1
class Net(nn.Linear): ...
def scaled(**options): return options
"""


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ("model.class=points.Nett", POINTS, "points.py has no class or function 'Nett'. Did you mean 'Net'?"),
        ("model.class=points.Net", f"raise RuntimeError('no')\n{POINTS}", "points.py:1: this module raises"),
        ("model.class=points.Net", POINTS, "Net also needs 'in_features' and 'out_features'"),
        ("model.class=torchvision.models.resnet1", POINTS, "Did you mean 'resnet18'?"),
    ],
)
def test_check_does_not_say_ok_of_a_name_or_argument_that_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: str,
    code: str,
    text: str,
) -> None:
    if "torchvision" in change and find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    monkeypatch.chdir(tmp_path)
    Path("points.py").write_text(code)
    Path("training.yaml").write_text(CONFIG)
    assert cli.main(["check", "training.yaml", change]) == 1
    out = capsys.readouterr().out
    assert text in out and "ok" not in out.split()
    assert "points" not in sys.modules


def test_check_lists_arguments_that_a_function_only_passes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("points.py").write_text(POINTS)
    Path("training.yaml").write_text(CONFIG.replace("{class: points.Net}", "{class: points.scaled, widht: 3}"))
    assert cli.main(["check", "training.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok, but not checked:",
        "- whether points imports without an error: --import runs it",
        "- training.yaml:3: model.widht = 3: scaled takes it as one of **kwargs, and may refuse it.",
    ]


def test_a_class_of_torch_is_asked_itself() -> None:
    assert read_source("torch.nn.Linear") is torch.nn.Linear
