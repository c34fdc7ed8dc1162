"""See, train and understand any PyTorch model.

import torcheer as tl
history = tl.log_forward_pass(model, x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and the module each lives in; imported when first used, so that readers start without torch.
_HOMES = {
    **dict.fromkeys(("log_forward_pass", "recording", "validate", "draw", "Save", "Style", "edits"), "torcheer.api"),
    "ModelHistory": "torcheer.history",
    "load": "torcheer.archive",
    "extract": "torcheer.api",
    "watch": "torcheer.api",
    "show": "torcheer.api",
    "live": "torcheer.api",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from torcheer.api import (
        ModelHistory,
        Save,
        Style,
        draw,
        edits,
        extract,
        live,
        load,
        log_forward_pass,
        recording,
        show,
        validate,
        watch,
    )


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torcheer' has no attribute {name!r}; it has {', '.join(_HOMES)}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
