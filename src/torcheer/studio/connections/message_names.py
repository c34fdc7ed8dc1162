"""The messages' names on the wire, and their serialization to JSON for the page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, Final

from torcheer.studio.connections import messages


@cache
def kind(cls: Any) -> str:
    """A message class's name on the wire: NetCame is "net_came"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
FROM_PAGE: Final[dict[str, type[Any]]] = {kind(cls): cls for cls in messages.FROM_PAGE}


def serialize(message: Any) -> str:
    """Serialize a message to JSON.

    NaN and infinities, which JSON lacks, become their JavaScript names.
    """
    cls: Any = type(message)
    # Not asdict, which copies every number of a table; the dataclasses inside are converted as they are met.
    record = {"kind": kind(cls), **{field.name: getattr(message, field.name) for field in fields(message)}}
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":"), default=plain_value)
    except ValueError:
        return json.dumps(_without_nan(record), allow_nan=False, separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else _NAMES[str(value)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _without_nan(plain_value(value))


def plain_value(value: Any) -> Any:
    """Convert a dataclass to a dict, an array or numpy scalar to lists and numbers, anything else to its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)
