"""The parameter form of a running session: its config, read-only, and what may be changed.

An optimizer's `lr`, `momentum` and `weight_decay` change in its groups, and a schedule is scaled with the rate; they
are part of the checkpoint that is saved at once. Settings of the watch go to spec.json, like changes on the command
line.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.control.config_form import form_of
from torcheer.control.control_records import Parameter
from torcheer.disk import write_file
from torcheer.errors import BadArgument
from torcheer.host.rate_schedules import change_setting, parts_of
from torcheer.monitor.rules import RULES, describe_rules, resolve_rules
from torcheer.monitor.watch_settings import stops
from torcheer.terminal import did_you_mean

if TYPE_CHECKING:
    from torcheer.training.session import Session

EDITABLE = {  # key of an optimizer's group -> (description, minimum)
    "lr": ("the learning rate; a schedule goes on from it", 0.0),
    "momentum": ("how much of the last update goes into the next", 0.0),
    "weight_decay": ("how strongly weights are drawn to zero", 0.0),
}
COLUMNS = ("step", "epoch", "name", "before", "after")


@dataclass(frozen=True)
class ParameterChange:
    """A changed parameter, with its old and new value."""

    name: str
    before: Any
    after: Any


def form_parameters(session: Session, data: Mapping[str, Any] | None = None) -> list[Parameter]:
    """Return the lines of the form.

    Editable parameters first, then the config, section by section.
    """
    editable = [*_editable(session), *_rules(session)]
    return [
        *_editable(session),
        *_read_only(session, data or {}, {parameter.name for parameter in editable}),
        *_rules(session),
    ]


def _editable(session: Session) -> Iterator[Parameter]:
    for name, group, key in _optimizer_settings(session):
        doc, least = EDITABLE[key]
        value = group[key]
        value = value.item() if hasattr(value, "item") else value  # a capturable optimizer's rate is a tensor
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
    """Yield the numeric settings of the watch's rules."""
    watch = session.options.watch
    docs = {name: doc for name, doc, _ in describe_rules()}
    for rule, settings in resolve_rules(watch.get("rules", "default")).items() if watch is not None else ():
        for key, value in settings.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                kind, least = ("integer", 1.0) if isinstance(value, int) else ("number", 0.0)
                name, group = f"watch.rules.{rule}.{key}", f"watch · {rule}"
                yield Parameter(name, value, kind, True, docs[rule], group, minimum=least)


def _optimizer_settings(session: Session) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, group and key of each editable optimizer setting.

    Several groups are numbered.
    """
    for name, optimizer in session.optimizers.items():
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            owner = f"optimizers.{name}" if len(groups) == 1 else f"optimizers.{name}.{number}"
            for key in EDITABLE:
                if isinstance(group.get(key), float | int) or hasattr(group.get(key), "item"):
                    yield f"{owner}.{key}", group, key


def _read_only(session: Session, data: Mapping[str, Any], excluded: set[str]) -> Iterator[Parameter]:
    """Yield the config, or the options of a session built in Python."""
    settings = {key: value for key, value in vars(session.options).items() if value is not None}
    parameters = form_of(data) if data else form_of(settings)
    return (parameter for parameter in parameters if parameter.name not in excluded)


# -- changes -----------------------------------------------------------------------------------------------------------


def change_parameter(session: Session, name: str, value: Any) -> ParameterChange | None:
    """Change a parameter; return None where it has that value already.

    Raises where it cannot be changed.
    """
    if name.startswith("watch.") and session.options.watch is not None:
        return _change_watch(session, name, value)
    settings = {setting: (group, key) for setting, group, key in _optimizer_settings(session)}
    if name not in settings:
        names = [parameter.name for parameter in _editable(session)]
        choices = f"there are {', '.join(names)}" if names else "there is none"
        raise BadArgument(f"{name!r} cannot be changed while it trains; {choices}.{did_you_mean(name, names)}")
    group, key = settings[name]
    number = _number(name, value, EDITABLE[key][1])
    before = float(group[key])
    if number == before:
        return None
    schedules = [schedule.scheduler for schedule in session.schedules.values()]
    change_setting(group, key, number, [part for scheduler in schedules for part in parts_of(scheduler)])
    return ParameterChange(name, before, number)


def _number(name: str, value: Any, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise BadArgument(f"{name}={value!r}: a finite number is needed, {least:g} or more")
    return float(value)


def _change_watch(session: Session, name: str, value: Any) -> ParameterChange | None:
    before = {parameter.name: parameter.value for parameter in (*_editable(session), *_rules(session))}
    if name not in before:
        raise BadArgument(f"{name!r} cannot be changed while it trains.{did_you_mean(name, before)}")
    if before[name] == value:
        return None
    key = name.split(".")[1]
    setting = {"every": _set_every, "stop_on": _set_stop_on, "rules": _set_rules}[key](session, name, value)
    session.options = replace(session.options, watch={**(session.options.watch or {}), key: setting})
    return ParameterChange(name, before[name], value)


def _set_every(session: Session, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadArgument(f"{name}={value!r}: a whole number of steps is needed, 1 or more")
    if session.watch is not None:
        session.watch.set_every(value)
    return value


def _set_stop_on(session: Session, name: str, value: Any) -> list[str]:
    if not isinstance(value, str):
        raise BadArgument(f"{name}={value!r}: names of rules are needed, with commas between them")
    names = list(
        stops([word.strip() for word in value.split(",") if word.strip()], resolve_rules(_configured_rules(session)))
    )
    if session.watch is not None:
        session.watch.set_stop_on(names)
    return names


def _set_rules(session: Session, name: str, value: Any) -> dict[str, Any]:
    """Return all rules, with one setting changed."""
    configured, (_, _, rule, key) = _configured_rules(session), name.split(".")
    settled = resolve_rules(configured)
    rules: dict[str, Any] = {rule_name: settled.get(rule_name, False) for rule_name in RULES}
    if isinstance(configured, Mapping) or configured == "default":  # keep the defaults implicit
        rules = dict(configured) if isinstance(configured, Mapping) else {}
    rules[rule] = {**(rules[rule] if isinstance(rules.get(rule), Mapping) else {}), key: value}
    resolve_rules(rules)  # raises for an invalid setting
    if session.watch is not None:
        session.watch.set_rules(rules)
    return rules


def _configured_rules(session: Session) -> Any:
    return (session.options.watch or {}).get("rules", "default")


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


# -- log of changes ---------------------------------------------------------------------------------------------------


class ChangeLog:
    """`metrics/changes.csv`: changes by hand, and after which step."""

    def __init__(self, directory: Path | None, step: int) -> None:
        self._path = None if directory is None else directory / "metrics" / "changes.csv"
        self._rows: list[list[Any]] = []
        if self._path is not None and self._path.exists():
            with open(self._path, newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdecimal()]
            self._rows = [list(row) for row in rows if int(row[0]) <= step]  # later steps are trained again
            if len(self._rows) != len(rows):
                self._write()

    def add(self, change: ParameterChange, step: int, epoch: int) -> None:
        """Append a change."""
        self._rows.append([step, epoch, change.name, change.before, change.after])
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            text = io.StringIO(newline="")
            csv.writer(text).writerows([COLUMNS, *self._rows])
            write_file(self._path, text.getvalue().encode())
