"""Every torch API the autograd room uses stands in its Whitelist.txt, and nothing else does.

Run with --overwrite to write the list anew, then read what changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import torch

ROOM = Path(__file__).parents[1] / "src" / "torcheer" / "autograd"
LIST = ROOM / "Whitelist.txt"
FILES = sorted(ROOM.rglob("*.py"))

# Files that may use torch's own autograd, and why.
AUTOGRAD = {
    "gradients/gradcheck.py": "compares with torch",
    "tape/autograd_methods.py": "replaces torch's API",
    "tape/custom_functions.py": "runs users' own Functions",
    "tape/optimizer_pause.py": "hooks the end of an optimizer's step",
    "tape/torch_rules.py": "calls torch where the user set borrow=True",
}
GROUPS = [
    (
        "torch.autograd",
        "Torch's own autograd, in these files:" + "".join(f"\n#   {name} {why}" for name, why in AUTOGRAD.items()),
    ),
    ("torch._C", "Private parts: switching autograd off, and seeing calls"),
    ("torch._", "Private parts, as Python"),
    ("torch.nn.functional", "Functions of torch.nn.functional"),
    ("torch.nn", "Torch's own modules, to distinguish them from ours"),
    ("torch.overrides", "Seeing calls"),
    ("torch.return_types", "Result types of max and similar functions"),
    ("torch", "Functions, types and settings"),
    ("Tensor", "Attributes and methods of a tensor; also any other attribute of the same name"),
]
# Private names of torch that the room reads by their public names here.
TORCH_STATE = ROOM.parent / "capture" / "torch_state.py"
PRIVATE = {
    node.targets[0].id: node.value.args[0].value
    for node in ast.parse(TORCH_STATE.read_text()).body
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "_private"
}
MEMBERS = {name for name in dir(torch.Tensor) if not hasattr(object, name)}


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Every torch API a file names, with its line."""
    tree = ast.parse(source)
    homes = dict(imported(tree))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and dotted(node.value, homes)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from ((node.lineno, f"{node.module}.{one.name}") for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "torcheer.capture.torch_state":
            yield from ((node.lineno, PRIVATE[one.name]) for one in node.names if one.name in PRIVATE)
        elif isinstance(node, ast.Attribute):
            name = dotted(node, homes)
            of_tensor = name is None or name.startswith("torch.Tensor.")
            if not of_tensor and id(node) not in inner:
                yield node.lineno, str(name)
            if of_tensor and node.attr in MEMBERS:
                yield node.lineno, f"Tensor.{node.attr}"


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that stand for something of torch's: imports, and assignments of a dotted name."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(one.asname or one.name.split(".")[0], one.name if one.asname else "torch") for one in node.names
                     if one.name.split(".")[0] == "torch"]  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            found = [(one.asname or one.name, f"{node.module}.{one.name}") for one in node.names]
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = dotted(node.value, known)
            found = [(node.targets[0].id, name)] if name is not None and "." in name else []
        else:
            continue
        known.update(found)
        yield from found


def dotted(node: ast.AST, homes: dict[str, str]) -> str | None:
    """`torch.nn.functional.pad`, however it was imported; None for what does not begin at torch."""
    if isinstance(node, ast.Name):
        return homes.get(node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, homes)
        return None if before is None else f"{before}.{node.attr}"
    return None


def used() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in FILES:
        for line, name in names_in(file.read_text()):
            found.setdefault(name, []).append(f"{file.relative_to(ROOM)}:{line}")
    return found


def listed() -> list[str]:
    lines = [line.strip() for line in LIST.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def group_of(name: str) -> str:
    return next(
        prefix
        for prefix, _ in GROUPS
        if name == prefix or name.startswith(prefix if prefix[-1] == "_" else f"{prefix}.")
    )


def written(names: list[str]) -> str:
    parts = []
    for prefix, title in reversed(GROUPS):
        members = sorted(name for name in names if group_of(name) == prefix)
        if members:
            parts.append("\n".join([f"# {title}", *members]))
    head = "# Every torch API that torcheer.autograd uses; tests/test_autograd_whitelist.py holds it to this list."
    return "\n\n".join([head, *parts]) + "\n"


@pytest.fixture(autouse=True, scope="module")
def _rewritten(request):
    if request.config.getoption("--overwrite"):
        LIST.write_text(written(list(used())))


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="what a Tensor has differs from version to version"
)
def test_nothing_is_used_that_is_not_listed():
    known = set(listed())
    assert {name: places for name, places in used().items() if name not in known} == {}


def test_nothing_is_listed_that_is_not_used():
    assert sorted(set(listed()) - set(used())) == []


def test_nothing_is_listed_twice():
    assert len(listed()) == len(set(listed()))


def test_the_list_stands_in_its_groups():
    assert LIST.read_text() == written(listed())


def test_torchs_own_autograd_is_named_only_where_the_list_says():
    places = [place for name, found in used().items() if group_of(name) == "torch.autograd" for place in found]
    assert sorted({place.split(":")[0] for place in places}) == sorted(AUTOGRAD)


def test_the_list_ships_with_the_package():
    assert files("torcheer.autograd").joinpath("Whitelist.txt").read_text() == LIST.read_text()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch\ntorch.autograd.grad(1)", ["torch.autograd.grad"]),
        ("import torch as t\nt.autograd.grad(1)", ["torch.autograd.grad"]),
        ("import torch.autograd as a\na.grad(1)", ["torch.autograd.grad"]),
        ("import torch.nn\ntorch.nn.Linear", ["torch.nn.Linear"]),
        ("from torch import autograd\nautograd.grad(1)", ["torch.autograd", "torch.autograd.grad"]),
        ("from torch.nn import functional as F\nF.pad(x)", ["torch.nn.functional", "torch.nn.functional.pad"]),
        ("def f():\n    from torch import compile", ["torch.compile"]),
        ("import torch\nhome = torch._C\nhome.secret()", ["torch._C", "torch._C.secret"]),
        ("import torch\ntorch.ones(2).backward()", ["Tensor.backward", "torch.ones"]),
        ("from torch import Tensor\nTensor.add_", ["Tensor.add_", "torch.Tensor"]),
        ("x.grad_fn", ["Tensor.grad_fn"]),
        ("x.__class__.colour", []),
    ],
)
def test_a_use_of_torch_is_noticed(source, names):
    assert sorted({name for _, name in names_in(source)}) == names
