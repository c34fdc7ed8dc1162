"""The settings of a watch, validated before anything starts."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from torcheer.disk import local_path
from torcheer.errors import BadArgument
from torcheer.monitor import watch
from torcheer.monitor.callbacks import packed
from torcheer.monitor.rules import resolve_rules
from torcheer.public_names import PublicClass
from torcheer.ranks import Ranks
from torcheer.runlog.log_frames import LogPlace
from torcheer.runlog.machine.system_rows import check_secs
from torcheer.runlog.volume.log_budget import check_bytes
from torcheer.samples import DISK_FULL, Alert
from torcheer.tap.step_schedule import Schedule, schedule_of
from torcheer.terminal import did_you_mean, unknown_option
from torcheer.video.videos import settle as settle_video
from torcheer.vocabulary.variables import WATCHED
from torcheer.wire.notify.notify_targets import Target, parse_notify
from torcheer.wire.ring import POLICIES


@dataclass(frozen=True, slots=True)
class Transport(metaclass=PublicClass):
    """How values are sent to the child.

    - `bytes`: size of the shared memory, in bytes; 64 MiB by default.
    - `policy`: what happens when it is full: "drop" the new value (the default), keep the "latest" of each key, or
      "block" the training.
    - `block_ms`: with "block": milliseconds that the training waits before the new value is dropped.
    - `drain_secs`: seconds that closing waits for the child to finish; None: as long as it gets on, the default.
    """

    bytes: int = 64 << 20
    policy: str = "drop"
    block_ms: float = 0.0
    drain_secs: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int):
            raise BadArgument(f"transport: bytes={self.bytes!r}: a whole number is needed, such as {64 << 20}")
        if self.policy not in POLICIES:
            hint = did_you_mean(self.policy, POLICIES)
            raise BadArgument(f"transport: no policy {self.policy!r}; there are {', '.join(POLICIES)}.{hint}")
        for name in ("block_ms", "drain_secs"):
            value = getattr(self, name)
            if value is None and name == "drain_secs":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise BadArgument(f"transport: {name}={value!r}: a number is needed, 0 or more")
        if (self.policy == "block") != (self.block_ms > 0):
            raise BadArgument(
                f"transport: policy={self.policy!r} with block_ms={self.block_ms:g}: 'block' has the training wait for "
                "block_ms, the others never; try policy='block', block_ms=50"
            )


def _folder(to: Any) -> Path | None:
    if to is not None and (not isinstance(to, str | os.PathLike) or not os.fspath(to)):
        raise BadArgument(f"to={to!r}: the name of a folder is needed, or None to write nothing")
    return None if to is None else local_path(to, "write to='run', and copy that folder when it ends").absolute()


def _variables(value: Any) -> tuple[str, ...]:
    variables = _texts(value, "what")
    for variable in variables:
        if variable not in WATCHED:
            raise BadArgument(f"what={variable!r}: there are {', '.join(WATCHED)}.{did_you_mean(variable, WATCHED)}")
    if not variables:
        raise BadArgument(f"what={value!r}: nothing to look at; there are {', '.join(WATCHED)}")
    return variables


def _texts(value: Any, name: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise BadArgument(f"{name}={value!r}: text is needed, not {wrong[0]!r}")
    return texts


def _patterns(value: Any, name: str) -> tuple[str, ...]:
    """Patterns of keys; a pattern of a layer alone matches all of its variables."""
    return tuple(pattern if "/" in pattern else f"{pattern}/*" for pattern in _texts(value, name))


def _transport(value: Any) -> Transport:
    if value is None or isinstance(value, Transport):
        return value or Transport()
    names = [field.name for field in fields(Transport)]
    if not isinstance(value, Mapping) or (unknown := [name for name in value if name not in names]):
        problem = f"no setting {unknown[0]!r}" if isinstance(value, Mapping) else f"{value!r} means nothing"
        raise BadArgument(f"transport: {problem}; use Transport({', '.join(f'{name}=…' for name in names)})")
    return Transport(**value)


def _optimizer(value: Any) -> Optimizer | None:
    if value is not None and not isinstance(value, Optimizer):
        raise BadArgument(f"optimizer: one of torch.optim is needed, got {type(value).__name__}")
    return value


def _callback(function: Any) -> bytes:
    return packed(_function(function, "callback"), None, as_torch=False)


def _function(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise BadArgument(f"{name}={value!r}: a function is needed")
    return value


# What each option of `watch` is where nothing is given: its signature says so, for loops of ours, too.
OPTIONS: dict[str, Any] = inspect.unwrap(watch).__kwdefaults__
# What a loop of ours says itself of its watch, so that no caller of the loop can.
SAID_BY_LOOPS = frozenset({"to", "on_alert", "step_of", "tell", "system_secs"})


def _from(parse: Callable[[Any], Any]) -> dict[str, Any]:
    """What makes a field of what a caller gave."""
    return {"parse": parse}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The options of `watch`, checked: `parse` makes of what a caller gave what the fields say."""

    what: tuple[str, ...] = field(metadata=_from(_variables))
    every: Schedule = field(metadata=_from(schedule_of))
    to: Path | None = field(metadata=_from(_folder))
    optimizer: Optimizer | None = field(metadata=_from(_optimizer))
    rules: dict[str, Any] = field(metadata=_from(resolve_rules))
    video: dict[str, Any] = field(metadata=_from(settle_video))  # settings of `Videos`
    callback: bytes = field(metadata=_from(_callback))  # serialized for the child
    keep: tuple[str, ...] = field(metadata=_from(partial(_patterns, name="keep")))
    stop_on: tuple[str, ...] = field(metadata=_from(partial(_texts, name="stop_on")))
    on_alert: Callable[[Alert], Any] | None = field(metadata=_from(partial(_function, name="on_alert")))
    step_of: Callable[[], int] | None = field(metadata=_from(partial(_function, name="step_of")))
    tell: Callable[[str], Any] | None = field(metadata=_from(partial(_function, name="tell")))
    transport: Transport = field(metadata=_from(_transport))
    notify: tuple[Target, ...] = field(metadata=_from(parse_notify))
    system_secs: float = field(metadata=_from(check_secs))  # between two rows about the machine; 0: none
    ranks: Ranks  # which of several processes watch
    log_bytes: int | None = field(metadata=_from(check_bytes))  # that the log may have; None for any
    log: LogPlace | None = None  # in the log of a loop of ours

    def __post_init__(self) -> None:
        stops(self.stop_on, self.rules)
        for name in ("video", "keep"):
            if getattr(self, name) and self.to is None:
                raise BadArgument(f"{name}: a folder is needed for it; give the watch one with to=")

    @classmethod
    def parse(cls, *, log: LogPlace | None = None, **options: Any) -> WatchSettings:
        """Check the options of `watch`; those that are left out are what they are there."""
        if unknown := options.keys() - OPTIONS.keys():
            raise unknown_option("watch", min(unknown), OPTIONS)
        options = OPTIONS | options
        parsed = {field.name: field.metadata["parse"](options[field.name]) for field in fields(cls) if field.metadata}
        return cls(ranks=options["ranks"], log=log, **parsed)

    @property
    def whole(self) -> tuple[str, ...]:
        """Patterns of the keys whose arrays are sent in full."""
        return ("*",) if self.callback else (*self.keep, *_patterns(self.video.get("keys", ()), "video"))


def stops(stop_on: Any, rules: Mapping[str, Any]) -> tuple[str, ...]:
    """Validate `stop_on=`: names of enabled rules, "error" for all fatal ones, or "disk_full"."""
    names, allowed = _texts(stop_on, "stop_on"), ["error", DISK_FULL, *rules]
    for name in names:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise BadArgument(f"stop_on={name!r}: no such rule is on; there are {', '.join(allowed)}.{hint}")
    return names


def ends_run(stop_on: Sequence[str], rule: str, severity: str) -> bool:
    """Whether `stop_on=` names a rule whose alerts have this severity."""
    return rule in stop_on or (severity == "error" and "error" in stop_on)
