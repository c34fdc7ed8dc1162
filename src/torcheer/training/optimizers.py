"""Look up optimizers and schedulers by short name, and when a scheduler steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from torcheer.config import bind
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.session_parts import Schedule

OPTIMIZERS: dict[str, type[Optimizer]] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}
SCHEDULERS: dict[str, type[Any]] = {
    name: getattr(lr_scheduler, name) for name in lr_scheduler.__all__ if name != "LRScheduler"
}
CLOSURES = ("LBFGS",)  # these run the model themselves, several times for one batch
STEPWISE = ("OneCycleLR", "CyclicLR")  # these count updates; all others count epochs by default
MONITORING = ("ReduceLROnPlateau",)


def find_optimizer(name: str) -> type[Optimizer]:
    """Return the class in torch.optim of a short name."""
    if name not in OPTIMIZERS:
        raise BadArgument(f"there is no optimizer {name!r} in torch.optim.{did_you_mean(name, OPTIMIZERS)}")
    if name in CLOSURES:
        raise BadArgument(f"{name} runs the model several times for an update, and a session runs it once for a batch")
    return OPTIMIZERS[name]


def find_scheduler(name: str) -> type[Any]:
    """Return the class in torch.optim.lr_scheduler of a short name."""
    if name not in SCHEDULERS:
        raise BadArgument(
            f"there is no scheduler {name!r} in torch.optim.lr_scheduler.{did_you_mean(name, SCHEDULERS)}"
        )
    return SCHEDULERS[name]


def optimizer(name: str, parameters: Any, **kwargs: Any) -> Optimizer:
    """Make an optimizer of torch.optim, by its name."""
    made: Optimizer = checked(find_optimizer(name), {"params": parameters, **kwargs})(parameters, **kwargs)
    return made


def schedule(name: str, optimizer: Optimizer, *, every: str = "", monitor: str = "", **kwargs: Any) -> Schedule:
    """Make a scheduler of torch.optim.

    It steps every `every` ("step" or "epoch"), by default its own.
    """
    scheduler = checked(find_scheduler(name), {"optimizer": optimizer, **kwargs})
    return Schedule(scheduler(optimizer, **kwargs), *schedule_timing(name, every, monitor))


def schedule_timing(name: str, every: str = "", monitor: str = "") -> tuple[str, str]:
    """Return when a scheduler steps, and which column it monitors."""
    if every not in ("", "step", "epoch"):
        raise BadArgument(f"every={every!r}: a scheduler steps every 'step' or every 'epoch'")
    if name in MONITORING and not monitor:
        raise BadArgument(f"{name} needs to know which column it looks at: monitor='val loss', for example")
    if name in MONITORING and every == "step":
        raise BadArgument(f"{name} looks at {monitor!r}, which is known once an epoch: it cannot step every step")
    if monitor and name not in MONITORING:
        raise BadArgument(f"{name} looks at no column: leave out monitor={monitor!r}")
    return every or ("step" if name in STEPWISE else "epoch"), monitor


def checked(kind: type[Any], kwargs: Mapping[str, Any]) -> type[Any]:
    """Return a class; raise where it does not take these arguments."""
    wrong = bind(kind, kwargs)
    if wrong:
        raise BadArgument(wrong)
    return kind
