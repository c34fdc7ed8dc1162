"""Rules on single values: NaN and infinities, zeros."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict, array_of
from torcheer.samples import NAN_INF, Delivery, Key, Nonfinite, began_after, layers_unseen


class NanInf(Rule):
    """A value has NaN or infinite numbers; told once, where it was met first, until all is well again."""

    name, severity = NAN_INF, "error"
    defaults = {"nan": True, "inf": True, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._failing: dict[str, dict[Key, int]] = {
            "nan": {},
            "inf": {},
        }  # by kind, key: since which step, in the order of failing
        self._began: dict[str, int] = {}  # by kind, when a key last failed without a cause in another key
        self._follows: dict[str, bool] = {}  # whether that kind follows from the other one
        self._sources: set[Key] = set()  # keys that failed without a cause in another key
        self._last_fine: dict[Key, int] = {}  # the last step at which a key was fine
        self._before: dict[Key, str] = {}  # of a failing key, what is said of the time before it was seen to fail
        self._looks: dict[bool, tuple[int | None, int]] = {}  # of metrics and of the rest, the last two steps
        self._steps: deque[int] = deque([-1], maxlen=3)  # NaN that follow infinities within these steps come from those

    def wants(self, variable: str) -> bool:
        return True

    def look(self, step: int) -> None:
        for metric in (False, True):
            self._look(metric, step)

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if self._steps[-1] != values.step:
            self._steps.append(values.step)
        self._look(value.variable == "metric", values.step)
        kind, key = self._kind(value, delivery), value.key
        for name, failing in self._failing.items():
            if name != kind:
                failing.pop(key, None)
        if not kind:
            self._last_fine[key] = values.step
            self._sources.discard(key)
            yield key, None
            return
        failing = self._failing[kind]
        if key not in failing:
            last_look = self._last_fine.get(key, self._looks[value.variable == "metric"][0])
            self._before[key] = began_after(last_look, values.step, value.variable)
            if value.variable == "metric":
                self._before[key] += layers_unseen(self._looks.get(False, (None, None))[1], values.step)
        if key not in failing and self._is_source(kind, key):
            other = "inf" if kind == "nan" else "nan"
            self._began[kind] = values.step
            self._follows[kind] = bool(self._failing[other]) and self._began[other] in self._steps
            self._sources |= set() if self._follows[kind] else {key}
        since = failing.setdefault(key, values.step)
        is_first = next(iter(failing)) == key and not self._follows[kind]
        if is_first or key in self._sources:  # the others follow from those
            at_the_loss = not values.all("grad") and bool(values.all("output"))
            yield key, self._finding(value, since, self._before[key], at_the_loss=at_the_loss)

    def _look(self, metric: bool, step: int) -> None:
        """Remember the last two steps at which anything was looked at."""
        before, last = self._looks.get(metric, (None, step))
        if last != step:
            before, last = last, step
        self._looks[metric] = before, last

    def _is_source(self, kind: str, key: Key) -> bool:
        """Whether a key fails without a cause in another key: it was fine for some time while others failed.

        A mask of infinities, or a metric without a value, must not hide later faults.
        """
        if not self._failing[kind]:
            return True
        return self._began[kind] not in self._steps and self._last_fine.get(key, -1) > self._began[kind]

    def _kind(self, value: Observation, delivery: Delivery) -> str:
        """The kind of fault of a value, of those that the settings include; "" for none."""
        # The part with those numbers was not sent.
        unknown = delivery.finite is False and not value.summary.nans and not value.summary.infs
        counts = {"nan": value.summary.nans, "inf": value.summary.infs or unknown}
        if unknown and not self.settings["inf"]:
            counts["nan"] = 1
        return next((name for name, count in counts.items() if count and self.settings[name]), "")

    @staticmethod
    def _finding(value: Observation, since: int, began: str, *, at_the_loss: bool) -> Finding:
        summary = value.summary
        fault = Nonfinite(summary.nans, summary.infs, summary.count)
        text, values = fault.text, fault.values
        if value.variable == "input":
            text += ": it is in the batch that the model was given, and in no layer"
        elif value.variable == "grad" and at_the_loss:
            text += ": every output that was looked at is finite, so it comes from the loss or its targets"
        values["began_here"] = not began
        return Finding(text + began, fault.advice(value.variable), values, since)


class AllZero(Rule):
    """Every number of an output, a gradient or a weight matrix is zero."""

    name = "all_zero"
    defaults = {"patience": 10, "variables": ["output", "grad", "weight", "weight_grad"]}

    def wants(self, variable: str) -> bool:
        return variable in self.settings["variables"]

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.summary.count < 2 or array_of(delivery).dtype.kind in "biu":
            return
        if value.variable == "weight" and not value.is_matrix:
            return  # biases are initialized to zero, and some stay there
        is_dead_relu = value.variable == "output" and value.layer in values.rectified  # `dead_relu` reports those
        if value.summary.zeros < value.summary.count or is_dead_relu:
            yield value.key, None
            return
        yield (
            value.key,
            Finding(f"all of its {value.summary.count:,} numbers are 0", self._advice(value.variable)),
        )

    @staticmethod
    def _advice(variable: str) -> str:
        if variable == "weight":
            return "give it random values before training"
        if variable == "output":
            return "look at its weights, and at the layer before it: a dead ReLU, a mask, an initialisation with zeros"
        return "look for a dead ReLU, a detach() or a zero weight between this layer and the loss"
