"""The page's form for a user's own loop: optimizer settings, and facts about the model."""

from __future__ import annotations

import math
import time
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from torcheer.control.control_records import Parameter
from torcheer.host.host import Host
from torcheer.host.rate_schedules import change_setting, schedulers_of

_EDITABLE: Final = {
    "lr": "learning rate; a schedule goes on from it",
    "momentum": "momentum",
    "weight_decay": "weight decay",
}
_SEND_SECS: Final = 0.5  # a scheduler may change them at every step


class OptimizerForm:
    """Shows and changes the settings of an optimizer's parameter groups."""

    def __init__(self, host: Host, model: nn.Module, optimizer: Optimizer | None) -> None:
        self._host, self._optimizer, self._sent_at = host, optimizer, 0.0
        self._fixed: dict[str, float] = {}  # settings made on the page that no scheduler changes
        count = sum(p.numel() for p in model.parameters() if not isinstance(p, nn.parameter.UninitializedParameter))
        self._facts = [
            Parameter("model", type(model).__name__, "text", group="Model"),
            Parameter("parameters", count, "integer", group="Model", doc="how many numbers are learned"),
        ]
        self.send()

    def send(self) -> None:
        """Publish the current values, at most every `_SEND_SECS`."""
        now = time.monotonic()
        if now - self._sent_at >= _SEND_SECS and not self._host.closed:
            self._sent_at = now
            self._alert_overwritten()
            self._host.parameters = [*self._settings(), *self._facts]

    def _settings(self) -> list[Parameter]:
        if self._optimizer is None:
            return []
        group = type(self._optimizer).__name__
        return [
            Parameter(name, _number(values[key]), "number", editable=True, doc=_EDITABLE[key], group=group, minimum=0.0)
            for name, values, key in self._places()
        ]

    def _places(self) -> list[tuple[str, dict[str, Any], str]]:
        """Each setting's name, its parameter group and its key there."""
        groups = self._optimizer.param_groups if self._optimizer is not None else []
        several = len(groups) > 1
        return [
            (f"group {number}: {key}" if several else key, group, key)
            for number, group in enumerate(groups, 1)
            for key in _EDITABLE
            if key in group and _number(group[key]) is not None
        ]

    def change(self, name: str, value: Any) -> None:
        """Change a setting from the next step on; a refusal is shown as an alert on the page."""
        number = _number(value)
        places = [(group, key) for setting, group, key in self._places() if setting == name]
        if not places:
            self._host.alert(f"{name!r} cannot be changed while this loop runs", "info", rule="studio")
        elif number is None or number < 0:
            self._host.alert(f"{name}: {value!r} is no number from 0 on", "info", rule="studio")
        else:
            self._set(name, *places[0], number)
        self._sent_at = 0.0
        self.send()

    def _set(self, name: str, group: dict[str, Any], key: str, number: float) -> None:
        assert self._optimizer is not None
        schedulers = schedulers_of(self._optimizer)
        change_setting(group, key, number, schedulers)
        self._fixed.pop(name, None)
        if not schedulers:
            self._fixed[name] = number

    def _alert_overwritten(self) -> None:
        """Alert about fixed settings that changed: no scheduler moves them, so the loop itself did."""
        for name, group, key in self._places():
            current = _number(group[key])
            if (
                name in self._fixed
                and current is not None
                and not math.isclose(current, self._fixed[name], rel_tol=1e-6)
            ):
                fixed = self._fixed.pop(name)
                text = f"{name} was set to {fixed:g} on the page, and the loop has set it to {current:g} since"
                self._host.alert(text, "warning", rule="studio")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | torch.Tensor):
        return None
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
