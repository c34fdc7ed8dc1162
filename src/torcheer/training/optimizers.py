"""Optimizers and learning-rate schedulers by their short names, and when a scheduler steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from torcheer.config import bind, nearest
from torcheer.errors import BadArgument
from torcheer.training.spec.session_parts import Schedule

OPTIMIZERS: dict[str, type[Optimizer]] = {
    name: found
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, Optimizer) and found is not Optimizer
}
SCHEDULERS: dict[str, type[Any]] = {
    name: getattr(lr_scheduler, name) for name in lr_scheduler.__all__ if name != "LRScheduler"
}
CLOSURES = ("LBFGS",)  # they run the model themselves, several times for one batch
STEPWISE = ("OneCycleLR", "CyclicLR")  # they count updates; all others count epochs unless told otherwise
MONITORING = ("ReduceLROnPlateau",)


def find_optimizer(name: str) -> type[Optimizer]:
    """The class in torch.optim of a short name."""
    if name not in OPTIMIZERS:
        raise BadArgument(f"there is no optimizer {name!r} in torch.optim.{nearest(name, OPTIMIZERS)}")
    if name in CLOSURES:
        raise BadArgument(f"{name} runs the model several times for an update, and a session runs it once for a batch")
    return OPTIMIZERS[name]


def find_scheduler(name: str) -> type[Any]:
    """The class in torch.optim.lr_scheduler of a short name."""
    if name not in SCHEDULERS:
        raise BadArgument(f"there is no scheduler {name!r} in torch.optim.lr_scheduler.{nearest(name, SCHEDULERS)}")
    return SCHEDULERS[name]


def optimizer(name: str, parameters: Any, **kwargs: Any) -> Optimizer:
    """A new optimizer of torch.optim, by its name."""
    found: Optimizer = checked(find_optimizer(name), {"params": parameters, **kwargs})(parameters, **kwargs)
    return found


def schedule(name: str, optimizer: Optimizer, *, every: str = "", monitor: str = "", **kwargs: Any) -> Schedule:
    """A scheduler of torch.optim with its rhythm: its own where `every` ("step" or "epoch") is not given."""
    found = checked(find_scheduler(name), {"optimizer": optimizer, **kwargs})
    return Schedule(found(optimizer, **kwargs), *rhythm(name, every, monitor))


def rhythm(name: str, every: str = "", monitor: str = "") -> tuple[str, str]:
    """When a scheduler steps, and which column it looks at."""
    if every not in ("", "step", "epoch"):
        raise BadArgument(f"every={every!r}: a scheduler steps every 'step' or every 'epoch'")
    if name in MONITORING and not monitor:
        raise BadArgument(f"{name} needs to know which column it looks at: monitor='val loss', for example")
    if name in MONITORING and every == "step":
        raise BadArgument(f"{name} looks at {monitor!r}, which is known once an epoch: it cannot step every step")
    if monitor and name not in MONITORING:
        raise BadArgument(f"{name} looks at no column: leave out monitor={monitor!r}")
    return every or ("step" if name in STEPWISE else "epoch"), monitor


def checked(found: type[Any], kwargs: Mapping[str, Any]) -> type[Any]:
    """A class, if it takes these arguments."""
    wrong = bind(found, kwargs)
    if wrong:
        raise BadArgument(wrong)
    return found
