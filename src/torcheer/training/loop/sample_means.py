"""Means over samples that never make training wait: values are summed up when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument

FLUSH = 1024  # values that may wait: enough to be cheap, few enough to be small


class Mean:
    """A mean weighted by samples."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []
        self._weights: list[float] = []
        self.total, self.weight = 0.0, 0.0

    def add(self, value: Any, weight: float) -> None:
        """Count a value in; a tensor is not looked at yet."""
        self._waiting.append(value)
        self._weights.append(weight)
        if len(self._waiting) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Sum up what waits: one after the other, so that it does not matter when."""
        if not self._waiting:
            return
        values: list[float] = (
            torch.stack([value.reshape(()) if value.ndim else value for value in self._waiting]).double().tolist()
            if all(isinstance(value, Tensor) for value in self._waiting)
            else [float(value) for value in self._waiting]
        )
        for value, weight in zip(values, self._weights):
            self.total += value * weight
            self.weight += weight
        self._waiting.clear()
        self._weights.clear()

    def value(self) -> float:
        """The mean so far; not a number where there is none."""
        self.flush()
        return self.total / self.weight if self.weight else float("nan")

    def reset(self) -> None:
        self._waiting.clear()
        self._weights.clear()
        self.total, self.weight = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        self.flush()
        return {"total": self.total, "weight": self.weight}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.reset()
        self.total, self.weight = state["total"], state["weight"]


class Gathered:
    """A metric that keeps a state of its own: update, compute, reset."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def update(self, values: Any) -> None:
        self.metric.update(*values)

    def value(self) -> float:
        found = self.metric.compute()
        if isinstance(found, Mapping):
            raise BadArgument(
                f"{type(self.metric).__name__} gives several values ({', '.join(map(str, found))}), and a column has "
                "one: give each of its metrics a name of its own"
            )
        return float(found)

    def reset(self) -> None:
        self.metric.reset()

    def state(self) -> dict[str, Any]:
        parts = _parts(self.metric)
        if not parts:
            return dict(self.metric.state_dict())
        return {path: {name: getattr(part, name) for name in names} for path, part, names in parts}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.metric.reset()
        parts = _parts(self.metric)
        if not parts:
            self.metric.load_state_dict(state)
        for path, part, _ in parts:
            for name, value in state[path].items():
                setattr(part, name, value)
            if hasattr(part, "_update_count"):  # torchmetrics warns of a compute before any update
                part._update_count = 1


def _parts(metric: Any) -> list[tuple[str, Any, tuple[str, ...]]]:
    """The parts of a metric with the attributes that hold their state.

    torchmetrics has a table of them in each module, ours are named by the class. Empty where a metric has a
    state_dict instead. Of any other, all attributes are taken: a checkpoint says which of them it cannot hold.
    """
    if isinstance(metric, torch.nn.Module):
        parts = [(path, part, tuple(getattr(part, "_defaults", ()))) for path, part in metric.named_modules()]
        return [one for one in parts if one[2]]
    names = getattr(metric, "STATE", ())
    if not names and hasattr(metric, "state_dict") and hasattr(metric, "load_state_dict"):
        return []
    return [("", metric, tuple(names or vars(metric)))]
