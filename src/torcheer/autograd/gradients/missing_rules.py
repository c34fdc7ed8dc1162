"""The error for an operation without a rule."""

from __future__ import annotations

import inspect
import linecache
from types import FrameType
from typing import Any

from torcheer.capture.record.source_lines import capture_caller, line_of
from torcheer.errors import MissingRule


def missing_rule(name: str, where: str, function: Any, frame: FrameType, args: Any = ()) -> MissingRule:
    """Build the error: the user's line of code, and the three lines that would define the rule."""
    code, lasti = capture_caller(frame)
    line = line_of(code, lasti)
    text = linecache.getline(code.co_filename, line).strip()
    bare = name.strip("_")
    return MissingRule(
        f"{_public_name(where)} has no rule here, so no gradient can go back through it.\n"
        f"  called at {code.co_filename}:{line}" + (f"\n    {text}" if text else "") + "\n"
        f"  To teach it one, write:\n"
        f'    @autograd.rule("{name}")\n'
        f"    def {bare}(g, y, {_arguments(function, args)}):\n"
        f"        return g * …  # what arrives at each argument; y is the result\n"
        f"  or take torch's own rule for it: with autograd.record(borrow=True): …"
    )


# Private module of a function -> its public one.
_PUBLIC_HOMES = {
    "torch._C._special.special_": "torch.special.",
    "torch._C._linalg.linalg_": "torch.linalg.",
    "torch._C._fft.fft_": "torch.fft.",
    "torch._C._nn.": "torch.nn.functional.",
}


def _public_name(where: str) -> str:
    homes = _PUBLIC_HOMES.items()
    return next((where.replace(private, public) for private, public in homes if where.startswith(private)), where)


def _arguments(function: Any, args: Any) -> str:
    try:
        names = [name for name in inspect.signature(function).parameters if name.isidentifier()]
    except (TypeError, ValueError):
        names = ["x", *(f"x{number}" for number in range(2, len(args) + 1))]
    return ", ".join("x" if name in ("input", "self") else name for name in names) or "x"
