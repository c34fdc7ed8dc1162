"""Patterns over labels whose numbers are not known yet: may 'relu_*_3' match an operation of this name at all?

A label is `name_number`, `name_number_position`, and either with `:pass`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import cache
from typing import Any

_DIGITS = frozenset("0123456789")
_FEW = 8  # numbers that are tried one by one; beyond, any number may come


class LabelPattern:
    """A shell pattern, read one letter at a time: a state is a place in it, and a set of them all that is possible."""

    def __init__(self, pattern: str) -> None:
        self._tokens = _tokens(pattern)
        self._after_name = cache(self._read_name)
        self._ends = cache(self._may_end)

    def may_match(self, name: str, low: int = 0, high: int = _FEW) -> bool:
        """Whether it matches a label of this name with a number from `low` to `high`; any number if those are many."""
        begun = self._after_name(name)
        if high - low >= _FEW:
            return self._ends(self._read_digits(begun))
        return any(self._ends(self._read(begun, str(number))) for number in range(low, high + 1))

    def matches_all(self, name: str) -> bool:
        """Whether it matches every label of this name, whatever its number: 'relu*', '*'."""
        last = len(self._tokens) - 1
        return self._tokens[last] is None and last in self._after_name(name)

    def _read_name(self, name: str) -> frozenset[int]:
        return self._read(self._open({0}), f"{name}_")

    def _may_end(self, states: frozenset[int]) -> bool:
        """Whether the pattern may end after the number, the position behind it, or the pass behind either."""
        positioned = self._read_digits(self._read(states, "_"))
        passed = self._read_digits(self._read(states | positioned, ":"))
        return len(self._tokens) in states | positioned | passed

    def _read(self, states: frozenset[int], text: str) -> frozenset[int]:
        for letter in text:
            states = self._step(states, frozenset(letter))
        return states

    def _read_digits(self, states: frozenset[int]) -> frozenset[int]:
        reached: frozenset[int] = frozenset()
        while not (states := self._step(states, _DIGITS)) <= reached:
            reached |= states
        return reached

    def _step(self, states: frozenset[int], letters: frozenset[str]) -> frozenset[int]:
        """Return the states after one of these letters."""
        after = set()
        for state in states:
            if state < len(self._tokens):
                token = self._tokens[state]
                if token is None:
                    after.add(state)
                elif any(token(letter) for letter in letters):
                    after.add(state + 1)
        return self._open(after)

    def _open(self, states: set[int]) -> frozenset[int]:
        """Add the states behind stars, which may stand for nothing."""
        states = set(states)
        for state, token in enumerate(self._tokens):
            if token is None and state in states:
                states.add(state + 1)
        return frozenset(states)


_PIECES = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)  # a set of letters in brackets, or one letter


def _tokens(pattern: str) -> list[Callable[[str], Any] | None]:
    """Return a test of one letter for each piece of a pattern; None for a star."""
    pieces = _PIECES.findall(pattern)
    return [None if piece == "*" else re.compile(translate(piece)).match for piece in pieces]
