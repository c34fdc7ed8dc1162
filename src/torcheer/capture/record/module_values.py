"""Inputs and outputs of module calls, as refs; read by `LiveTrace.runs`."""

from __future__ import annotations

from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module, Parameter

from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import (
    ATOMS,
    ATOMS_AND_TENSORS,
    direct_tensors,
    is_container,
    tensors_in,
    walk,
)

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


def argument_refs(recorder: Recorder, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Return (where, ref, None) per tensor argument, (where, None, value or type) per other."""
    refs: list[tuple[Any, int | None, Any]] = []
    with recorder.paused():  # or the recorder would be asked for the version of each tensor
        for place, value in chain(enumerate(args), kwargs.items()):
            kind: Any = type(value)
            if kind is Tensor or kind is Parameter:
                refs.append(((place,), recorder.ref_of(value), None))
            elif kind in ATOMS:
                refs.append(((place,), None, value))
            elif not is_container(kind):
                refs.append(((place,), None, kind.__name__))
            elif kind is tuple and all(type(part) is Tensor for part in value):
                refs += [((place, index), recorder.ref_of(part), None) for index, part in enumerate(value)]
            else:
                refs += _nested_refs(recorder, place, value)
    return tuple(refs)


def _nested_refs(recorder: Recorder, place: int | str, value: Any) -> list[tuple[Any, int | None, Any]]:
    """Return the same of an argument that contains others."""
    try:
        parts = list(walk(value, (place,)))
    except Exception:  # a user-defined container that cannot be walked; the model may never open it
        parts = [((place,), value)]
    return [
        (where, recorder.ref_of(part), None)
        if isinstance(part, Tensor)
        else (where, None, part if type(part) in ATOMS else type(part).__name__)
        for where, part in parts
    ]


def add_outputs(recorder: Recorder, scope: int, out: Any) -> None:
    """Record a call's outputs: tensors in containers, and those in plain objects separately."""
    kind, find_ref = type(out), recorder.find_ref
    if kind is tuple and ATOMS_AND_TENSORS.issuperset(map(type, out)):
        recorder.exits += (scope, tuple([find_ref(id(part)) for part in out if type(part) not in ATOMS]))
        return
    direct = direct_tensors(out)
    recorder.exits += (scope, tuple([find_ref(id(tensor)) for tensor in direct]))
    if kind in ATOMS or (len(direct) == 1 and out is direct[0]):
        return
    direct_ids = set(map(id, direct))
    in_objects = [tensor for tensor in tensors_in(out) if id(tensor) not in direct_ids]
    if in_objects:
        refs = tuple([find_ref(id(tensor)) for tensor in in_objects])
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
    recorder.kept_alive += (old, new)
    for tensor in (old, new):
        recorder.owners.setdefault(id(tensor), (module, name))
    ref = None if recorder.find_ref(id(new)) is not None else recorder.memory.alias_of(new)
    if ref is not None:
        recorder.set_caller(ref >> SLOT_BITS, caller)
        recorder.assigned[ref] = (recorder.count, module, name)
