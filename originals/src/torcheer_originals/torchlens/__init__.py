"""TorchLens's names, of versions 1 and 2, where they mean what they meant there.

import torcheer_originals.torchlens as tl
log = tl.trace(model, x)

Histories, layers and operations have the attributes of TorchLens, too, in a program that imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torcheer.history.doors
from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torcheer import ModelHistory, load
    from torcheer_originals.torchlens.older_verbs import (
        extract,
        extract_dataset,
        get_model_metadata,
        log_forward_pass,
        log_model_metadata,
        pluck,
        save,
        show_model_graph,
        summary,
        trace,
        validate,
        validate_forward_pass,
        validate_saved_activations,
    )
    from torcheer_originals.torchlens.site_selectors import (
        clamp,
        contains,
        func,
        in_module,
        label,
        mean_ablate,
        module,
        noise,
        replace_with,
        scale,
        steer,
        when,
        where,
        zero_ablate,
    )

_HOMES = {
    **dict.fromkeys(
        ("extract", "extract_dataset", "get_model_metadata", "log_forward_pass", "log_model_metadata", "pluck", "save",
         "show_model_graph", "summary", "trace", "validate", "validate_forward_pass", "validate_saved_activations"),
        "torcheer_originals.torchlens.older_verbs",
    ),
    **dict.fromkeys(
        ("clamp", "contains", "func", "in_module", "label", "mean_ablate", "module", "noise", "replace_with", "scale",
         "steer", "when", "where", "zero_ablate"),
        "torcheer_originals.torchlens.site_selectors",
    ),
    "ModelHistory": "torcheer.history",
    "load": "torcheer",
}  # fmt: skip

# TorchLens's names that are not here -> what to write.
ELSEWHERE = {
    "bundle": "history.compare(other) compares two runs",
    **dict.fromkeys(("fastlog", "record"), "log_forward_pass(…, structure=False) records only what modules return"),
    **dict.fromkeys(("release_model", "unwrap_torch", "wrap_torch"), "nothing is wrapped, so nothing is released"),
    **dict.fromkeys(("do", "push", "run"), "edits belong to the run: log_forward_pass(…, edits=…)"),
    **dict.fromkeys(("project_off", "project_onto", "swap_with"), "any function is an edit: edits={'relu_1': it}"),
    **dict.fromkeys(("bwd_hook", "grad_scale", "grad_zero"), "tl.Edit(function, at='gradient') edits gradients"),
    "sweep": "patch_sweep(model, clean, corrupted, metric=…)",
    "hash": "history.structural_hash()",
    "validate_batch_of_models_and_inputs": "call validate_forward_pass for each",
}  # fmt: skip

__all__ = [
    "ModelHistory", "clamp", "contains", "extract", "extract_dataset", "func", "get_model_metadata", "in_module",
    "label", "load", "log_forward_pass", "log_model_metadata", "mean_ablate", "module", "noise", "pluck",
    "replace_with", "save", "scale", "show_model_graph", "steer", "summary", "trace", "validate",
    "validate_forward_pass", "validate_saved_activations", "when", "where", "zero_ablate",
]  # fmt: skip

_find, __dir__ = lazy_names(__name__, _HOMES)


def _read(view: Any, name: str) -> Any:
    """Read an attribute by TorchLens's name; its tables are loaded when the first is read."""
    from torcheer_originals.torchlens.older_attributes import read

    return read(view, name)


torcheer.history.doors.find_attribute = _read

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        if name in ELSEWHERE:
            raise AttributeError(f"torcheer has no {name!r}, TorchLens's name: {ELSEWHERE[name]}")
        return _find(name)
