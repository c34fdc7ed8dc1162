"""See, train and understand any PyTorch model.

import torcheer as tl
history = tl.log_forward_pass(model, x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.lazy_names import lazy_names

__version__ = "0.1.0"

# Public names and the module each lives in; imported when first used, so that readers start without torch.
_HOMES = {
    **dict.fromkeys(("log_forward_pass", "recording", "validate", "draw", "Save", "Style", "edits"), "torcheer.verbs"),
    "ModelHistory": "torcheer.history",
    "load": "torcheer.archive",
    "extract": "torcheer.verbs",
    "watch": "torcheer.verbs",
    "show": "torcheer.verbs",
    "live": "torcheer.verbs",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from torcheer.verbs import (
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
