"""Settings of an optimizer that are changed by hand while a schedule moves them: the schedule goes on from there."""

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
_LEAST_RATIO: Final = 1e-30  # as good as none, and a rate that is set later still finds the schedule


def schedulers_of(optimizer: Optimizer) -> list[Any]:
    """The schedulers that move an optimizer's settings, be they parts of others; it knows none of them itself."""
    kinds = (LRScheduler, ReduceLROnPlateau)
    found = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    return [one for one in found if getattr(vars(one).get("optimizer"), "param_groups", None) is optimizer.param_groups]


def parts_of(scheduler: Any) -> Iterator[Any]:
    """A scheduler, and those that it is made of."""
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from parts_of(part)


def change_setting(group: dict[str, Any], key: str, value: float, schedulers: Iterable[Any]) -> None:
    """Set `lr`, `momentum`, … of a group; schedules go on as if they had always brought it to this value.

    All that they compute it from is scaled by the same ratio. Where a schedule is at zero there is none: then the value
    is what its base becomes.
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
    if hasattr(group[key], "fill_"):  # a capturable optimizer's
        group[key].fill_(value)
    else:
        group[key] = value


def _number_of(scheduler: Any, group: dict[str, Any]) -> int:
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
    return next((number for number, one in enumerate(groups) if one is group), -1)
