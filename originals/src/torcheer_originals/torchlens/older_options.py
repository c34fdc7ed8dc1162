"""Options of TorchLens's verbs: what each means here, or why it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torcheer
from torcheer.errors import BadArgument
from torcheer.terminal import unknown_option, warn_of_difference


class OlderOptions(TypedDict, total=False):
    """Spellings of TorchLens 1 and 2 that `log_forward_pass` takes beside its own."""

    activation_postfunc: Callable[..., Any] | None  # layers_to_save=Save(transform=…)
    detach_saved_tensors: bool  # layers_to_save=Save(detach=True)
    output_device: str  # layers_to_save=Save(device=…)
    random_seed: int | None  # seed
    vis_mode: str  # vis_opt
    vis_outpath: str | os.PathLike[str]  # vis_path
    vis_fileformat: str  # the ending of vis_path
    vis_nesting_depth: int  # draw(depth=…)
    vis_direction: str  # draw(direction=…)
    vis_save_only: bool  # a drawing is written, never opened
    vis_buffer_layers: bool | str  # a buffer is drawn where it is used
    keep_unsaved_layers: bool
    mark_input_output_distances: bool
    save_function_args: bool  # arguments are always there: .inputs
    save_source_context: bool  # so is the line of the source
    save_rng_states: bool
    num_context_lines: int
    detect_loops: bool
    unwrap_when_done: bool  # nothing is wrapped
    verbose: bool
    # Names of 2.36 for some of these.
    activation_transform: Callable[..., Any] | None
    mark_layer_depths: bool
    recurrence_detection: bool
    save_arg_values: bool
    vis_buffers: bool | str
    vis_call_depth: int


class DrawingWish(NamedTuple):
    """What is drawn of a pass, and where to."""

    mode: str = "none"
    path: Path | None = None
    depth: int | str = "all"
    direction: str = "auto"


RENAMED = {  # option of TorchLens 2.36 -> the name that it had before
    "activation_transform": "activation_postfunc",
    "mark_layer_depths": "mark_input_output_distances",
    "recurrence_detection": "detect_loops",
    "save_arg_values": "save_function_args",
    "vis_buffers": "vis_buffer_layers",
    "vis_call_depth": "vis_nesting_depth",
}
# Option that changes nothing here -> the values that ask for nothing else than what happens, and what happens.
_IGNORED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "vis_save_only": ((True,), "a drawing is written to its file, and never opened"),
    "vis_buffer_layers": ((False, "never"), "a buffer is drawn where it is used"),
    "save_function_args": ((True,), "arguments are always there: layer.inputs"),
    "save_source_context": ((True,), "the line of the source is always there: layer.source"),
    "save_rng_states": ((True,), "random states are kept where replaying needs them"),
    "num_context_lines": ((0, 1), "layer.source is one line"),
    "unwrap_when_done": ((True,), "nothing of torch is wrapped"),
    "verbose": ((False,), "print(history.summary()) says what was recorded"),
}
# Option -> the one value that it may have, and what to do instead of another.
_FIXED: Mapping[str, tuple[Any, str]] = {
    "keep_unsaved_layers": (True, "every operation stays in the history; history.find(lambda layer: layer.is_saved)"),
    "mark_input_output_distances": (False, "distances are not computed; .parents and .children lead through the graph"),
    "detect_loops": (True, "passes are always found; history.ops has every operation by itself"),
}
_DOWNWARDS = "vis_direction='bottomup': drawings run down; draw(direction='right') is the other way"
_DIRECTIONS = {"bottomup": "down", "topdown": "down", "leftright": "right"}
_REFUSED = {
    **dict.fromkeys(
        ("vis_graph_overrides", "vis_node_overrides", "vis_nested_node_overrides", "vis_edge_overrides",
         "vis_gradient_edge_overrides", "vis_module_overrides", "vis_node_placement", "vis_renderer", "vis_theme",
         "visualization"),
        "they are Graphviz's; here tl.draw(history, path, style=tl.Style(…), colour_by=…)",
    ),
    **dict.fromkeys(
        ("save_activations_to", "keep_activations_in_memory", "activation_sink", "streaming", "storage"),
        "history.save(folder) writes it, and tl.extract(model, data, layers=…, to=folder) a dataset",
    ),
    "halt": "layers_to_save=tl.Save([…], stop_early=True) ends the pass after these layers",
    **dict.fromkeys(("lookback", "lookback_payload_policy"), "a predicate may read what is known only at the end"),
    "capture": "its fields are options of log_forward_pass: save_gradients, seed, fused",
    "backend": "this is PyTorch only",
}  # fmt: skip


def by_first_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names that they had first."""
    return {RENAMED.get(name, name): value for name, value in options.items()}


def save_form(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Save` that these options mean."""
    device = options.get("output_device", "same")
    form = {
        "device": None if device == "same" else device,
        "transform": options.get("activation_postfunc"),
        "detach": bool(options.get("detach_saved_tensors", False)),
    }
    return {name: value for name, value in form.items() if value}


def drawing_wish(options: Mapping[str, Any], vis_opt: str = "none", vis_path: Any = None) -> DrawingWish:
    """Return the drawing that these options ask for; TorchLens's ending is .pdf."""
    mode = options.get("vis_mode", vis_opt)
    if mode not in ("none", "rolled", "unrolled"):
        raise BadArgument(f"vis_mode={mode!r}: use 'none', 'rolled' (loops as one node) or 'unrolled'")
    direction = options.get("vis_direction", "auto")
    path = options.get("vis_outpath", vis_path)
    ending = options.get("vis_fileformat")
    target = None if path is None else Path(path)
    if target is not None and (ending or not target.suffix):
        target = target.with_suffix(f".{ending or 'pdf'}")
    depth = options.get("vis_nesting_depth", 1000)
    return DrawingWish(mode, target, "all" if depth >= 1000 else depth, _DIRECTIONS.get(direction, direction))


def check_options(options: Mapping[str, Any], verb: str) -> None:
    """Raise BadArgument for an option that cannot be met, with what to write instead."""
    known = OlderOptions.__annotations__
    for name, value in options.items():
        first = RENAMED.get(name, name)
        if first in _FIXED and value != _FIXED[first][0]:
            raise BadArgument(f"{verb}({name}={value!r}): {_FIXED[first][1]}")
        if name in _REFUSED:
            raise BadArgument(f"{verb} does not take {name}, TorchLens's option: {_REFUSED[name]}")
        if name not in known:
            raise unknown_option(verb, name, _options_of(verb), known)
        usual, instead = _IGNORED.get(first, ((value,), ""))
        if value not in usual:
            warn_of_difference("torchlens", f"{name}={value!r} changes nothing: {instead}")
        if value == "bottomup":
            warn_of_difference("torchlens", _DOWNWARDS)


def _options_of(verb: str) -> list[str]:
    """The options of our verb, in which those of the model are no options."""
    parameters = signature(getattr(torcheer, verb)).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
