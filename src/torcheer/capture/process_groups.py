"""Process groups: collectives and point-to-point messages, which write into their arguments.

The functions of `torch.distributed` reach a recorder like every function of torch; `function_table` lists what they
write. The methods of `ProcessGroup` below them, which users call, too, reach no mode: if there is a process group,
they are replaced while a capture runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch

from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.torch_state import (
    QUEUED,
    Swaps,
    are_modes_disabled,
    exact_modes,
    function_modes,
    is_coalescing,
    require,
)

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

_frame = sys._getframe

# Methods that write, and their names in torch.distributed: they write to their first argument.
_METHODS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_single",
    "all_gather_single": "all_gather_single",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "all_gather_single_coalesced": "all_gather_single_coalesced",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_single": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
    "all_to_all_single": "all_to_all_single",
    "alltoall": "all_to_all",
    "recv": "recv",
    "recv_anysource": "recv",
}
_FIRST = "tensors tensor output_tensors output_tensor output outputs output_lists outputTensor".split()
_COALESCED = frozenset(
    "all_reduce all_gather_single all_gather_into_tensor reduce_scatter_single reduce_scatter_tensor".split()
)


def recorded(original: Any, name: str, where: str) -> TorchCall:
    """Return the entry of a method that reaches no mode; its function records the call where somebody does."""

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        recorders = active_recorders()
        if not recorders:
            return original(*args, **kwargs)
        with _without_recorder(recorders[0]):  # an outer recorder gets its turn when `call` runs the method again
            return recorders[0].record(call, args, kwargs, _frame(1))

    call = TorchCall(method, name, where)
    call.plain = False
    return call


def _watch_method(name: str, public_name: str, original: Any) -> Callable[..., Any]:
    call = recorded(original, public_name, f"torch.distributed.ProcessGroup.{name}")
    call.writes, call.collective = (1, *_FIRST), True
    method: Callable[..., Any] = call.function
    return method


def _watch_wait(original: Any) -> Callable[..., Any]:
    @wraps(original)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(work, *args, **kwargs)
        for recorder in active_recorders():
            flush_finished(recorder, waited=work)
        return out

    return wait


def _swaps() -> Swaps:
    """Return what is replaced while a capture runs in a process that has a process group."""
    if not torch.distributed.is_available():
        return Swaps("see messages between processes")
    methods = [
        (torch.distributed.ProcessGroup, name, partial(_watch_method, name, public_name))
        for name, public_name in _METHODS.items()
    ]
    return Swaps("see messages between processes", *methods, (torch.distributed.Work, "wait", _watch_wait))


MESSAGES = _swaps()


def active_recorders() -> list[Recorder]:
    """Return the recorders active in this thread, innermost first."""
    from torcheer.capture.record.recorder import Recorder

    if are_modes_disabled():
        return []
    return [mode for mode in reversed(function_modes()) if isinstance(mode, Recorder)]


def _without_recorder(recorder: Recorder) -> AbstractContextManager[None]:
    """Deactivate a recorder and the modes above it, as inside its `__torch_function__`."""
    modes = function_modes()
    return exact_modes(modes[: modes.index(recorder)])


def is_coalesced(call: TorchCall, kwargs: dict[str, Any]) -> bool:
    """Whether torch only queues this call.

    A coalescing block ends in one call of the process group.
    """
    if call.name not in _COALESCED:
        return False
    require(QUEUED)
    return is_coalescing(kwargs.get("group"))


LATE = "its collective was still under way when the recording ended: wait for it inside the recording"


def without_groups(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace process groups among the arguments by their names.

    A history that held a process group would keep its threads alive.
    """
    return tuple(map(_group_name, args)), {name: _group_name(value) for name, value in kwargs.items()}


def _group_name(value: Any) -> Any:
    return value.group_name if isinstance(value, torch.distributed.ProcessGroup) else value


# -- pending collectives ---------------------------------------------------------------------------------------------


def is_pending(work: Any) -> bool:
    """Whether a call returned a Work object, before its results are there."""
    return hasattr(work, "wait")


def flush_finished(recorder: Recorder, waited: Any = None, ended: bool = False) -> None:
    """Pass finished collectives to `on_op`; once `ended`, mark unfinished ones as lost."""
    pending, recorder.pending_collectives = recorder.pending_collectives, []
    for node, call, work in pending:
        arrived = work is waited or _is_complete(work)
        if not arrived and not ended:
            recorder.pending_collectives.append((node, call, work))
            continue
        slots = len(recorder.outputs(node))
        if recorder.on_op is not None:
            recorder.on_op(node, call, None)
        if not arrived and recorder.saved is not None:
            for slot in range(slots):
                recorder.memory.lost[node << SLOT_BITS | slot] = LATE


def _is_complete(work: Any) -> bool:
    is_done = getattr(work, "is_completed", None) or getattr(work, "done", None)
    return is_done is None or bool(is_done())
