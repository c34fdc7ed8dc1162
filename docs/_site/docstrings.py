"""Docstrings as the site shows them: what stands beside a field joins the list of parameters, doctests are code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from field_comments import field_comments

DOCTEST = re.compile(r"((?:^>>> .*\n?(?:^(?!>>> |\s*$).*\n?)*)+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are shown."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Append the comments of a dataclass' fields to its docstring, as a list of parameters."""
        if not any("dataclass" in str(decorator.value) for decorator in cls.decorators) or cls.docstring is None:
            return
        comments = field_comments(Path(str(cls.filepath)).read_text(), cls.name)
        text = cls.docstring.value
        lines = [f"- `{name}`: {meaning}" for name, meaning in comments.items() if f"`{name}`" not in text]
        if lines:
            cls.docstring.value = f"{text}\n\n" + "\n".join(lines)
        for name in comments:
            if name in cls.members:
                cls.del_member(name)  # it stands in the list

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write parameters as a list, and doctests as code."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(
                lambda match: f"\n```pycon\n{match[1].rstrip()}\n```\n", obj.docstring.value
            )


ARGS = re.compile(r"^Args:\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
PARAMETER = re.compile(r"^(\w+): (?=\S)", re.MULTILINE)


def as_list(text: str) -> str:
    """Parameters that stand in lines of their own, as Markdown's list.

    >>> as_list("Run.\\n\\nArgs:\\n    x: a\\n        b\\n")
    'Run.\\n\\n- `x`: a\\n  b\\n'
    """

    def bullets(match: re.Match[str]) -> str:
        lines = [line.removeprefix("    ") for line in match[1].splitlines()]
        text = "\n".join(f"  {line.strip()}" if line.startswith("    ") else line for line in lines)
        return PARAMETER.sub(r"- `\1`: ", text) + "\n"

    text = ARGS.sub(bullets, text)
    first, blank, rest = text.partition("\n\n")
    blocks = [PARAMETER.sub(r"- `\1`: ", block) if PARAMETER.match(block) else block for block in rest.split("\n\n")]
    return first + blank + "\n\n".join(blocks)
