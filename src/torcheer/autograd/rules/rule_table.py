"""The table of rules, and how one enters it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from torcheer.errors import BadArgument
from torcheer.history.text.latex_text import plain

Function = Callable[..., Any]
_MOST = 64  # arguments of one call


if TYPE_CHECKING:
    Shape: TypeAlias = Any
else:

    class Shape:
        """Annotates an argument of which a rule reads the shape, dtype or device only: no value is kept for it."""


NOTHING, VALUE, PARTNER = range(3)  # what a rule reads of an argument; PARTNER: its value, where another asks


class Rule:
    """How a gradient goes back through one operation."""

    __slots__ = (
        "borrowed",
        "defaults",
        "formula",
        "function",
        "name",
        "names",
        "open",
        "parameters",
        "partners",
        "reads",
        "reads_result",
        "rest",
        "trusted",
        "why",
    )

    def __init__(
        self, name: str, function: Function, borrowed: bool = False, kept: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.function, self.borrowed = name, function, borrowed
        self.formula, self.why = parse(function.__doc__ or "")
        self.trusted = function.__module__.startswith(__package__ or "-")  # what it returns is held by nobody else
        given = list(inspect.signature(function).parameters.values())[1:]
        self.reads_result = bool(given) and given[0].name == "y"
        given = given[1:] if self.reads_result else given
        places = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        self.parameters = tuple(one.name for one in places)
        self.names = {one.name for one in given}
        self.defaults = {one.name: one.default for one in places if one.default is not one.empty}
        self.open = any(one.kind is one.VAR_KEYWORD for one in given)  # it takes any setting
        rest = [one for one in given if one.kind is one.VAR_POSITIONAL]
        self.rest = rest[0].name if rest else None  # "dims" of `*dims`
        reads = [NOTHING if one.annotation in (Shape, "Shape") else VALUE for one in (*places, *rest * _MOST)]
        index = self.parameters.index
        self.partners = {index(one): index(other) for one, other in (kept or {}).items()}
        for place in self.partners:
            reads[place] = PARTNER
        self.reads = (*reads, *(NOTHING,) * _MOST)  # what the rule reads of each argument

    def place_of(self, name: str, other: int = -1) -> int:
        """Where an argument of that name stands."""
        if name in self.parameters:
            return self.parameters.index(name)
        return len(self.parameters) if name == self.rest else other

    def __repr__(self) -> str:
        return f"<rule {self.name}: {self.formula}>"


RULES: dict[str, Rule] = {}
COMPOSITES: dict[str, Function] = {}


def rule(*names: str, kept: Mapping[str, str] | None = None) -> Callable[[Function], Function]:
    """Say how gradients go back through an operation: `@rule("tanh")` above `def tanh(g, y, x)`.

    The function is given the gradient `g` of the result, the result where its second parameter is named `y`, then the
    operation's own arguments; it returns one gradient per argument, in order, None where there is none. A lambda in
    its place is only asked when that gradient is wanted. Shapes that were broadcast are summed by the engine. It
    should be written in operations that have rules: then gradients of gradients come by themselves.

    Values are kept in memory for what a rule reads. `x: Shape` says that it reads no more than the shape; `kept={"a":
    "b"}` that it reads the value of a only for the gradient of b.
    """
    _check(names, "rule")

    def enter(function: Function) -> Function:
        for name in names:
            COMPOSITES.pop(name, None)
            RULES[name] = Rule(name, function, kept=kept)
        changed()
        return function

    return enter


def composite(*names: str) -> Callable[[Function], Function]:
    """Say what an operation is made of: the function is run in its place, and each of its parts recorded."""
    _check(names, "composite")

    def enter(function: Function) -> Function:
        for name in names:
            RULES.pop(name, None)
            COMPOSITES[name] = function
        changed()
        return function

    return enter


def wide(x: Any) -> Any:
    """Half precision as single: sums of many small numbers need the room."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


listeners: list[Callable[[], None]] = []  # whoever has looked names up and must look again


def changed() -> None:
    """Tell whoever keeps a copy that a rule has come."""
    for listener in listeners:
        listener()


def parse(doc: str) -> tuple[str, str]:
    """The formula and the sentence of a docstring such as `$\\bar x = -\\bar y$: the sign goes back too.`"""
    found = re.match(r"((?:\$[^$]+\$|[^$:])*)(?::\s*(.*))?", doc, re.DOTALL)
    if found is None or "$" not in found[1]:
        return "", " ".join(doc.split())
    parts = [" ".join(part.split()) for part in re.split(r"\$([^$]+)\$", found[1])]
    words = [part if place % 2 else _words(part) for place, part in enumerate(parts)]
    why = re.sub(r"\$([^$]+)\$", lambda match: plain(match[1]), found[2] or "")
    return "".join(words).strip(" ,."), " ".join(why.split())


def _words(text: str) -> str:
    """What stands between formulas: a comma, or words, which are part of what is said."""
    bare = text.strip(" ,.;")
    return rf"\text{{ {bare} }}" + (", " if text.endswith(",") else "") if bare else ", " if "," in text else " "


def _check(names: tuple[Any, ...], what: str) -> None:
    if not names or not all(isinstance(name, str) for name in names):
        raise BadArgument(f'@{what} needs the name of the operation: @{what}("tanh")')
