"""The settings of optimizers that a page may change, and the form of a user's own loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from torcheer.control.control_records import Parameter
from torcheer.control.parameter_form import ParameterChange, Setting
from torcheer.host.host import Host
from torcheer.host.rate_schedules import change_setting, schedulers_of

_EDITABLE: Final = {
    "lr": "the learning rate; a schedule goes on from it",
    "momentum": "how much of the last update goes into the next",
    "weight_decay": "how strongly weights are drawn to zero",
}
_SEND_SECS: Final = 0.5  # a scheduler may change them at every step


def optimizer_settings(
    group: dict[str, Any], prefix: str, heading: str, schedulers: Callable[[], Iterable[Any]]
) -> Iterator[Setting]:
    """Yield the editable settings of an optimizer's parameter group, named `prefix` + key.

    `schedulers()` returns those that may move them, which go on from a new value.
    """
    for key, doc in _EDITABLE.items():
        value = _number(group.get(key))
        if value is not None:
            parameter = Parameter(prefix + key, value, "number", True, doc, heading, minimum=0.0)
            yield Setting(parameter, partial(_set, group, key, schedulers))


def _set(group: dict[str, Any], key: str, schedulers: Callable[[], Iterable[Any]], number: float) -> None:
    change_setting(group, key, number, schedulers())


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | torch.Tensor):
        return None
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


class OptimizerForm:
    """Shows the settings of an optimizer, and facts about the model."""

    def __init__(self, host: Host, model: nn.Module, optimizer: Optimizer | None) -> None:
        self._host, self._optimizer, self._sent_at = host, optimizer, 0.0
        self._fixed: dict[str, float] = {}  # settings made on the page that no scheduler changes
        count = sum(p.numel() for p in model.parameters() if not isinstance(p, nn.parameter.UninitializedParameter))
        self._facts = [
            Parameter("model", type(model).__name__, "text", group="Model"),
            Parameter("parameters", count, "integer", group="Model", doc="how many numbers are learned"),
        ]
        self.send()

    def settings(self) -> list[Setting]:
        """The settings of each parameter group; several groups are numbered."""
        optimizer = self._optimizer
        if optimizer is None:
            return []
        groups, heading = optimizer.param_groups, type(optimizer).__name__
        return [
            setting
            for number, group in enumerate(groups, 1)
            for setting in optimizer_settings(
                group, f"group {number}: " if len(groups) > 1 else "", heading, partial(schedulers_of, optimizer)
            )
        ]

    def send(self) -> None:
        """Publish the current values, at most every `_SEND_SECS`."""
        now = time.monotonic()
        if now - self._sent_at >= _SEND_SECS and not self._host.closed:
            self._sent_at = now
            parameters = [setting.parameter for setting in self.settings()]
            self._alert_overwritten(parameters)
            self._host.parameters = [*parameters, *self._facts]

    def changed(self, change: ParameterChange | None) -> None:
        """Publish a change that was made on the page."""
        if change is not None and self._optimizer is not None:
            self._fixed.pop(change.name, None)
            if not schedulers_of(self._optimizer):
                self._fixed[change.name] = change.after
        self._sent_at = 0.0
        self.send()

    def _alert_overwritten(self, parameters: list[Parameter]) -> None:
        """Alert about fixed settings that changed: no scheduler moves them, so the loop itself did."""
        for parameter in parameters:
            name, current = parameter.name, parameter.value
            if name in self._fixed and not math.isclose(current, self._fixed[name], rel_tol=1e-6):
                fixed = self._fixed.pop(name)
                text = f"{name} was set to {fixed:g} on the page, and the loop has set it to {current:g} since"
                self._host.alert(text, "warning", rule="studio")
