"""What a rule is: it looks at values and whole steps, and says of a key that it is ill or well."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from torcheer.samples import Delivery, Key, Statistics

GRADIENTS = ("grad", "weight_grad")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a key now; whether it is told depends on how long it stays so."""

    what: str
    advice: str
    values: dict[str, Any] = field(default_factory=dict)
    since: int | None = None  # where the rule knows better than "from this step on"
    order: float = 0.0  # of several keys that fell ill together, the least is named first


Verdict = tuple[Key, Finding | None]  # None: it is well


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a value until its step has ended; its array is let go of."""

    layer: str
    variable: str
    shape: tuple[int, ...]
    summary: Statistics
    frozen: bool = False

    @property
    def key(self) -> Key:
        return self.layer, self.variable

    @property
    def is_matrix(self) -> bool:
        """Whether it has at least two dimensions: a bias or a scale may be constant, tiny or zero in a healthy net."""
        return sum(length > 1 for length in self.shape) >= 2


class Board:
    """What one step has brought so far, in the order of arrival."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._seen: dict[str, dict[str, Seen]] = {}
        self.before: Seen | None = None  # the output before the newest one
        self.rectified: set[str] = set()  # layers whose outputs look like those of a ReLU

    @staticmethod
    def describe(sent: Delivery, summary: Statistics) -> Seen:
        """What is remembered of a value."""
        return Seen(*sent.key, sent.whole or tuple(sent.sample.array.shape), summary, sent.frozen)

    def add(self, seen: Seen) -> None:
        """Remember a value."""
        of_kind = self._seen.setdefault(seen.variable, {})
        if seen.variable == "output":
            self.before = next(reversed(of_kind.values()), None)
            if _is_rectified(seen, self.before, self.rectified):
                self.rectified.add(seen.layer)
        of_kind[seen.layer] = seen

    def all(self, variable: str) -> dict[str, Seen]:
        """The values of one kind, by layer."""
        return self._seen.get(variable, {})


def _is_rectified(seen: Seen, before: Seen | None, rectified: set[str]) -> bool:
    """Whether an output has zeros and nothing below; where all are zero, only if what went into it says why."""
    found = seen.summary
    if not (found.minimum >= 0 and found.zeros):
        return False
    if found.zeros < found.count:
        return True
    if before is None or before.summary.count != found.count:
        return False
    return before.summary.minimum < 0 or before.layer in rectified


class Rule(ABC):
    """A rule with its settings; the first line of its docstring tells users what it looks for."""

    name: ClassVar[str]
    severity: ClassVar[str] = "warning"
    explains: ClassVar[tuple[str, ...]] = ()  # rules whose findings follow from what this one finds
    defaults: ClassVar[dict[str, Any]]  # `patience`: for how many looks it must be so before it is told
    common: ClassVar[dict[str, Any]] = {"most": 10}  # alerts in a run

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {**self.common, **self.defaults, **settings}
        self.patience: int = self.settings["patience"]

    def wants(self, variable: str) -> bool:
        """Whether it is to `see` values of a kind."""
        return False

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        """Judge a value as it comes."""
        return iter(())

    def end(self, board: Board) -> Iterator[Verdict]:
        """Judge a step of which nothing more will come."""
        return iter(())


def array_of(sent: Delivery) -> NDArray[Any]:
    """The numbers of a value, where they came."""
    found: NDArray[Any] = sent.sample.array
    return found
