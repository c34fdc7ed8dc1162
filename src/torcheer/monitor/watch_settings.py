"""What a watch is asked for, understood before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from torcheer.errors import BadArgument
from torcheer.monitor.callbacks import packed
from torcheer.monitor.rules import resolve_rules
from torcheer.samples import DISK_FULL, Alert
from torcheer.tap.step_schedule import Schedule, schedule_of
from torcheer.video.videos import settle as settle_video
from torcheer.wire.ring import POLICIES

WHAT = ("output", "grad", "weight", "weight_grad", "update")


@dataclass(frozen=True, slots=True)
class Transport:
    """How values travel to the child."""

    bytes: int = 64 << 20  # of shared memory
    policy: str = "drop"  # what gives way when it is full: the new value; or "latest": the older one of the same key;
    block_ms: float = 0.0  # or "block": the training waits for so long, then the new value gives way
    drain_secs: float = 10.0  # how long closing waits for the child to finish

    def __post_init__(self) -> None:
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int):
            raise BadArgument(f"transport: bytes={self.bytes!r}: a whole number is needed, such as {64 << 20}")
        if self.policy not in POLICIES:
            near = get_close_matches(str(self.policy), POLICIES, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadArgument(f"transport: no policy {self.policy!r}; there are {', '.join(POLICIES)}.{hint}")
        for name in ("block_ms", "drain_secs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise BadArgument(f"transport: {name}={value!r}: a number is needed, 0 or more")
        if (self.policy == "block") != (self.block_ms > 0):
            raise BadArgument(
                f"transport: policy={self.policy!r} with block_ms={self.block_ms:g}: 'block' has the training wait for "
                "block_ms, the others never; try policy='block', block_ms=50"
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a watch."""

    what: tuple[str, ...]
    schedule: Schedule
    to: Path | None
    rules: dict[str, Any]
    video: dict[str, Any]  # as `Videos` reads them
    callback: bytes  # on its way to the child
    keep: tuple[str, ...]
    stop_on: tuple[str, ...]
    transport: Transport
    optimizer: Optimizer | None = None
    on_alert: Callable[[Alert], Any] | None = None
    step_of: Callable[[], int] | None = None
    tell: Callable[[str], Any] | None = None

    @property
    def whole(self) -> tuple[str, ...]:
        """Patterns of the keys whose arrays are wanted themselves."""
        return ("*",) if self.callback else (*self.keep, *_patterns(self.video.get("keys", ()), "video"))


def understood(
    *, what: Any, every: Any, to: Any, rules: Any, video: Any, callback: Any, keep: Any, stop_on: Any, transport: Any,
    optimizer: Any, **functions: Any,
) -> Settings:  # fmt: skip
    """What the options of `watch` mean; what makes no sense is refused."""
    settled = resolve_rules(rules)
    for name, function in {"callback": callback, **functions}.items():
        if function is not None and not callable(function):
            raise BadArgument(f"{name}={function!r}: a function is needed")
    found = Settings(
        what=_known(what), schedule=schedule_of(every), to=_folder(to),
        rules=settled, video=settle_video(video), callback=packed(callback, None, as_torch=False),
        keep=_patterns(keep, "keep"), stop_on=stops(stop_on, settled), transport=_transport(transport),
        optimizer=_optimizer(optimizer), **functions,
    )  # fmt: skip
    for name in ("video", "keep"):
        if getattr(found, name) and found.to is None:
            raise BadArgument(f"{name}: a folder is needed for it; give the watch one with to=")
    return found


def _folder(to: Any) -> Path | None:
    if to is not None and (not isinstance(to, str | os.PathLike) or not os.fspath(to)):
        raise BadArgument(f"to={to!r}: the name of a folder is needed, or None to write nothing")
    return None if to is None else Path(to).absolute()


def _known(what: Any) -> tuple[str, ...]:
    found = _texts(what, "what")
    for one in found:
        if one not in WHAT:
            near = get_close_matches(one, WHAT, 1)
            hint = f"Did you mean {near[0]!r}?" if near else ""
            raise BadArgument(f"what={one!r}: there are {', '.join(WHAT)}. {hint}".strip())
    if not found:
        raise BadArgument(f"what={what!r}: nothing to look at; there are {', '.join(WHAT)}")
    return found


def _texts(given: Any, name: str) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if strange := [one for one in found if not isinstance(one, str)]:
        raise BadArgument(f"{name}={given!r}: text is needed, not {strange[0]!r}")
    return found


def _patterns(given: Any, name: str) -> tuple[str, ...]:
    """Patterns of keys; one of a layer alone is for all that there is of it."""
    return tuple(one if "/" in one else f"{one}/*" for one in _texts(given, name))


def _transport(given: Any) -> Transport:
    if given is None or isinstance(given, Transport):
        return given or Transport()
    known = [field.name for field in fields(Transport)]
    if not isinstance(given, Mapping) or (strange := [name for name in given if name not in known]):
        what = f"no setting {strange[0]!r}" if isinstance(given, Mapping) else f"{given!r} means nothing"
        raise BadArgument(f"transport: {what}; use Transport({', '.join(f'{name}=…' for name in known)})")
    return Transport(**given)


def _optimizer(given: Any) -> Optimizer | None:
    if given is not None and not isinstance(given, Optimizer):
        raise BadArgument(f"optimizer: one of torch.optim is needed, got {type(given).__name__}")
    return given


def stops(stop_on: Any, rules: Mapping[str, Any]) -> tuple[str, ...]:
    """After which alerts a run is to end: names of rules that are on, "error" for all that are fatal, "disk_full"."""
    found, known = _texts(stop_on, "stop_on"), ["error", DISK_FULL, *rules]
    for name in found:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadArgument(f"stop_on={name!r}: no such rule is on; there are {', '.join(known)}.{hint}")
    return found
