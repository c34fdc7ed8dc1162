"""The Python blocks of a page, run in order; as a program, with the base package alone: `document_blocks.py PAGE…`."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIRST_PAGES = (ROOT / "README.md", ROOT / "docs" / "getting-started.md", ROOT / "docs" / "how-to.md")
# Packages that are imported by another name than the one that installs them.
IMPORTED_AS = {"pillow": "PIL", "pyyaml": "yaml"}
EXTRA = "torcheer[all]"

# What Python runs at its start: `[all]` is found by no import, here and in every process that this one starts.
BASE_SITE = "import sys; sys.path.append({tests!r}); import document_blocks; document_blocks.hide_extras()"


def run_page(page: Path) -> None:
    """Run the blocks of a page one after the other, as somebody who copies them does."""
    names: dict[str, Any] = {"__name__": page.stem}
    for tree in _blocks(page):
        exec(compile(tree, page, "exec"), names)


def run_page_in_base(page: Path) -> None:
    """Run the statements of a page; where one cannot do without `[all]`, its line and its error say so."""
    names: dict[str, Any] = {"__name__": page.stem}
    lines = page.read_text().splitlines()
    for statement in (statement for tree in _blocks(page) for statement in tree.body):
        noted = EXTRA in lines[statement.lineno - 1]
        try:
            exec(compile(ast.Module([statement], []), page, "exec"), names)
        except Exception as error:
            if not noted or f"pip install '{EXTRA}'" not in str(error):
                raise
        else:
            assert not noted, f"{page.name}:{statement.lineno} runs without {EXTRA}"


def _blocks(page: Path) -> list[ast.Module]:
    """The page's blocks as programs whose lines are numbered as the page's are."""
    text = page.read_text()
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == text.count("```python")
    return [ast.parse("\n" * text.count("\n", 0, block.start(1)) + block[1], str(page)) for block in blocks]


def extras() -> frozenset[str]:
    """The modules that `[all]` installs."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["all"]
    return frozenset(IMPORTED_AS.get(name, name.replace("-", "_")) for name in listed)


def hide_extras(kept: Iterable[str] = ()) -> None:
    """Let no import find what `[all]` installs, but for the modules that are kept."""
    hidden = extras() - frozenset(kept)

    class BaseFinder(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, *arguments: Any) -> ModuleSpec | None:  # type: ignore[override]
            return None if fullname.partition(".")[0] in hidden else PathFinder.find_spec(fullname, *arguments)

    sys.meta_path[sys.meta_path.index(PathFinder)] = BaseFinder


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for _ in range(2):
            run_page_in_base(Path(name))
