"""The interface of a rule: it observes values and whole steps, and yields a verdict per key."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from torcheer.samples import Delivery, Key
from torcheer.vocabulary.array_statistics import Statistics

if TYPE_CHECKING:
    from torcheer.monitor.rules.loss_fits import LossGradient


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a key at this step; it becomes an alert if it lasts long enough."""

    what: str
    advice: str
    values: dict[str, Any] = field(default_factory=dict)
    since: int | None = None  # first faulty step, where the rule knows better than "this one"
    order: float = 0.0  # of keys that failed in the same step, the smallest is named first
    kind: str = ""  # where a rule has findings that mean opposite things: "high", "low"


Verdict = tuple[Key, Finding | None]  # None: the key is fine


@dataclass(frozen=True, slots=True)
class Observation:
    """What is kept of a value until its step has ended, without its array."""

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
        """Whether it has at least two dimensions: a bias or a scale may be constant, tiny or zero in a sound net."""
        return sum(length > 1 for length in self.shape) >= 2


class StepValues:
    """The values of one step so far, in order of arrival."""

    def __init__(self, step: int, loss_gradient: LossGradient) -> None:
        self.step, self.loss_gradient = step, loss_gradient  # the latter is that of all steps
        self._observations: dict[str, dict[str, Observation]] = {}
        self.before: Observation | None = None  # the output before the newest one
        self.rectified: set[str] = set()  # layers whose outputs look like those of a ReLU

    @staticmethod
    def describe(delivery: Delivery, summary: Statistics) -> Observation:
        """Reduce a value to what is kept of it."""
        return Observation(
            *delivery.key, delivery.whole or tuple(delivery.sample.array.shape), summary, delivery.frozen
        )

    def add(self, value: Observation) -> None:
        """Add a value of this step."""
        observations = self._observations.setdefault(value.variable, {})
        if value.variable == "output":
            self.before = next(reversed(observations.values()), None)
            if _is_rectified(value, self.before, self.rectified):
                self.rectified.add(value.layer)
        observations[value.layer] = value

    def all(self, variable: str) -> dict[str, Observation]:
        """The values of one variable, by layer."""
        return self._observations.get(variable, {})


def _is_rectified(value: Observation, before: Observation | None, rectified: set[str]) -> bool:
    """Whether an output has zeros and no negative numbers; where all are zero, only if its input explains that."""
    statistics = value.summary
    if not (statistics.minimum >= 0 and statistics.zeros):
        return False
    if statistics.zeros < statistics.count:
        return True
    if before is None or before.summary.count != statistics.count:
        return False
    return before.summary.minimum < 0 or before.layer in rectified


class Rule(ABC):
    """A rule with its settings; the first line of its docstring tells users what it detects."""

    name: ClassVar[str]
    severity: ClassVar[str] = "warning"
    defaults: ClassVar[dict[str, Any]]  # `patience`: watched steps for which a fault must last before an alert
    common: ClassVar[dict[str, Any]] = {"most": 10}  # alerts per run

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {**self.common, **self.defaults, **settings}
        self.patience: int = self.settings["patience"]

    def wants(self, variable: str) -> bool:
        """Whether `observe` is called with values of this variable."""
        return False

    def look(self, step: int) -> None:
        """Note a step that is looked at, where only its faulty values will be observed."""
        return

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        """Judge a value on arrival."""
        return iter(())

    def end(self, values: StepValues) -> Iterator[Verdict]:
        """Judge a complete step."""
        return iter(())


def array_of(delivery: Delivery) -> NDArray[Any]:
    """The array of a value; empty where only its statistics were sent."""
    array: NDArray[Any] = delivery.sample.array
    return array
