"""The form of a session that is looked at: its config to read, and what may be changed while it runs.

An optimizer's `lr`, `momentum` and `weight_decay` change in its groups, and a schedule is scaled with the rate; they
are part of the checkpoint that is saved at once. What is said of the watch goes to spec.json, as if the command line
had said it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.config import nearest
from torcheer.control.config_form import form_of
from torcheer.control.control_records import Parameter
from torcheer.errors import BadArgument
from torcheer.host.rate_schedules import change_setting, parts_of
from torcheer.monitor.rules import RULES, described, settle
from torcheer.monitor.watch_settings import stops
from torcheer.training.checkpoints.run_directory import replace_file

if TYPE_CHECKING:
    from torcheer.training.session import Session

EDITABLE = {  # key of an optimizer's group -> (what it is, its least value)
    "lr": ("the learning rate; a schedule goes on from it", 0.0),
    "momentum": ("how much of the last update goes into the next", 0.0),
    "weight_decay": ("how strongly weights are drawn to zero", 0.0),
}
COLUMNS = ("step", "epoch", "name", "before", "after")


@dataclass(frozen=True)
class Changed:
    """A parameter that has another value from here on."""

    name: str
    before: Any
    after: Any


def parameters(session: Session, data: Mapping[str, Any] | None = None) -> list[Parameter]:
    """The lines of the form: what can be changed first, then the config, section by section."""
    changing = [*_live(session), *_rules(session)]
    return [*_live(session), *_read_only(session, data or {}, {one.name for one in changing}), *_rules(session)]


def _live(session: Session) -> Iterator[Parameter]:
    for name, group, key in _places(session):
        doc, least = EDITABLE[key]
        value = group[key]
        value = value.item() if hasattr(value, "item") else value  # a capturable optimizer's rate
        yield Parameter(name, value, "number", True, doc, name.rpartition(".")[0], minimum=least)
    watch = session.options.watch
    if watch is not None:
        every = watch.get("every", 20)
        doc = "look at every n-th step"
        if isinstance(every, int):
            yield Parameter("watch.every", every, "integer", True, doc, "watch", minimum=1)
        doc = "rules whose alert ends the run, with commas between them; error: all that are fatal"
        yield Parameter("watch.stop_on", ", ".join(_texts(watch.get("stop_on", ()))), "text", True, doc, "watch")


def _rules(session: Session) -> Iterator[Parameter]:
    """The numbers by which the watch judges."""
    watch = session.options.watch
    docs = {name: doc for name, doc, _ in described()}
    for rule, settings in settle(watch.get("rules", "default")).items() if watch is not None else ():
        for key, value in settings.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                kind, least = ("integer", 1.0) if isinstance(value, int) else ("number", 0.0)
                name, group = f"watch.rules.{rule}.{key}", f"watch · {rule}"
                yield Parameter(name, value, kind, True, docs[rule], group, minimum=least)


def _places(session: Session) -> Iterator[tuple[str, dict[str, Any], str]]:
    """What an optimizer's settings are called, and where they are; several groups are numbered."""
    for name, optimizer in session.optimizers.items():
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            owner = f"optimizers.{name}" if len(groups) == 1 else f"optimizers.{name}.{number}"
            for key in EDITABLE:
                if isinstance(group.get(key), float | int) or hasattr(group.get(key), "item"):
                    yield f"{owner}.{key}", group, key


def _read_only(session: Session, data: Mapping[str, Any], taken: set[str]) -> Iterator[Parameter]:
    """The config; of a session that Python built, its options."""
    settings = {key: value for key, value in vars(session.options).items() if value is not None}
    found = form_of(data) if data else form_of(settings)
    return (one for one in found if one.name not in taken)


# -- changing ----------------------------------------------------------------------------------------------------------


def change(session: Session, name: str, value: Any) -> Changed | None:
    """Change a parameter; None where it has that value already. Raises where it cannot be."""
    if name.startswith("watch.") and session.options.watch is not None:
        return _change_watch(session, name, value)
    found = {known: (group, key) for known, group, key in _places(session)}
    if name not in found:
        known = [one.name for one in _live(session)]
        there = f"there are {', '.join(known)}" if known else "there is none"
        raise BadArgument(f"{name!r} cannot be changed while it trains; {there}.{nearest(name, known)}")
    group, key = found[name]
    number = _number(name, value, EDITABLE[key][1])
    before = float(group[key])
    if number == before:
        return None
    schedules = [schedule.scheduler for schedule in session.schedules.values()]
    change_setting(group, key, number, [part for one in schedules for part in parts_of(one)])
    return Changed(name, before, number)


def _number(name: str, value: Any, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise BadArgument(f"{name}={value!r}: a finite number is needed, {least:g} or more")
    return float(value)


def _change_watch(session: Session, name: str, value: Any) -> Changed | None:
    before = {one.name: one.value for one in (*_live(session), *_rules(session))}
    if name not in before:
        raise BadArgument(f"{name!r} cannot be changed while it trains.{nearest(name, before)}")
    if before[name] == value:
        return None
    key = name.split(".")[1]
    setting = {"every": _every, "stop_on": _stop_on, "rules": _judging}[key](session, name, value)
    session.options = replace(session.options, watch={**(session.options.watch or {}), key: setting})
    return Changed(name, before[name], value)


def _every(session: Session, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadArgument(f"{name}={value!r}: a whole number of steps is needed, 1 or more")
    if session.watching is not None:
        session.watching.look_every(value)
    return value


def _stop_on(session: Session, name: str, value: Any) -> list[str]:
    if not isinstance(value, str):
        raise BadArgument(f"{name}={value!r}: names of rules are needed, with commas between them")
    found = list(stops([one.strip() for one in value.split(",") if one.strip()], settle(_given(session))))
    if session.watching is not None:
        session.watching.set_stop_on(found)
    return found


def _judging(session: Session, name: str, value: Any) -> dict[str, Any]:
    """All rules, one of which has another setting."""
    given, (_, _, rule, key) = _given(session), name.split(".")
    settled = settle(given)
    rules: dict[str, Any] = {one: settled.get(one, False) for one in RULES}
    if isinstance(given, Mapping) or given == "default":  # what it says is changed, and no more
        rules = dict(given) if isinstance(given, Mapping) else {}
    rules[rule] = {**(rules[rule] if isinstance(rules.get(rule), Mapping) else {}), key: value}
    settle(rules)  # raises where that makes no sense
    if session.watching is not None:
        session.watching.set_rules(rules)
    return rules


def _given(session: Session) -> Any:
    return (session.options.watch or {}).get("rules", "default")


def _texts(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else [str(one) for one in given]


# -- what was changed --------------------------------------------------------------------------------------------------


class Journal:
    """`metrics/changes.csv`: what was changed by hand, and after which step."""

    def __init__(self, directory: Path | None, step: int) -> None:
        self._path = None if directory is None else directory / "metrics" / "changes.csv"
        self._rows: list[list[Any]] = []
        if self._path is not None and self._path.exists():
            with open(self._path, newline="") as file:
                found = [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdecimal()]
            self._rows = [list(row) for row in found if int(row[0]) <= step]  # what came later is to come again
            if len(self._rows) != len(found):
                self._write()

    def note(self, changed: Changed, step: int, epoch: int) -> None:
        """Write a change down."""
        self._rows.append([step, epoch, changed.name, changed.before, changed.after])
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            text = io.StringIO(newline="")
            csv.writer(text).writerows([COLUMNS, *self._rows])
            replace_file(self._path, text.getvalue().encode())
