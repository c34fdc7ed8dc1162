"""The calls of a forward pass, to be repeated in double precision with changed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import Rule
from torcheer.autograd.tape.nodes import FLOATS

MOVED = -1  # stands for the op of an argument that is given another value
Values = Sequence[Any] | Mapping[int, Any]  # by op


@dataclass(frozen=True, slots=True)
class Read:
    """An argument of a recorded call: the result of an op."""

    op: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of an operation: its function, None if it cannot be repeated, and arguments with `Read` for tensors."""

    function: Any
    args: Any
    kwargs: dict[str, Any]
    rule: Rule

    def repeat(self, values: Values) -> Tensor:
        """Run it again on the values of ops, by index."""
        result: Tensor = self.function(*_filled(self.args, values), **self.kwargs)
        return result

    def reads(self) -> list[int]:
        """Return the ops that it reads."""
        return [read.op for read in _reads(self.args)]

    def moving(self, where: tuple[int | str, ...]) -> RecordedCall:
        """Return the call with `MOVED` as one argument: apart from others that read the same op."""
        return replace(self, args=_with_moved(self.args, where))


def _with_moved(args: Any, where: tuple[int | str, ...]) -> Any:
    if not where:
        return Read(MOVED)
    moved = [_with_moved(item, where[1:]) if place == where[0] else item for place, item in enumerate(args)]
    return args.__class__(moved)


def _filled(args: Any, values: Values) -> Any:
    if args.__class__ is Read:
        return values[args.op]
    if args.__class__ in (list, tuple):
        return args.__class__([_filled(item, values) for item in args])
    return args


def _reads(args: Any) -> list[Read]:
    if args.__class__ is Read:
        return [args]
    return [read for item in args for read in _reads(item)] if args.__class__ in (list, tuple) else []


def in_double(value: Any) -> Any:
    """Return a float tensor in double precision, plain and without gradient; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    plain = value.detach().as_subclass(Tensor)
    return plain.to(torch.float64) if plain.dtype in FLOATS else plain


class Replay:
    """A forward pass repeated in double precision, and again from a changed leaf on."""

    def __init__(self, calls: Sequence[RecordedCall | None], values: Sequence[Any]) -> None:
        self.calls = calls
        self.values = [in_double(value) for value in values]
        for index, call in enumerate(calls):
            if call is not None:
                self.values[index] = call.repeat(self.values)
        self._numbers = list(accumulate(value.numel() if isinstance(value, Tensor) else 0 for value in self.values))
        self.readers: dict[int, list[int]] = {}
        for index, call in enumerate(calls):
            for read in {} if call is None else dict.fromkeys(call.reads()):
                self.readers.setdefault(read, []).append(index)

    def numbers_after(self, leaf: int) -> int:
        """Return how many numbers ops after a leaf return: more than those that depend on it."""
        return self._numbers[-1] - self._numbers[leaf]

    def depending_on(self, leaf: int) -> list[int]:
        """Return the ops whose results depend on a leaf, in order of execution."""
        seen, waiting = set[int](), [leaf]
        while waiting:
            new = [reader for reader in self.readers.get(waiting.pop(), ()) if reader not in seen]
            seen.update(new)
            waiting += new
        return sorted(seen)

    def last_result(self, leaf: int, value: Tensor, depending: list[int]) -> Tensor:
        """Return the result of the last op if a leaf had another value."""
        values = _Changed(self.values)
        values[leaf] = value
        for index in depending:
            call = self.calls[index]
            assert call is not None
            values[index] = call.repeat(values)
        result: Tensor = values[len(self.values) - 1]
        return result


class _Changed(dict[int, Any]):
    """Values by op: some changed, the others as they were."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, index: int) -> Any:
        return self._values[index]
