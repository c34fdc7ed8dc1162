"""Where the notifications of a run go: a command or a webhook; which events, and how many."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final
from urllib.parse import urlsplit

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean, short_repr

EVENTS: Final = ("alert", "crash", "end")
SEVERITIES: Final = ("note", "warning", "error")  # in rising order
_EXAMPLES: Final = "'https://…', 'mail -s \"$TORCHEER_TEXT\" me', ['notify-send'] or a dict such as {'url': '$HOOK'}"
_VARIABLE: Final = re.compile(r"\$(\w+)|\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Target:
    """A command or a webhook, and what it is sent."""

    url: str = ""  # that gets a POST; "$NAME" stands for an environment variable
    command: str | tuple[str, ...] = ""  # a program and its arguments; a text is run by the shell
    on: tuple[str, ...] = EVENTS
    severity: str = "warning"  # the least of an alert that is sent
    per_minute: int = 6  # alerts; those beyond are summed up in one
    timeout_secs: float = 15.0  # of one try

    @property
    def shown(self) -> str:
        """The target in messages: without anything of an address that may be secret."""
        if self.url:
            return redacted(self.url)
        return self.command.split()[0] if isinstance(self.command, str) else self.command[0]


def parse_notify(value: Any) -> tuple[Target, ...]:
    """Validate `notify=`: an address, a command (text or list), a dict of `Target`'s fields, or a list of dicts."""
    if value is None:
        return ()
    if isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[0], Mapping):
        return tuple(target for part in value for target in parse_notify(part))
    return (_target(value if isinstance(value, Mapping) else {_kind(value): value}),)


def as_message(target: Target) -> dict[str, Any]:
    """A target as JSON, for the process that notifies."""
    return asdict(target)


def from_message(message: Mapping[str, Any]) -> Target:
    """The target that `as_message` was given."""
    parts: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in message.items()}
    return Target(**parts)


def redacted(url: str) -> str:
    """Scheme and host of an address: its user, path and query may hold a secret.

    >>> redacted("https://me:password@hooks.example.com:8443/services/T0/B0?token=x")
    'https://hooks.example.com:8443/…'
    """
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"
    except ValueError:
        return "an address"


def _kind(value: Any) -> str:
    return "url" if isinstance(value, str) and value.lower().startswith(("http://", "https://")) else "command"


def _target(settings: Mapping[str, Any]) -> Target:
    names = [field.name for field in fields(Target)]
    for name in settings:
        if name not in names:
            raise BadArgument(f"notify: there is no {name!r}; there are {', '.join(names)}.{did_you_mean(name, names)}")
    if ("url" in settings) == ("command" in settings):
        raise BadArgument(f"notify: either a url or a command is needed: {_EXAMPLES}")
    parts = dict(settings)
    for name, parse in _PARSERS.items():
        if name in parts:
            parts[name] = parse(parts[name])
    return Target(**parts)


def _url(value: Any) -> str:
    if isinstance(value, str) and (variable := _VARIABLE.fullmatch(value)):
        name = variable[1] or variable[2]
        if not (value := os.environ.get(name, "")):
            raise BadArgument(f"notify: the environment variable {name} is not set; it is to hold the address")
    if not isinstance(value, str) or _kind(value) != "url" or re.search(r"[\x00-\x20]", value):
        raise BadArgument("notify: a url begins with http:// or https:// and has no spaces; '$NAME' takes a variable")
    try:
        parts = urlsplit(value)
        if not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise BadArgument(f"notify: {redacted(value)} is no address: its host or port is missing or wrong") from None
    return value


def _command(value: Any) -> str | tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, Sequence) and texts and all(isinstance(text, str) and "\0" not in text for text in texts):
        if texts[0].strip():
            return value if isinstance(value, str) else tuple(texts)
    raise BadArgument(f"notify: {short_repr(value)} is no command; give one of {_EXAMPLES}")


def _events(value: Any) -> tuple[str, ...]:
    events = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (value,)
    for event in events or ("",):
        if event not in EVENTS:
            raise BadArgument(f"notify: on={event!r}: there are {', '.join(EVENTS)}.{did_you_mean(event, EVENTS)}")
    return events


def _severity(value: Any) -> str:
    if value not in SEVERITIES:
        near = did_you_mean(value, SEVERITIES)
        raise BadArgument(f"notify: severity={value!r}: there are {', '.join(SEVERITIES)}.{near}")
    return str(value)


def _per_minute(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadArgument(f"notify: per_minute={value!r}: a whole number from 1 on is needed")
    return value


def _timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 600:
        raise BadArgument(f"notify: timeout_secs={value!r}: a number above 0 is needed, at most 600")
    return float(value)


_PARSERS: Final = {
    "url": _url, "command": _command, "on": _events, "severity": _severity, "per_minute": _per_minute,
    "timeout_secs": _timeout,
}  # fmt: skip
