"""The lines of a form from the config of a session, to be read: of its definitions a group each, then the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torcheer.control.control_records import Parameter

_LONGEST: Final = 200  # characters of a value
_DEEPEST: Final = 20


def form_of(config: Mapping[str, Any]) -> list[Parameter]:
    """The form of a config, as `spec.json` of a run has it; what is not as it should be is left out.

    Definitions are called by their names ("digits.kwargs.path" in the group "digits · datasets"), or by their group and
    name where two have the same name.
    """
    settings = {key: value for key, value in config.items() if key not in ("initialize", "train", "source")}
    begun = config.get("initialize")
    begun = begun if isinstance(begun, Mapping) else {}
    found = [line for key, value in settings.items() for line in lines_of(str(key), value, "session")]
    found += _definitions(begun.get("definitions"))
    for key in ("pipelines", "debug_pipelines"):
        found += lines_of(key, begun.get(key) or {}, key)
    return [*found, *lines_of("train", config.get("train") or {}, "train")]


def _definitions(given: Any) -> Iterator[Parameter]:
    listed = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    names = Counter(str(one.get("name")) for one in listed)
    for one in listed:
        group, name, spec = str(one.get("group")), str(one.get("name")), one.get("spec")
        if isinstance(spec, Mapping):
            yield from lines_of(name if names[name] == 1 else f"{group}.{name}", spec, f"{name} · {group}")


def lines_of(name: str, value: Any, group: str, depth: int = 0) -> Iterator[Parameter]:
    """A value as lines of text, numbers and flags, each under its path."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from lines_of(f"{name}.{key}", part, group, depth + 1)
    elif isinstance(value, list | tuple) and not all(_is_plain(one) for one in value):
        for number, part in enumerate(value):
            yield from lines_of(f"{name}.{number}", part, group, depth + 1)
    else:
        yield Parameter(name, *_shown(value), group=group)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _shown(value: Any) -> tuple[Any, str]:
    """A value for the form, and its kind."""
    if isinstance(value, bool):
        return value, "flag"
    if isinstance(value, int):
        return value, "integer"
    if isinstance(value, float):
        return (value, "number") if math.isfinite(value) else (str(value), "text")
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)[:_LONGEST], "text"
    return "" if value is None else str(value)[:_LONGEST], "text"
