"""What to say when an operation has no rule."""

from __future__ import annotations

import inspect
import linecache
from types import FrameType
from typing import Any

from torcheer.capture.source import asked_by, line_of
from torcheer.errors import MissingRule


def missing_rule(name: str, where: str, function: Any, frame: FrameType) -> MissingRule:
    """The error, with the user's line and the three lines that would mend it."""
    code, lasti = asked_by(frame)
    line = line_of(code, lasti)
    text = linecache.getline(code.co_filename, line).strip()
    bare = name.strip("_")
    return MissingRule(
        f"{where} has no rule here, so no gradient can go back through it.\n"
        f"  called at {code.co_filename}:{line}" + (f"\n    {text}" if text else "") + "\n"
        f"  To teach it one, write:\n"
        f'    @autograd.rule("{name}")\n'
        f"    def {bare}(g, y, {_arguments(function)}):\n"
        f"        return g * …  # what arrives at each argument; y is the result\n"
        f"  or take torch's own rule for it: with autograd.record(borrow=True): …"
    )


def _arguments(function: Any) -> str:
    try:
        names = [name for name in inspect.signature(function).parameters if name.isidentifier()]
    except (TypeError, ValueError):
        names = []
    return ", ".join("x" if name in ("input", "self") else name for name in names) or "x"
