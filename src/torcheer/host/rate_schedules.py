"""Changes an optimizer's settings under a scheduler, which continues from the new value."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any, Final

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

# What schedulers compute a setting from: keys of the group, lists of a scheduler with a number for each group.
_SOURCES: Final = {
    "lr": (("initial_lr", "max_lr", "min_lr", "swa_lr"), ("base_lrs", "max_lrs")),
    "momentum": (("base_momentum", "max_momentum"), ("base_momentums", "max_momentums")),
}
_LEAST_RATIO: Final = 1e-30  # practically zero, but a rate set later can still be scaled back


def schedulers_of(optimizer: Optimizer) -> list[Any]:
    """Find an optimizer's schedulers, nested ones too.

    Torch keeps no references, so search the gc's objects.
    """
    kinds = (LRScheduler, ReduceLROnPlateau)
    schedulers = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), kinds)]
    groups = optimizer.param_groups
    return [
        scheduler
        for scheduler in schedulers
        if getattr(vars(scheduler).get("optimizer"), "param_groups", None) is groups
    ]


def parts_of(scheduler: Any) -> Iterator[Any]:
    """Yield a scheduler and its nested parts."""
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from parts_of(part)


def change_setting(group: dict[str, Any], key: str, value: float, schedulers: Iterable[Any]) -> None:
    """Set `lr`, `momentum`, … of a group.

    Schedulers continue as if they had always led to this value.

    Everything they compute it from is scaled by the same ratio. A schedule at zero has no ratio: then the value becomes
    its base.
    """
    of_group, of_scheduler = _SOURCES.get(key, ((), ()))
    before = float(group[key]) or float(group.get("initial_lr", 0.0) if key == "lr" else 0.0)
    ratio = max(value / before, _LEAST_RATIO) if before else None
    for source in of_group:
        if source in group:
            group[source] = group[source] * ratio if ratio is not None else value
    for scheduler in schedulers:
        number = _number_of(scheduler, group)
        for source in of_scheduler if number >= 0 else ():
            values = getattr(scheduler, source, None)
            if isinstance(values, list) and number < len(values):
                values[number] = values[number] * ratio if ratio is not None else value
        last = getattr(scheduler, "_last_lr", None)
        if key == "lr" and isinstance(last, list) and 0 <= number < len(last):
            last[number] = value
    if hasattr(group[key], "fill_"):  # a tensor, of a capturable optimizer
        group[key].fill_(value)
    else:
        group[key] = value


def _number_of(scheduler: Any, group: dict[str, Any]) -> int:
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
    return next((number for number, candidate in enumerate(groups) if candidate is group), -1)
