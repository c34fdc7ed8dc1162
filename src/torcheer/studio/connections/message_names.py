"""Messages by their names on the wire, and the JSON of those that go to the page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import Any, Final

from torcheer.studio.connections import messages


def kind(cls: type) -> str:
    """A message's name on the wire: NetCame is "net_came"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
FROM_PAGE: Final[dict[str, type[Any]]] = {kind(cls): cls for cls in messages.FROM_PAGE}


def written(message: Any) -> str:
    """A message as JSON; NaN and infinities, which JSON cannot say, are their names in JavaScript."""
    said = {"kind": kind(type(message)), **asdict(message)}
    try:
        return json.dumps(said, allow_nan=False, separators=(",", ":"), default=plain)
    except ValueError:
        return json.dumps(_sayable(said), allow_nan=False, separators=(",", ":"))


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _sayable(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else _NAMES[str(value)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _sayable(plain(value))


def plain(value: Any) -> Any:
    """An array or one of its numbers as lists and numbers, anything else as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
