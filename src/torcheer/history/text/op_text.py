"""The printout of one operation or layer, in TorchLens's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.errors import ValueUnavailable
from torcheer.history.backward_flow import rule_text
from torcheer.history.value_arrays import excerpt
from torcheer.records import ModuleCall, Op, Stored
from torcheer.terminal import cut, human_bytes, human_place

if TYPE_CHECKING:
    from torcheer.history.op_views import LayerView, OpView

NO_FUNCTION = {
    "input": "none, an input of the model",
    "output": "none, an output of the model",
    "unseen": "unseen, it ran where torch shows nothing",
    "alias": "none, memory written under another name",
    "parameter": "none, a leaf that accumulates a gradient",
    "constant": "none, a leaf without a gradient",
}


def describe(op: OpView) -> str:
    """Return the printout of one operation."""
    record = op.record
    lines = [f"Layer {op.layer_label}{_pass(op)}, operation {record.index + 1}/{len(op.history)}:"]
    for output in range(len(record.tensors)):
        lines += _output(op, output)
    lines += [
        f"\tParams: {_params(record.stored)}",
        f"\tParent Layers: {', '.join(op.parent_layers) or 'no parent layers'}",
        f"\tChild Layers: {', '.join(op.child_layers) or 'no child layers'}",
        f"\tFunction: {_function(record)}",
        f"\tComputed inside module: {_call(op, record.modules[-1]) if record.modules else 'none'}",
        f"\t{'Launch time' if record.is_launch_timed else 'Time elapsed'}: {record.elapsed_secs: .3E}s",
        f"\tOutput of modules: {', '.join(_call(op, call) for call in record.output_of) or 'none'}",
    ]
    lines += [f"\tOutput of bottom-level module: {_call(op, call)}" for call in _bottom_level(op)]
    lines += _backward(op)
    lines += [f"\tEdited: {record.edited}"] if record.edited else []
    lines += [f"\tNote: {record.note}"] if record.note else []
    lines.append(f"\tLookup keys: {', '.join(map(str, op.lookup_keys))}")
    return "\n".join(lines)


def _function(record: Op) -> str:
    if record.returned_at:
        return f"{NO_FUNCTION['output']}: {human_place(record.returned_at)}"
    return NO_FUNCTION.get(record.kind) or f"{record.name} (gradfunc={record.grad_fn or None})"


def _backward(op: OpView) -> list[str]:
    """Return the lines about its step of a readable backward pass."""
    step = op.record.backward
    if step is None:
        return []
    saved = ["its result" if index == op.record.index else op.history[index].label for index in step.saved]
    return [
        f"\tBackward: {rule_text(step)}{f'   {step.why}' if step.why else ''}",
        f"\tKeeps: {', '.join(saved) or 'nothing'}",
    ]


def describe_layer(layer: LayerView) -> str:
    """Return the printout of a layer: its passes, each with its shape."""
    lines = [f"Layer {layer.label}, {len(layer)} passes:", f"\tParams: {_params(layer.stored)}"]
    for number, op in zip(layer.numbers, layer.passes):
        lines.append(f"\t{layer.key}:{number}  operation {op.record.index + 1}/{len(layer.history)}  {op.shape}")
    return "\n".join(cut(lines, 40))


def names_of(op: OpView) -> list[str]:
    """Return the names by which `history[…]` finds an operation."""
    label = f"{op.layer_label}:{op.pass_number}"
    names = [label] if op.label == label else [op.label, label]
    for call in op.record.output_of:
        if op.history.facts.module_outputs[call.address][call.call] == [op.record.index]:
            single = len(op.history.facts.module_outputs[call.address]) == 1
            names += [call.address] * single + [f"{call.address}:{call.call}"]
    return names


def _pass(op: OpView) -> str:
    count = len(op.history.facts.layers.all[op.history.facts.layers.of[op.record.index]].ops)
    return f" (pass {op.pass_number}/{count})" if count > 1 else ""


def _output(op: OpView, output: int) -> list[str]:
    meta, count = op.record.tensors[output], len(op.record.outputs)
    title = f"Output tensor {output + 1} of {count}" if count > 1 else "Output tensor"
    heading = title if output < count else "Written in place, not returned"
    head = f"\t{heading}: shape={meta.shape}, dtype={meta.dtype}, size={human_bytes(meta.bytes)}"
    try:
        return [head, f"\t\t{excerpt(op.history.trace.value(op.record.index, output))}"]
    except ValueUnavailable as error:
        return [head, f"\t\t(not saved: {error})"]


def _params(stored: tuple[Stored, ...]) -> str:
    parameters = [item for item in stored if item.kind == "parameter"]
    if not parameters:
        return "no params used"
    shapes = ", ".join(str(shape) for shape in sorted(item.shape for item in parameters))
    count, size = sum(item.count for item in parameters), sum(item.bytes for item in parameters)
    return f"Computed from params with shape {shapes}; {count} params total ({human_bytes(size)})"


def _call(op: OpView, call: ModuleCall) -> str:
    return call.address if op.history.facts.module_calls[call.address] == 1 else f"{call.address}:{call.call}"


def _bottom_level(op: OpView) -> list[ModuleCall]:
    """Return the call of a module without submodules that computed and returned the value."""
    inner = op.record.modules[-1:]
    leaf = all(not op.history.facts.submodules.get(call.address) for call in inner)
    return [call for call in inner if leaf and call in op.record.output_of]
