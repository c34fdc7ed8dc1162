"""What module calls receive and return, as refs; read by `LiveTrace.runs`."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module

from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import ATOMS, argument_leaves, direct_tensors, tensors_in

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


def received(recorder: Recorder, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """What a call was given: place and ref of each tensor, the other arguments as they are or by type."""
    found: list[tuple[Any, int | None, Any]] = []
    try:
        given = list(argument_leaves(args, kwargs))
    except Exception:  # a container of somebody's own, which the model may never open
        given = [((place,), value) for place, value in (*enumerate(args), *kwargs.items())]
    for where, value in given:
        if isinstance(value, Tensor):
            found.append((where, recorder.ref_of(value), None))
        else:
            found.append((where, None, value if type(value) in ATOMS else type(value).__name__))
    return tuple(found)


def returned(recorder: Recorder, scope: int, out: Any) -> None:
    """What a call returned, or yielded: tensors in containers are its output, those in plain objects are held."""
    direct = direct_tensors(out)
    recorder.exits += (scope, tuple([recorder.known.get(id(tensor)) for tensor in direct]))
    if type(out) in ATOMS or (len(direct) == 1 and out is direct[0]):
        return
    known = set(map(id, direct))
    held = [tensor for tensor in tensors_in(out) if id(tensor) not in known]
    if held:
        refs = tuple([recorder.known.get(id(tensor)) for tensor in held])
        recorder.held[scope] = recorder.held.get(scope, ()) + refs


def meet_buffers(recorder: Recorder, module: Module) -> None:
    """At the start of a call: a value that was computed, and then assigned, now has a buffer's name."""
    for name, buffer in module._buffers.items():
        ref = recorder.known.get(id(buffer), -1)
        if ref >= 0 and id(buffer) not in recorder.homes:
            recorder.assigned.setdefault(ref, (recorder.count, module, name))


def exchanged(recorder: Recorder, module: Module, name: str, new: Tensor, caller: FrameType) -> None:
    """Before a parameter takes another's place: both have this name, and the new one may be a computed value."""
    old = module._parameters[name]
    if old is None or old is new:
        return
    recorder.exchanged += (old, new)
    for tensor in (old, new):
        recorder.homes.setdefault(id(tensor), (module, name))
    ref = None if id(new) in recorder.known else recorder.memory.alias_of(new)
    if ref is not None:
        recorder.called_by(ref >> SLOT_BITS, caller)
        recorder.assigned[ref] = (recorder.count, module, name)
