"""docs/rules.md is written from the docstrings of the rules."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import torcheer.autograd
from torcheer.autograd.rules import COMPOSITES, RULES

ROOM = Path(torcheer.autograd.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
HEAD = """# Every rule

Written from the docstrings of `src/torcheer/autograd/rules` and `composites`, by
`pytest tests/test_autograd_docs.py --overwrite`. $y$ is the result of an operation, $\\bar y$ the gradient that arrives
at it, $\\bar x$ the one that goes on to $x$; $\\odot$ multiplies element by element, $[\\,\\cdot\\,]$ is 1 where true.
[autograd.md](autograd.md) explains the idea.
"""


def sections(functions: dict[Any, list[str]], folder: str) -> list[str]:
    """One list per file, in the order of the file names."""
    lines = []
    for file in sorted((ROOM / folder).glob("*.py")):
        members = [function for function in functions if Path(inspect.getfile(function)) == file]
        if not members:
            continue
        lines += ["", f"## {inspect.getdoc(inspect.getmodule(members[0])).splitlines()[0].rstrip('.')}", ""]
        for function in sorted(members, key=lambda function: inspect.getsourcelines(function)[1]):
            names = ", ".join(f"`{name}`" for name in functions[function])
            lines.append(f"- {names}: {' '.join(inspect.getdoc(function).split())}")
    return lines


def page() -> str:
    rules: dict[Any, list[str]] = {}
    for name, rule in RULES.items():
        rules.setdefault(rule.function, []).append(name)
    composites: dict[Any, list[str]] = {}
    for name, function in COMPOSITES.items():
        composites.setdefault(function, []).append(name)
    lines = [*sections(rules, "rules"), "", "# Composites", "", "Built from other operations, and recorded as those."]
    return "\n".join([HEAD.rstrip(), *lines, *sections(composites, "composites"), ""])


def test_the_page_of_rules_is_what_the_rules_say(request: pytest.FixtureRequest) -> None:
    text = page()
    if request.config.getoption("--overwrite"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "pytest tests/test_autograd_docs.py --overwrite rewrites it"


def test_the_engine_reads_in_one_sitting() -> None:
    assert len((ROOM / "gradients" / "backward_pass.py").read_text().splitlines()) < 200
