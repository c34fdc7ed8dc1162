"""See, train and understand any PyTorch model.

import torcheer as tl
history = tl.log_forward_pass(model, x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.lazy_names import lazy_names

__version__ = "0.2.0"

# Public names and the module each lives in; imported when first used, so that readers start without torch.
_VERBS = (
    "draw", "extract", "lens", "live", "load", "log_forward_pass", "patch_sweep", "plan", "recording", "report", "show",
    "validate", "watch",
)  # fmt: skip
_HOMES = {
    **dict.fromkeys(_VERBS, "torcheer.verbs"),
    **dict.fromkeys(("Audio", "Confusion", "Image", "TableOf", "Text"), "torcheer.runlog.media.media_types"),
    "ModelHistory": "torcheer.history",
    "Save": "torcheer.capture.values.save_policy",
    "Style": "torcheer.drawing",
    "Edit": "torcheer.capture.edits",
    "edits": "torcheer.capture.edits",
    **{name: f"torcheer.{name}" for name in ("autograd", "errors", "inspector", "training")},
}

# Written out, as type checkers and editors read it without running it; a test compares it with the homes.
__all__ = [
    "Audio", "Confusion", "Edit", "Image", "ModelHistory", "Save", "Style", "TableOf", "Text", "__version__",
    "autograd", "draw", "edits", "errors", "extract", "inspector", "lens", "live", "load", "log_forward_pass",
    "patch_sweep", "plan", "recording", "report", "show", "training", "validate", "watch",
]  # fmt: skip

if TYPE_CHECKING:
    from torcheer import autograd, errors, inspector, training
    from torcheer.capture import edits
    from torcheer.capture.edits import Edit
    from torcheer.capture.values.save_policy import Save
    from torcheer.drawing import Style
    from torcheer.history import ModelHistory
    from torcheer.runlog.media.media_types import Audio, Confusion, Image, TableOf, Text
    from torcheer.verbs import (
        draw,
        extract,
        lens,
        live,
        load,
        log_forward_pass,
        patch_sweep,
        plan,
        recording,
        report,
        show,
        validate,
        watch,
    )

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, older="torcheer.originals.torchlens")
