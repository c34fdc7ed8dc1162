"""The tables of rules and composites, and the decorators that add to them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from torcheer.errors import BadArgument
from torcheer.history.text.latex_text import latex_to_text

Function = Callable[..., Any]
_MAX_ARGUMENTS = 64  # of one call


if TYPE_CHECKING:
    Shape: TypeAlias = Any
else:

    class Shape:
        """Annotation of an argument of which a rule reads the shape, dtype or device: not saved."""


NOTHING, VALUE, PARTNER = range(
    3
)  # what a rule reads of an argument; PARTNER: its value, if another one needs a gradient


class Rule:
    """The backward rule of one operation: its function, its formula, what it reads."""

    __slots__ = (
        "accepts_any_setting",
        "borrowed",
        "defaults",
        "formula",
        "function",
        "name",
        "names",
        "parameters",
        "partners",
        "reads",
        "reads_result",
        "trusted",
        "variadic",
        "why",
    )

    def __init__(
        self, name: str, function: Function, borrowed: bool = False, kept: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.function, self.borrowed = name, function, borrowed
        self.formula, self.why = parse(function.__doc__ or "")
        self.trusted = function.__module__.startswith(__package__ or "-")  # no one else holds the tensors it returns
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.reads_result = bool(parameters) and parameters[0].name == "y"
        parameters = parameters[1:] if self.reads_result else parameters
        positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        self.parameters = tuple(each.name for each in positional)
        self.names = {each.name for each in parameters}
        self.defaults = {each.name: each.default for each in positional if each.default is not each.empty}
        self.accepts_any_setting = any(each.kind is each.VAR_KEYWORD for each in parameters)
        variadic = [each for each in parameters if each.kind is each.VAR_POSITIONAL]
        self.variadic = variadic[0].name if variadic else None  # "dims" of `*dims`
        expanded = (*positional, *variadic * _MAX_ARGUMENTS)
        reads = [NOTHING if each.annotation in (Shape, "Shape") else VALUE for each in expanded]
        index = self.parameters.index
        self.partners = {index(name): index(partner) for name, partner in (kept or {}).items()}
        for place in self.partners:
            reads[place] = PARTNER
        self.reads = (*reads, *(NOTHING,) * _MAX_ARGUMENTS)  # what the rule reads of each argument

    def place_of(self, name: str, default: int = -1) -> int:
        """Return the position of the argument of that name, or `default`."""
        if name in self.parameters:
            return self.parameters.index(name)
        return len(self.parameters) if name == self.variadic else default

    def __repr__(self) -> str:
        return f"<rule {self.name}: {self.formula}>"


RULES: dict[str, Rule] = {}
COMPOSITES: dict[str, Function] = {}


def rule(*names: str, kept: Mapping[str, str] | None = None) -> Callable[[Function], Function]:
    """Define the backward rule of an operation: `@rule("tanh")` above `def tanh(g, y, x)`.

    The function receives the gradient `g` of the result, then the result if its second parameter is named `y`, then
    the operation's arguments; it returns one gradient per argument, in order, None where there is none. A lambda in
    place of a gradient is only called if that gradient is needed. The engine sums over axes that were broadcast.
    Write rules in operations that have rules themselves: then gradients of gradients work without further code.

    Args:
        names: the operations that the rule is for, by torch's names.
        kept: what to save less often. `kept={"a": "b"}`: the value of a is only read for the gradient of b, so it is
            not saved if b needs none. (An argument annotated `x: Shape` is never saved: only its shape is read.)
    """
    _check_names(names, "rule")

    def register(function: Function) -> Function:
        for name in names:
            COMPOSITES.pop(name, None)
            RULES[name] = Rule(name, function, kept=kept)
        notify_listeners()
        return function

    return register


def composite(*names: str) -> Callable[[Function], Function]:
    """Define an operation by simpler ones.

    The function runs in the operation's place, and each of its parts is recorded.

    Args:
        names: the operations that the function replaces, by torch's names.
    """
    _check_names(names, "composite")

    def register(function: Function) -> Function:
        for name in names:
            RULES.pop(name, None)
            COMPOSITES[name] = function
        notify_listeners()
        return function

    return register


def wide(x: Any) -> Any:
    """Convert half precision to single: a sum of many small numbers needs the precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


listeners: list[Callable[[], None]] = []  # called after a change; they clear cached lookups


def notify_listeners() -> None:
    """Tell every listener that a rule or composite was added."""
    for listener in listeners:
        listener()


def parse(doc: str) -> tuple[str, str]:
    """Split a docstring such as `$\\bar x = -\\bar y$: the sign changes.` into its formula and its sentence."""
    match = re.match(r"((?:\$[^$]+\$|[^$:])*)(?::\s*(.*))?", doc, re.DOTALL)
    if match is None or "$" not in match[1]:
        return "", " ".join(doc.split())
    parts = [" ".join(part.split()) for part in re.split(r"\$([^$]+)\$", match[1])]
    words = [part if place % 2 else _text_between(part) for place, part in enumerate(parts)]
    why = re.sub(r"\$([^$]+)\$", lambda formula: latex_to_text(formula[1]), match[2] or "")
    return "".join(words).strip(" ,."), " ".join(why.split())


def _text_between(text: str) -> str:
    """Convert the text between two formulas to LaTeX: a comma, or words."""
    bare = text.strip(" ,.;")
    return rf"\text{{ {bare} }}" + (", " if text.endswith(",") else "") if bare else ", " if "," in text else " "


def _check_names(names: tuple[Any, ...], decorator: str) -> None:
    if not names or not all(isinstance(name, str) for name in names):
        raise BadArgument(f'@{decorator} needs the name of the operation: @{decorator}("tanh")')
