"""docs/cli.md: its commands, exit codes and environment variables are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from torcheer import cli

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cli.md").read_text()
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{1,}")


def variables_read(tree: ast.Module) -> Iterator[str]:
    """Names in `os.environ[…]`, `.get(…)`, `… in os.environ`, also by constants and loops over names of a module."""
    constants = {
        target.id: [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    loops = {
        node.target.id: node.iter
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name)
    }

    def names(value: ast.expr) -> Iterator[str]:
        for part in ast.walk(loops.get(value.id, value) if isinstance(value, ast.Name) else value):
            if isinstance(part, ast.Constant):
                yield part.value
            elif isinstance(part, ast.Name):
                yield from constants.get(part.id, ())

    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and "environ" in ast.unparse(node.value):
            yield from names(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if "environ" in ast.unparse(node.func.value) and node.func.attr in ("get", "pop", "setdefault"):
                yield from names(node.args[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "from_environment":
            yield from names(node.args[0])
        elif isinstance(node, ast.Compare) and any("environ" in ast.unparse(each) for each in node.comparators):
            yield from names(node.left)


def test_the_page_lists_the_environment_variables_that_the_code_reads() -> None:
    texts = (file.read_text() for file in sorted((ROOT / "src" / "torcheer").rglob("*.py")))
    trees = [ast.parse(text) for text in texts if "environ" in text]
    names = {name for tree in trees for name in variables_read(tree) if isinstance(name, str)}
    read = {name for name in names if VARIABLE.fullmatch(name)}
    rows = [
        line.split(" | ")[0] for line in PAGE.partition("## Environment variables")[2].splitlines() if line[:2] == "| "
    ]
    listed = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row)}
    assert listed == read


def test_the_page_has_every_variable_that_is_called_ours() -> None:
    """Also those that are set for others, or stand in a message."""
    texts = (file.read_text() for file in sorted((ROOT / "src" / "torcheer").rglob("*.py")))
    ours = {name for text in texts for name in re.findall(r"\bTORCHEER_[A-Z_]+", text)}
    ours.remove("TORCHEER_WEBHOOK")  # an example of a name that a config may choose
    assert ours and {name for name in ours if f"`{name}`" not in PAGE} == set()


def test_the_page_lists_every_command() -> None:
    table = PAGE.partition("## JSON output")[0]
    assert set(re.findall(r"`([a-z-]+)`", table)) >= set(cli.COMMANDS)
