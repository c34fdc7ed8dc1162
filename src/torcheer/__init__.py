"""See, train and understand any PyTorch model.

import torcheer as tl
history = tl.log_forward_pass(model, x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

__version__ = "0.2.0"

# Public names and the module each lives in; imported when first used, so that readers start without torch.
_HOMES = {
    **dict.fromkeys(("log_forward_pass", "recording", "validate"), "torcheer.capture"),
    **dict.fromkeys(("lens", "patch_sweep"), "torcheer.interpret"),
    **dict.fromkeys(("live", "show"), "torcheer.host"),
    "draw": "torcheer.drawing",
    "extract": "torcheer.extraction",
    "load": "torcheer.path_reader",
    "plan": "torcheer.memory",
    "report": "torcheer.studio.report",
    "watch": "torcheer.monitor",
    **dict.fromkeys(("Audio", "Confusion", "Image", "TableOf", "Text"), "torcheer.runlog.media.media_types"),
    "ModelHistory": "torcheer.history",
    "Save": "torcheer.capture.values.save_policy",
    "Style": "torcheer.drawing",
    "Edit": "torcheer.capture.edits",
    "edits": "torcheer.capture.edits",
    **{
        name: f"torcheer.{name}"
        for name in ("archive", "drawing", "errors", "extraction", "inspector", "integrations", "studio", "training")
    },
    "autograd": "torcheer.autograd",
}

# Names that people try here, and what to write instead; names of the rooms above are found there.
_ELSEWHERE = {
    "compare": ": history.compare(other) compares two runs",
    **dict.fromkeys(
        ("Trainer", "fit", "train"),
        ": a training.Session is trained by session.run(), a config by `torcheer train CONFIG` in a shell",
    ),
    **dict.fromkeys(("open", "read", "load_run", "open_run"), ": tl.load(path) opens what torcheer has written"),
    **dict.fromkeys(("hook", "register_hook", "ablate", "intervene"), ": log_forward_pass(…, edits=…) changes values"),
    **dict.fromkeys(("activations", "features", "get_activations"), ": log_forward_pass(model, x) saves all values, "
                    "and extract(model, data, layers=…, to=…) those of a dataset"),
    **dict.fromkeys(("first_nan", "first_inf"), ": it is a method, log_forward_pass(model, x).first_nan()"),
    **dict.fromkeys(("monitor", "callback"), ": `with tl.watch(model) as watch:` around the loop"),
    **dict.fromkeys(("profile", "memory"), ": plan(model, x) predicts memory, history.summary() has the times"),
    **dict.fromkeys(("graph", "plot", "visualize"), ": tl.draw(model, x, path='model.svg') draws the graph"),
    **dict.fromkeys(("logit_lens", "LogitLens"), ": tl.lens(model, inputs)"),
    **dict.fromkeys(("patch", "activation_patching"), ": patch_sweep(model, clean, corrupted, metric=…)"),
    **dict.fromkeys(("view", "serve"), ": tl.show(history) opens the studio, tl.live(model) in a loop"),
    **dict.fromkeys(("export", "to_onnx"), ": it is torcheer.integrations.export_model"),
    "TorcheerCallback": ": it is in torcheer.integrations.lightning and in torcheer.integrations.transformers",
    "TorcheerLogger": ": it is torcheer.integrations.lightning.TorcheerLogger",
}  # fmt: skip

# Written out, as type checkers and editors read it without running it; a test compares it with the homes.
__all__ = [
    "Audio", "Confusion", "Edit", "Image", "ModelHistory", "Save", "Style", "TableOf", "Text", "__version__",
    "archive", "autograd", "draw", "drawing", "edits", "errors", "extract", "extraction", "inspector", "integrations",
    "lens", "live", "load", "log_forward_pass", "patch_sweep", "plan", "recording", "report", "show", "studio",
    "training", "validate", "watch",
]  # fmt: skip

if TYPE_CHECKING:
    from torcheer import archive, autograd, drawing, errors, extraction, inspector, integrations, studio, training
    from torcheer.capture import edits, log_forward_pass, recording, validate
    from torcheer.capture.edits import Edit
    from torcheer.capture.values.save_policy import Save
    from torcheer.drawing import Style, draw
    from torcheer.extraction import extract
    from torcheer.history import ModelHistory
    from torcheer.host import live, show
    from torcheer.interpret import lens, patch_sweep
    from torcheer.memory import plan
    from torcheer.monitor import watch
    from torcheer.path_reader import load
    from torcheer.runlog.media.media_types import Audio, Confusion, Image, TableOf, Text
    from torcheer.studio.report import report

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, elsewhere=_ELSEWHERE)
