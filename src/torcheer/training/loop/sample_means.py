"""Means over samples that never make training wait for the device.

Values are summed when read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument

FLUSH = 1024  # pending values: enough to be cheap, few enough to be small


class Mean:
    """A mean weighted by samples."""

    def __init__(self) -> None:
        self._pending: list[Any] = []
        self._weights: list[float] = []
        self.total, self.weight = 0.0, 0.0

    def add(self, value: Any, weight: float) -> None:
        """Add a value; a tensor on a device is not read yet, one on the CPU at once: it would only hold memory."""
        is_tensor = isinstance(value, Tensor)
        if not self._pending and (not is_tensor or (value.is_cpu and value.numel() == 1)):
            self.total += (value.item() if is_tensor else float(value)) * weight
            self.weight += weight
            return
        self._pending.append(value.detach() if is_tensor else value)
        self._weights.append(weight)
        if len(self._pending) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Sum the pending values one by one: the result does not depend on when this happens."""
        if not self._pending:
            return
        values: list[float] = (
            torch.stack([value.reshape(()) if value.ndim else value for value in self._pending]).double().tolist()
            if all(isinstance(value, Tensor) for value in self._pending)
            else [float(value) for value in self._pending]
        )
        for value, weight in zip(values, self._weights):
            self.total += value * weight
            self.weight += weight
        self._pending.clear()
        self._weights.clear()

    def value(self) -> float:
        """Return the mean so far; NaN where there is none."""
        self.flush()
        return self.total / self.weight if self.weight else float("nan")

    def reset(self) -> None:
        self._pending.clear()
        self._weights.clear()
        self.total, self.weight = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        self.flush()
        return {"total": self.total, "weight": self.weight}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.reset()
        self.total, self.weight = state["total"], state["weight"]

    def merge(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Become the mean over what several ranks have seen."""
        self.reset()
        for state in states:
            self.total, self.weight = self.total + state["total"], self.weight + state["weight"]


class StatefulMeter:
    """A metric with state: update, compute, reset."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def update(self, values: Any) -> None:
        self.metric.update(*values)

    def value(self) -> float:
        value = self.metric.compute()
        if isinstance(value, Mapping):
            raise BadArgument(
                f"{type(self.metric).__name__} gives several values ({', '.join(map(str, value))}), and a column has "
                "one: give each of its metrics a name of its own"
            )
        return float(value)

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

    @property
    def is_additive(self) -> bool:
        """Whether the sum of two states is the state of both batches."""
        return bool(getattr(self.metric, "ADDS", False))

    def merge(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Become the metric over what several ranks have seen."""
        if not self.is_additive:  # it has seen the batches of all
            self.restore(states[0])
            return
        self.metric.reset()
        for name in self.metric.STATE:
            values = [value for state in states if not _is_empty(value := state[""][name])]
            if values:
                setattr(self.metric, name, sum(values[1:], values[0]))


class WholeBatchMeter(StatefulMeter):
    """A metric whose states cannot be added: each rank updates it with the batches of all."""

    def __init__(self, metric: Any, exchange: Callable[[Any], list[Any]]) -> None:
        super().__init__(metric)
        self._exchange = exchange
        parts: Any = metric.modules() if isinstance(metric, torch.nn.Module) else ()
        for part in parts:
            if hasattr(part, "sync_on_compute"):  # torchmetrics would gather what each rank has already
                part.sync_on_compute = part._to_sync = False

    def gather(self, values: Any) -> None:
        """Update with the values of all ranks, joined along the batch; None from a rank that has none."""
        parts = self._exchange(None if values is None else [_on_host(value) for value in values])
        given = [part for part in parts if part is not None]
        device = next((value.device for value in values or () if isinstance(value, Tensor)), None)
        joined = [_join(type(self.metric).__name__, column) for column in zip(*given)]
        self.metric.update(*(value.to(device) if isinstance(value, Tensor) and device else value for value in joined))


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value


def _join(metric: str, parts: Sequence[Any]) -> Any:
    """One value of the parts that ranks have."""
    if all(isinstance(part, Tensor) and part.ndim for part in parts):
        return torch.cat(list(parts))
    if all(isinstance(part, list | tuple) for part in parts):
        return [item for part in parts for item in part]
    raise BadArgument(
        f"{metric} is updated with {type(parts[0]).__name__}s, which are no batches: what several ranks have of them "
        "cannot be joined. Give it tensors or lists of samples, or a function of a batch in its place"
    )


def _is_empty(value: Any) -> bool:
    return isinstance(value, int) and value == 0


def _parts(metric: Any) -> list[tuple[str, Any, tuple[str, ...]]]:
    """Return the parts of a metric with the attributes that hold their state.

    torchmetrics has a table of them in each module; our classes list them in `STATE`. Empty where a metric has a
    state_dict instead. Of any other metric all attributes are taken: a checkpoint reports those it cannot hold.
    """
    if isinstance(metric, torch.nn.Module):
        parts = [(path, part, tuple(getattr(part, "_defaults", ()))) for path, part in metric.named_modules()]
        return [part for part in parts if part[2]]
    names = getattr(metric, "STATE", ())
    if not names and hasattr(metric, "state_dict") and hasattr(metric, "load_state_dict"):
        return []
    return [("", metric, tuple(names or vars(metric)))]
