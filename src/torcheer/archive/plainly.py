"""Records as JSON and back: only our own plain records have a name in it, and nothing is looked up by one."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from torcheer.errors import ArchiveDamaged
from torcheer.records import Edge, ModuleCall, ModuleInfo, Op, RunInfo, Source, Stored, TensorMeta

RECORDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Op, Edge, TensorMeta, ModuleCall, Stored, Source, ModuleInfo, RunInfo)
}


class Told:
    """Something that JSON cannot hold, of which the text was kept: a dtype, a device, a function."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def plain(value: Any) -> Any:
    """A record, or anything in one, as JSON can hold it."""
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value).__name__ in RECORDS and type(value) is RECORDS[type(value).__name__]:
        return {"$": type(value).__name__, "v": [plain(part) for part in _parts(value)]}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, tuple):
        return {"$": "tuple", "v": [plain(part) for part in value]}
    if isinstance(value, dict):
        return {"$": "dict", "v": [[plain(key), plain(part)] for key, part in value.items()]}
    if isinstance(value, slice):
        return {"$": "slice", "v": [plain(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, (float, complex)):
        return {"$": type(value).__name__, "v": str(value)}
    return {"$": "told", "v": "..." if value is Ellipsis else str(value)}


def _parts(value: Any) -> list[Any]:
    return [getattr(value, one.name) for one in fields(value)] if is_dataclass(value) else list(value)


def restored(value: Any) -> Any:
    """What `plain` was given."""
    if isinstance(value, list):
        return [restored(part) for part in value]
    if not isinstance(value, dict):
        return value
    try:
        name, parts = value["$"], value["v"]
        if name in RECORDS:
            return RECORDS[name](*[restored(part) for part in parts])
        return _MAKE[name](parts)
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveDamaged(f"a record cannot be read: {error!r}") from None


_MAKE: dict[str, Any] = {
    "tuple": lambda parts: tuple([restored(part) for part in parts]),
    "dict": lambda parts: {restored(key): restored(part) for key, part in parts},
    "slice": lambda parts: slice(*[restored(part) for part in parts]),
    "float": float,
    "complex": complex,
    "told": lambda text: Ellipsis if text == "..." else Told(text),
}
