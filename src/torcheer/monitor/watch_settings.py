"""The settings of a watch, validated before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from torcheer.disk import local_path
from torcheer.errors import BadArgument
from torcheer.monitor.callbacks import packed
from torcheer.monitor.rules import resolve_rules
from torcheer.public_names import PublicClass
from torcheer.ranks import Ranks
from torcheer.runlog.log_frames import LogPlace
from torcheer.runlog.machine.system_rows import SYSTEM_SECS, check_secs
from torcheer.runlog.volume.log_budget import check_bytes
from torcheer.samples import DISK_FULL, Alert
from torcheer.tap.step_schedule import Schedule, schedule_of
from torcheer.terminal import did_you_mean
from torcheer.video.videos import settle as settle_video
from torcheer.wire.notify.notify_targets import Target, parse_notify
from torcheer.wire.ring import POLICIES

WHAT = ("output", "grad", "weight", "weight_grad", "update")
LOOKED_AT = ("output", "grad", "weight", "update")  # where nothing else is asked for


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


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """The options of a watch."""

    what: tuple[str, ...]
    schedule: Schedule
    to: Path | None
    rules: dict[str, Any]
    video: dict[str, Any]  # settings of `Videos`
    callback: bytes  # serialized for the child
    keep: tuple[str, ...]
    stop_on: tuple[str, ...]
    transport: Transport
    optimizer: Optimizer | None = None
    on_alert: Callable[[Alert], Any] | None = None
    step_of: Callable[[], int] | None = None
    tell: Callable[[str], Any] | None = None
    notify: tuple[Target, ...] = ()
    system_secs: float = SYSTEM_SECS  # between two rows about the machine; 0: none
    log: LogPlace | None = None
    ranks: Ranks = 0  # which of several processes watch
    log_bytes: int | None = None  # that the log may have; None for any

    @property
    def whole(self) -> tuple[str, ...]:
        """Patterns of the keys whose arrays are sent in full."""
        return ("*",) if self.callback else (*self.keep, *_patterns(self.video.get("keys", ()), "video"))


def parse_settings(
    *, what: Any = LOOKED_AT, every: Any = 20, to: Any = None, rules: Any = "default", video: Any = None,
    callback: Any = None, keep: Any = (), stop_on: Any = (), transport: Any = None, optimizer: Any = None,
    notify: Any = None, system_secs: Any = SYSTEM_SECS, log: LogPlace | None = None, ranks: Ranks = 0,
    log_bytes: Any = None, **functions: Any,
) -> WatchSettings:  # fmt: skip
    """Validate and parse the options of `watch`."""
    settled = resolve_rules(rules)
    for name, function in {"callback": callback, **functions}.items():
        if function is not None and not callable(function):
            raise BadArgument(f"{name}={function!r}: a function is needed")
    settings = WatchSettings(
        what=_variables(what), schedule=schedule_of(every), to=_folder(to),
        rules=settled, video=settle_video(video), callback=packed(callback, None, as_torch=False),
        keep=_patterns(keep, "keep"), stop_on=stops(stop_on, settled), transport=_transport(transport),
        optimizer=_optimizer(optimizer), notify=parse_notify(notify),
        system_secs=check_secs(system_secs), log=log, ranks=ranks, log_bytes=check_bytes(log_bytes), **functions,
    )  # fmt: skip
    for name in ("video", "keep"):
        if getattr(settings, name) and settings.to is None:
            raise BadArgument(f"{name}: a folder is needed for it; give the watch one with to=")
    return settings


def _folder(to: Any) -> Path | None:
    if to is not None and (not isinstance(to, str | os.PathLike) or not os.fspath(to)):
        raise BadArgument(f"to={to!r}: the name of a folder is needed, or None to write nothing")
    return None if to is None else local_path(to, "write to='run', and copy that folder when it ends").absolute()


def _variables(value: Any) -> tuple[str, ...]:
    variables = _texts(value, "what")
    for variable in variables:
        if variable not in WHAT:
            raise BadArgument(f"what={variable!r}: there are {', '.join(WHAT)}.{did_you_mean(variable, WHAT)}")
    if not variables:
        raise BadArgument(f"what={value!r}: nothing to look at; there are {', '.join(WHAT)}")
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
