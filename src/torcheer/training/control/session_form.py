"""The parameter form of a running session: its config, read-only, and what may be changed.

An optimizer's `lr`, `momentum` and `weight_decay` change in its groups, and a schedule is scaled with the rate.
Settings of the watch go to spec.json, like changes on the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torcheer.control.config_form import form_of
from torcheer.control.control_records import Parameter
from torcheer.control.parameter_form import ParameterChange, Setting, set_parameter
from torcheer.host.optimizer_form import optimizer_settings
from torcheer.host.rate_schedules import parts_of
from torcheer.monitor.rules import RULES, describe_rules, resolve_rules
from torcheer.monitor.watch_settings import stops

if TYPE_CHECKING:
    from torcheer.training.session import Session


def form_parameters(session: Session, data: Mapping[str, Any] | None = None) -> list[Parameter]:
    """Return the lines of the form.

    Editable parameters first, then the config, section by section; the rules of the watch are the last.
    """
    editable = [setting.parameter for setting in settings_of(session)]
    first = [parameter for parameter in editable if not parameter.name.startswith("watch.rules.")]
    read_only = _read_only(session, data or {}, {parameter.name for parameter in editable})
    return [*first, *read_only, *editable[len(first) :]]


def change_parameter(session: Session, name: str, value: Any) -> ParameterChange | None:
    """Change a parameter; return None where it has that value already.

    Raises where it cannot be changed.
    """
    return set_parameter(settings_of(session), name, value)


def settings_of(session: Session) -> list[Setting]:
    """Return what may be changed while a session trains."""
    return [*_optimizers(session), *_watch(session), *_rules(session)]


def _optimizers(session: Session) -> Iterator[Setting]:
    """Yield the settings of the optimizers; several groups of one are numbered."""
    for name, optimizer in session.optimizers.items():
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            owner = name if len(groups) == 1 else f"{name}.{number}"
            heading = f"{owner} · optimizer"
            yield from optimizer_settings(group, f"optimizers.{owner}.", heading, partial(_schedulers, session))


def _schedulers(session: Session) -> list[Any]:
    return [part for schedule in session.schedules.values() for part in parts_of(schedule.scheduler)]


def _read_only(session: Session, data: Mapping[str, Any], excluded: set[str]) -> Iterator[Parameter]:
    """Yield the config, or the options of a session built in Python."""
    settings = {key: value for key, value in vars(session.options).items() if value is not None}
    parameters = form_of(data) if data else form_of(settings)
    return (
        parameter
        for parameter in parameters
        if not any(f".{other}".endswith(f".{parameter.name}") for other in excluded)
    )


# -- the watch ---------------------------------------------------------------------------------------------------------


def _watch(session: Session) -> Iterator[Setting]:
    watch = session.options.watch
    if watch is None:
        return
    every, doc = watch.get("every", 20), "look at every n-th step"
    if isinstance(every, int):
        parameter = Parameter("watch.every", every, "integer", True, doc, "watch", minimum=1)
        yield Setting(parameter, partial(_set_every, session))
    doc = "rules whose alert ends the run, with commas between them; error: all that are fatal"
    names = watch.get("stop_on", ())
    text = names if isinstance(names, str) else ", ".join(str(name) for name in names)
    yield Setting(Parameter("watch.stop_on", text, "text", True, doc, "watch"), partial(_set_stop_on, session))


def _rules(session: Session) -> Iterator[Setting]:
    """Yield the numeric settings of the watch's rules."""
    if session.options.watch is None:
        return
    docs = {name: doc for name, doc, _ in describe_rules()}
    for rule, settings in resolve_rules(_configured_rules(session)).items():
        for key, value in settings.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                kind, least = ("integer", 1.0) if isinstance(value, int) else ("number", 0.0)
                name, group = f"watch.rules.{rule}.{key}", f"watch · {rule}"
                parameter = Parameter(name, value, kind, True, docs[rule], group, minimum=least)
                yield Setting(parameter, partial(_set_rule, session, rule, key))


def _keep(session: Session, key: str, value: Any) -> None:
    session.options = replace(session.options, watch={**(session.options.watch or {}), key: value})


def _set_every(session: Session, every: int) -> None:
    if session.watch is not None:
        session.watch.set_every(every)
    _keep(session, "every", every)


def _set_stop_on(session: Session, text: str) -> None:
    words = [word.strip() for word in text.split(",") if word.strip()]
    names = list(stops(words, resolve_rules(_configured_rules(session))))
    if session.watch is not None:
        session.watch.set_stop_on(names)
    _keep(session, "stop_on", names)


def _set_rule(session: Session, rule: str, key: str, value: Any) -> None:
    configured = _configured_rules(session)
    settled = resolve_rules(configured)
    rules: dict[str, Any] = {rule_name: settled.get(rule_name, False) for rule_name in RULES}
    if isinstance(configured, Mapping) or configured == "default":  # keep the defaults implicit
        rules = dict(configured) if isinstance(configured, Mapping) else {}
    rules[rule] = {**(rules[rule] if isinstance(rules.get(rule), Mapping) else {}), key: value}
    resolve_rules(rules)  # raises for an invalid setting
    if session.watch is not None:
        session.watch.set_rules(rules)
    _keep(session, "rules", rules)


def _configured_rules(session: Session) -> Any:
    return (session.options.watch or {}).get("rules", "default")
