"""What a capture knows of an exception: the operation that raised, what modules hold, what the inputs should be."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture.record.recorder import Recorder
from torcheer.history.error_notes import arguments, failed_in, frames_of

if TYPE_CHECKING:
    from torcheer.capture.record.op_rows import LiveTrace

_RUNS = frozenset((Recorder.__torch_function__.__code__, Recorder.record.__code__))


def operation(frame: FrameType) -> str:
    """The operation that a frame of the recorder was running, with its arguments."""
    call = frame.f_locals.get("call") if frame.f_code in _RUNS else None
    if call is None:
        return ""
    return f"{call.name}({arguments(frame.f_locals.get('args', ()), frame.f_locals.get('kwargs') or {})})"


def operation_name(error: BaseException) -> str:
    """The name of the operation that raised, "" where none did."""
    return failed_in(list(frames_of(error)), operation).partition("(")[0]


def held_by_module(trace: LiveTrace) -> dict[str, int]:
    """The bytes of the values that a capture keeps, by the module that computed them; shared memory counts once."""
    recorder, seen, found = trace.recorder, set[int](), dict[str, int]()
    for node in range(recorder.count):
        for tensor in recorder.outputs(node):
            if isinstance(tensor, Tensor) and (size := _new_bytes(tensor, seen)):
                address = trace.address_of(recorder.row(node).scope)
                found[address] = found.get(address, 0) + size
    return found


def _new_bytes(tensor: Tensor, seen: set[int]) -> int:
    """The bytes of a tensor's memory, 0 where it was counted."""
    try:
        storage = tensor.untyped_storage()
    except Exception:  # sparse, nested, wrapped
        return 0
    if storage._cdata in seen:
        return 0
    seen.add(storage._cdata)
    return int(storage.nbytes())


def keyword_hint(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """What to say where one dict was given to a model that takes its keys as keywords."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Mapping) or not args[0]:
        return ""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ""
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    keys, takes_any = list(args[0]), any(one.kind is one.VAR_KEYWORD for one in parameters)
    meant = [key for key in keys if key in named]
    if not meant or (len(meant) < len(keys) and not takes_any):
        return ""
    kind = type(model).__name__
    return (
        f"one dict was given, and {kind}.forward takes {', '.join(map(str, keys))} as keywords: "
        "log_forward_pass(model, input_kwargs=inputs) hands them over as such"
    )
