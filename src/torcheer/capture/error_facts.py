"""Facts for error messages: the failing operation and the memory of kept values per module."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING

from torch import Tensor

from torcheer.capture.record.recorder import Recorder
from torcheer.history.error_notes import describe_arguments, failing_operation, frames_of

if TYPE_CHECKING:
    from torcheer.capture.record.op_rows import LiveTrace

_RUNS = frozenset(run.__code__ for run in (Recorder.__torch_function__, Recorder.record))


def operation(frame: FrameType) -> str:
    """Describe the operation a recorder's frame was running; "" for other frames."""
    call = frame.f_locals.get("call") if frame.f_code in _RUNS else None
    if call is None:
        return ""
    return f"{call.name}({describe_arguments(frame.f_locals.get('args', ()), frame.f_locals.get('kwargs') or {})})"


def operation_name(error: BaseException) -> str:
    """Return the name of the operation that raised, "" if none did."""
    return failing_operation(list(frames_of(error)), operation).partition("(")[0]


def kept_bytes_by_module(trace: LiveTrace) -> dict[str, int]:
    """Sum the bytes of kept values by the module that computed them; shared memory counts once."""
    recorder, counted, bytes_by_module = trace.recorder, set[int](), dict[str, int]()
    for node in range(recorder.count):
        for tensor in recorder.outputs(node):
            if isinstance(tensor, Tensor) and (size := _new_bytes(tensor, counted)):
                address = trace.address_of(recorder.row(node).scope)
                bytes_by_module[address] = bytes_by_module.get(address, 0) + size
    return bytes_by_module


def _new_bytes(tensor: Tensor, counted: set[int]) -> int:
    """Return the bytes of a tensor's storage, 0 if it was counted before."""
    try:
        storage = tensor.untyped_storage()
    except Exception:  # sparse, nested, wrapped
        return 0
    if storage._cdata in counted:
        return 0
    counted.add(storage._cdata)
    return int(storage.nbytes())
