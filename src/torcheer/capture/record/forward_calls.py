"""Code inspection: does a module class call some `.forward` directly?"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType

from torcheer.capture.record.source_lines import is_user_code


def calls_forward(kind: type) -> bool:
    """Whether user code in a class, or a function that it refers to, calls some `.forward`."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith(("torch.nn.modules.", "builtins")):
            functions = (getattr(value, "__func__", value) for value in vars(owner).values())
            if any(_mentions_forward(function, 2) for function in functions if type(function) is FunctionType):
                return True
    return False


def _mentions_forward(function: FunctionType, depth: int) -> bool:
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    if "forward" in names or not depth:
        return "forward" in names
    values = (function.__globals__.get(name) for name in names)
    helpers = [value for value in values if type(value) is FunctionType and is_user_code(value.__code__)]
    return any(_mentions_forward(helper, depth - 1) for helper in helpers)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code object and those nested in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
