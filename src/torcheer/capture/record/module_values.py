"""Inputs and outputs of module calls, as refs; read by `LiveTrace.runs`."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module

from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import ATOMS, ATOMS_AND_TENSORS, argument_leaves, direct_tensors, tensors_in

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


def argument_refs(recorder: Recorder, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Return (where, ref, None) per tensor argument, (where, None, value or type) per other."""
    refs: list[tuple[Any, int | None, Any]] = []
    try:
        arguments = list(argument_leaves(args, kwargs))
    except Exception:  # a user-defined container that cannot be walked; the model may never open it
        arguments = [((place,), value) for place, value in (*enumerate(args), *kwargs.items())]
    with recorder.paused():  # or the recorder would be asked for the version of each tensor
        for where, value in arguments:
            if isinstance(value, Tensor):
                refs.append((where, recorder.ref_of(value), None))
            else:
                refs.append((where, None, value if type(value) in ATOMS else type(value).__name__))
    return tuple(refs)


def add_outputs(recorder: Recorder, scope: int, out: Any) -> None:
    """Record a call's outputs: tensors in containers, and those in plain objects separately."""
    direct = direct_tensors(out)
    recorder.exits += (scope, tuple([recorder.find_ref(id(tensor)) for tensor in direct]))
    if type(out) in ATOMS or (len(direct) == 1 and out is direct[0]):
        return
    if type(out) is tuple and ATOMS_AND_TENSORS.issuperset(map(type, out)):
        return
    direct_ids = set(map(id, direct))
    in_objects = [tensor for tensor in tensors_in(out) if id(tensor) not in direct_ids]
    if in_objects:
        refs = tuple([recorder.find_ref(id(tensor)) for tensor in in_objects])
        recorder.object_outputs[scope] = recorder.object_outputs.get(scope, ()) + refs


def find_assigned_buffers(recorder: Recorder, module: Module) -> None:
    """Note, at the start of a call, computed values that were assigned to the module's buffers."""
    for name, buffer in module._buffers.items():
        ref = recorder.find_ref(id(buffer))
        if ref is not None and ref >= 0 and id(buffer) not in recorder.owners:
            recorder.assigned.setdefault(ref, (recorder.count, module, name))


def note_replacement(recorder: Recorder, module: Module, name: str, new: Tensor, caller: FrameType) -> None:
    """Note that a parameter is about to be replaced.

    Both tensors have this name, and the new one may be a computed value.
    """
    old = module._parameters[name]
    if old is None or old is new:
        return
    recorder.replaced_parameters += (old, new)
    for tensor in (old, new):
        recorder.owners.setdefault(id(tensor), (module, name))
    ref = None if recorder.find_ref(id(new)) is not None else recorder.memory.alias_of(new)
    if ref is not None:
        recorder.set_caller(ref >> SLOT_BITS, caller)
        recorder.assigned[ref] = (recorder.count, module, name)
