"""A session's config as a read-only form: a group per definition, then the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torcheer.control.config_terms import sections_of
from torcheer.control.control_records import Parameter

_LONGEST: Final = 200  # characters of a displayed value
_DEEPEST: Final = 20
_PARTS: Final = ("initialize", "train", "source")  # of a session's config, shown by their definitions


def form_of(config: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a config as in a run's `spec.json`; malformed parts are left out.

    Definitions are named by their name ("digits.path" in the group "digits · dataset"), or by group and name where two
    share a name.
    """
    source = config.get("source")
    # Else it is what somebody else's loop says of itself.
    is_session = "initialize" in config or (isinstance(source, Mapping) and "config" in source)
    settings = {key: value for key, value in config.items() if not (is_session and key in _PARTS)}
    parameters = [
        part
        for key, value in settings.items()
        for part in parameters_of(str(key), value, _group(key, value, "session" if is_session else "config"))
    ]
    for name, heading, values in sections_of(config) if is_session else ():
        parameters += [part for key, value in values.items() for part in parameters_of(f"{name}.{key}", value, heading)]
    return list({parameter.name: parameter for parameter in reversed(parameters)}.values())[::-1]


def _group(key: str, value: Any, usual: str) -> str:
    """The heading of a setting: settings with parts, as those of the watch, have one of their own."""
    return key if isinstance(value, Mapping) else usual


def parameters_of(name: str, value: Any, group: str, depth: int = 0) -> Iterator[Parameter]:
    """Flatten a value to parameters (text, numbers, flags), each named by its path."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from parameters_of(f"{name}.{key}", part, group, depth + 1)
    elif isinstance(value, list | tuple) and not all(_is_plain(part) for part in value):
        for number, part in enumerate(value):
            yield from parameters_of(f"{name}.{number}", part, group, depth + 1)
    else:
        yield Parameter(name, *_display(value), group=group)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _display(value: Any) -> tuple[Any, str]:
    """A value as the form displays it, and its kind."""
    if isinstance(value, bool):
        return value, "flag"
    if isinstance(value, int):
        return value, "integer"
    if isinstance(value, float):
        return (value, "number") if math.isfinite(value) else (str(value), "text")
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)[:_LONGEST], "text"
    return "" if value is None else str(value)[:_LONGEST], "text"
