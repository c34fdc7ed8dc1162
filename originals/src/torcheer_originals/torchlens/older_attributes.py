"""Attributes of TorchLens's histories, layers and operations, read from ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torcheer.history import ModelHistory
from torcheer.records import Op
from torcheer.selection import label_name
from torcheer.terminal import human_bytes, unknown_attribute, warn_of_difference


def read(view: Any, name: str) -> Any:
    """Return what TorchLens calls `name` of a history, a layer or an operation; AttributeError if it is nothing."""
    table = HISTORY if isinstance(view, ModelHistory) else OPERATION
    if name in _COUNTS:
        warn_of_difference("torchlens", COUNTED)
    found = table.get(name)
    if callable(found):
        return found(view)
    if found is not None:
        return getattr(view, found)
    kind = type(view).__name__
    if name in ELSEWHERE:
        raise AttributeError(f"{kind} has no {name!r}, TorchLens's name: here {ELSEWHERE[name]}")
    raise unknown_attribute(view, name, table)


def _dtype(view: Any) -> Any:
    torch = sys.modules.get("torch")
    return getattr(torch, view.dtype.removeprefix("torch."), view.dtype) if torch else view.dtype


def _parameters(view: Any) -> list[Any]:
    return [stored for stored in view.stored if stored.kind == "parameter"]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _gradient_shape(view: Any) -> tuple[int, ...] | None:
    gradient = view.grad_contents
    return None if gradient is None else tuple(gradient.shape)


def _short(view: Any) -> str:
    return str(view.layer_label).rpartition("_")[0]


def _call_names(calls: Any) -> list[str]:
    return [f"{call.address}:{call.call}" for call in calls]


# TorchLens's name of an operation's or layer's attribute -> ours, or what computes it.
OPERATION: dict[str, str | Callable[[Any], Any]] = {
    **dict.fromkeys(("out", "tensor"), "tensor_contents"),
    "grad": "grad_contents",
    "tensor_shape": "shape",
    "tensor_dtype": _dtype,
    **dict.fromkeys(("tensor_fsize", "activation_memory"), "bytes"),
    "tensor_fsize_nice": lambda view: human_bytes(view.bytes),
    **dict.fromkeys(("func_applied_name", "func_name"), "name"),
    "layer_type": lambda view: label_name(view.name),
    **dict.fromkeys(("gradfunc", "grad_fn_class_name"), "grad_fn"),
    **dict.fromkeys(("func_time_elapsed", "func_duration"), "elapsed_secs"),
    **dict.fromkeys(("function_is_inplace", "is_inplace"), "inplace"),
    "flops_forward": "flops",
    **dict.fromkeys(("operation_num", "step_index"), "index"),
    **dict.fromkeys(("pass_num", "pass_index"), "pass_number"),
    "layer_passes_total": lambda view: len(view.layer),
    "layer_label_no_pass": "layer_label",
    **dict.fromkeys(("layer_label_short", "layer_label_no_pass_short"), _short),
    "layer_label_w_pass": lambda view: f"{view.layer_label}:{view.pass_number}",
    **dict.fromkeys(("layer_label_w_pass_short", "label_short"), lambda view: f"{_short(view)}:{view.pass_number}"),
    **dict.fromkeys(("has_saved_activations", "has_saved_activation"), "is_saved"),
    **dict.fromkeys(("has_saved_grad", "has_saved_gradient", "has_grad"), lambda view: view.grad_contents is not None),
    "grad_shape": _gradient_shape,
    **dict.fromkeys(("computed_with_params", "uses_params"), lambda view: bool(_parameters(view))),
    "num_param_tensors": lambda view: len(_parameters(view)),
    **dict.fromkeys(
        ("num_params_total", "num_params"), lambda view: sum(_count(stored.shape) for stored in _parameters(view))
    ),
    **dict.fromkeys(
        ("parent_param_shapes", "param_shapes"), lambda view: [tuple(stored.shape) for stored in _parameters(view)]
    ),
    **dict.fromkeys(("is_input_layer", "is_input"), lambda view: view.kind == "input"),
    **dict.fromkeys(("is_output_layer", "is_output"), lambda view: view.kind == "output"),
    "containing_module_origin": lambda view: _call_names(view.modules)[-1] if view.modules else None,
    "containing_modules_origin_nested": lambda view: _call_names(view.modules),
    **dict.fromkeys(("is_computed_inside_submodule", "in_submodule"), lambda view: bool(view.modules)),
    **dict.fromkeys(("module_nesting_depth", "module_call_depth"), lambda view: len(view.modules)),
    **dict.fromkeys(
        ("modules_exited", "output_of_modules"), lambda view: [call.address for call in reversed(view.output_of)]
    ),
    **dict.fromkeys(
        ("module_passes_exited", "output_of_module_calls"), lambda view: _call_names(reversed(view.output_of))
    ),
    **dict.fromkeys(("is_submodule_output", "is_module_output"), lambda view: bool(view.output_of)),
    "has_parents": lambda view: bool(view.parents),
    "has_children": lambda view: bool(view.children),
    **dict.fromkeys(("source_model_history", "source_trace"), "history"),
}


def _labels(history: ModelHistory, kind: str) -> list[str]:
    return [op.label for op in history if op.kind == kind]


def _total(history: ModelHistory, measure: Callable[[Any], int]) -> int:
    return sum(measure(op) for op in history)


def _parameter_sum(history: ModelHistory, measure: Callable[[Any], int]) -> int:
    return sum(measure(parameter) for parameter in history.parameters.values())


def _passes(history: ModelHistory) -> dict[str, int]:
    return {layer.label: len(layer) for layer in history.layers}


COUNTED = (
    "operations, layers and passes are counted otherwise than in TorchLens: composites are opened, an operation with "
    "several results is one layer, a buffer is none, and passes are those of one line of code"
)
_COUNTS = frozenset(
    "layer_list layer_labels_w_pass op_labels layer_num_passes layer_num_calls layer_passes_total num_layers "
    "model_max_recurrent_loops max_layer_op_count model_is_recurrent is_recurrent num_tensors_total num_tensors "
    "num_operations num_ops".split()
)

# The same of a history.
HISTORY: dict[str, str | Callable[[Any], Any]] = {
    "layer_list": list,
    "layer_labels_no_pass": "layer_labels",
    **dict.fromkeys(
        ("layer_labels_w_pass", "op_labels"),
        lambda history: [f"{op.layer_label}:{op.pass_number}" for op in history],
    ),
    "layer_dict_main_keys": lambda history: {op.label: op for op in history},
    **dict.fromkeys(("layer_num_passes", "layer_num_calls"), _passes),
    **dict.fromkeys(("model_max_recurrent_loops", "max_layer_op_count"), lambda log: max(_passes(log).values())),
    **dict.fromkeys(("model_is_recurrent", "is_recurrent"), lambda log: max(_passes(log).values(), default=1) > 1),
    **dict.fromkeys(("model_is_branching", "is_branching"), lambda log: any(len(op.children) > 1 for op in log)),
    "input_layers": lambda history: _labels(history, "input"),
    "output_layers": lambda history: _labels(history, "output"),
    "layers_with_saved_activations": lambda history: [op.label for op in history if op.is_saved],
    "saved_ops": lambda history: {op.label: op for op in history if op.is_saved},
    "layers_computed_with_params": lambda history: [op.label for op in history if _parameters(op)],
    "model_class_name": "model_name",
    **dict.fromkeys(("num_tensors_total", "num_tensors"), len),
    **dict.fromkeys(("num_tensors_saved", "num_saved_ops"), lambda log: _total(log, lambda op: op.is_saved)),
    **dict.fromkeys(("num_operations", "num_ops"), lambda log: _total(log, lambda op: op.kind == "op")),
    "num_layers": lambda history: len(history.layers),
    **dict.fromkeys(("tensor_fsize_total", "total_activation_memory"), lambda log: _total(log, lambda op: op.bytes)),
    **dict.fromkeys(
        ("tensor_fsize_saved", "saved_activation_memory"),
        lambda log: _total(log, lambda op: op.bytes if op.is_saved else 0),
    ),
    "total_flops_forward": lambda history: _total(history, lambda op: op.flops or 0),
    **dict.fromkeys(("total_params", "num_params"), lambda log: _parameter_sum(log, lambda one: _count(one.shape))),
    **dict.fromkeys(("total_param_tensors", "num_param_tensors"), lambda history: len(history.parameters)),
    **dict.fromkeys(("random_seed_used", "random_seed"), lambda history: history.info.seed),
    "elapsed_time_total": lambda history: history.info.elapsed_secs,
    "module_addresses": lambda history: list(history.modules),
    "log_backward": "backward",
    "validate_forward_pass": "validate",
    "cleanup": lambda history: lambda: None,  # nothing of the model or of torch was wrapped
}

# TorchLens's names that mean something else or nothing here -> what to write.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("creation_args", "creation_kwargs", "saved_args", "saved_kwargs"), "`.inputs` has the arguments"),
    **dict.fromkeys(("func_call_stack", "code_context"), "`.source` is the line of your code"),
    **dict.fromkeys(("func_applied", "func"), "`.function` is the function's full name"),
    **dict.fromkeys(
        ("min_distance_from_input", "max_distance_from_input", "min_distance_to_output", "max_distance_to_output",
         "min_distance_from_output", "max_distance_from_output", "input_ancestors", "output_descendants"),
        "`.parents` and `.children` lead through the graph; distances are not computed",
    ),
    "transformed_out": "`.tensor_contents` is what the transform returned",
    "has_out_variations": "`.inputs` has each argument as it was when it was used",
    "module_call_stack": "`.modules` has the module calls around it, outermost first",
    **dict.fromkeys(("layer_dict_all_keys", "layer_logs"), "`history[key]` takes every key, `.layers` lists them"),
    **dict.fromkeys(("params", "param_logs"), "`.parameters` has them by name"),
    **dict.fromkeys(("render_graph", "animate_ops"), "`.draw(path)` draws it"),
    **dict.fromkeys(("fork", "attach_hooks", "do", "push", "set"), "edits are made in the run: edits=…"),
    **dict.fromkeys(("receptive_field", "projective_field", "receptive_fields"), "there are no receptive fields"),
    "save_new_activations": "run the model again: log_forward_pass(model, x, layers_to_save=…)",
    "get_parent_layers": "`.parent_layers` are their labels",
    "get_child_layers": "`.child_layers` are their labels",
}  # fmt: skip

assert not [name for name in OPERATION if hasattr(Op, name)]  # ours come first, so these would never be read
