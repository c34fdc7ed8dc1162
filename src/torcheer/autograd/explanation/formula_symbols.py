"""The symbols of a rule's formula: which tensor or number each stands for in a call.

In `ā = ȳ ⊙ b` the symbol ȳ is the gradient that arrived, b the second argument, and ā what is sent to the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from torcheer.autograd.explanation.recorded_calls import Read, RecordedCall
from torcheer.history.text.latex_text import BAR, equations
from torcheer.records import Op

# A letter that is not part of a word or an index, with a bar if it stands for a gradient.
_SYMBOL = re.compile(rf"(?<![A-Za-z_])([A-Za-zāēīōūȳĀĒĪŌŪȲα-ω])({BAR}?)(?![A-Za-z{BAR}])")
_GREEK = {"α": "alpha", "β": "beta", "λ": "lambd"}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A piece of a formula: plain text, or what stands for a tensor or a number."""

    text: str
    role: str = ""  # "arrived", "result", "read", "sent", "number"; "": plain text
    edge: int = -1  # of "read" and "sent": which of the op's edges
    number: float = 0.0


def formula_symbols(call: RecordedCall, op: Op, counts: tuple[int, int]) -> list[list[Symbol]]:
    """Return the equations of a rule, each as pieces; `counts` is how many numbers it read first, and returned."""
    formula = op.backward.formula if op.backward else ""
    return [_pieces(equation, _Meanings(call, op, counts)) for equation in equations(formula)]


def _pieces(equation: str, meanings: _Meanings) -> list[Symbol]:
    pieces, end = list[Symbol](), 0
    for match in _SYMBOL.finditer(equation):
        symbol = meanings.of(match[0])
        if symbol is None:
            continue
        if match.start() > end:
            pieces.append(Symbol(equation[end : match.start()]))
        pieces.append(symbol)
        end = match.end()
    return [*pieces, Symbol(equation[end:])] if end < len(equation) else pieces


class _Meanings:
    """What the letters of a formula mean in one call."""

    def __init__(self, call: RecordedCall, op: Op, counts: tuple[int, int]) -> None:
        self._call, self._op, self._counts = call, op, counts
        self._edge_at = {edge.where[0]: number for number, edge in reversed(list(enumerate(op.parents)))}

    def of(self, text: str) -> Symbol | None:
        decomposed = normalize("NFD", text)
        letter, is_gradient = decomposed[0], BAR in decomposed
        place = self._place(letter)
        edge = -1 if place is None else self._edge_at.get(place, -1)
        if edge >= 0 and len(self._call.args) > 0 and self._is_tensor(place):
            return Symbol(text, "sent" if is_gradient else "read", edge)
        if letter in "yY":
            return Symbol(text, "arrived" if is_gradient else "result")
        number = None if is_gradient else self._setting(letter, place)
        return None if number is None else Symbol(text, "number", number=number)

    def _is_tensor(self, place: int | None) -> bool:
        return place is not None and place < len(self._call.args) and self._call.args[place].__class__ is Read

    def _place(self, letter: str) -> int | None:
        """Return the position of the parameter that a letter names: in full, or by its first letter."""
        parameters = self._call.rule.parameters
        exact = [place for place, name in enumerate(parameters) if name.lower() == letter.lower()]
        named = [place for place, name in enumerate(parameters) if name[0].lower() == letter.lower()]
        return next(iter([*exact, *(place for place in named if self._is_tensor(place))]), None)

    def _setting(self, letter: str, place: int | None) -> float | None:
        """Return the number that a letter stands for, such as a factor that is no tensor."""
        call = self._call
        if letter == "n" and call.rule.name == "mean":
            return self._counts[0] / max(1, self._counts[1])
        name = _GREEK.get(letter) or (None if place is None else call.rule.parameters[place])
        if name is None:
            return None
        at = call.rule.place_of(name)
        value: Any = call.args[at] if 0 <= at < len(call.args) else call.kwargs.get(name, call.rule.defaults.get(name))
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
