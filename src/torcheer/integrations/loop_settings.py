"""Settings of somebody else's loop as JSON: whatever they come as, and whatever they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.terminal import short_repr

_DEEPEST: Final = 20
_MOST_TEXT: Final = 1000


def plain_settings(settings: Any) -> dict[str, Any]:
    """The settings as a dict that JSON can hold; what it cannot becomes text."""
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    elif not isinstance(settings, Mapping) and hasattr(settings, "__dict__") and not isinstance(settings, type):
        settings = vars(settings)  # argparse's Namespace
    if not isinstance(settings, Mapping):
        raise BadArgument(f"the settings of a run are a dict, a namespace or a dataclass, not {short_repr(settings)}")
    return {str(name): _plain(value, _DEEPEST) for name, value in settings.items()}


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if depth and isinstance(value, Mapping):
        return {str(name): _plain(part, depth - 1) for name, part in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(part, depth - 1) for part in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a scalar of numpy or torch
        return _plain(value.item(), depth)
    return str(value)[:_MOST_TEXT]
