"""Process groups: collectives and point-to-point messages, which write into their arguments.

The functions of `torch.distributed` reach a recorder like every function of torch; `function_table` lists what they
write. The methods of `ProcessGroup` below them, which users call, too, reach no mode: if there is a process group,
`module_stack` has them replaced while a capture runs. In threads without a capture they behave as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch

from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.torch_state import function_modes

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

_frame = sys._getframe
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack

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

_originals: dict[tuple[Any, str], Any] = {}  # the replaced methods


def watch() -> None:
    """Replace the methods, unless they are replaced already; `unwatch` restores them."""
    for name, public_name in _METHODS.items():
        _replace(torch.distributed.ProcessGroup, name, partial(_watch_method, name, public_name))
    _replace(torch.distributed.Work, "wait", _watch_wait)


def _replace(kind: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = vars(kind).get(name)
    if original is not None and (kind, name) not in _originals:
        _originals[kind, name] = original
        setattr(kind, name, wrap(original))


def unwatch() -> None:
    """Undo `watch`."""
    for (kind, name), original in _originals.items():
        setattr(kind, name, original)
    _originals.clear()


def _watch_method(name: str, public_name: str, original: Any) -> Callable[..., Any]:
    @wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        recorders = _active_recorders()
        if not recorders:
            return original(group, *args, **kwargs)
        with _without_recorder(recorders[0]):  # an outer recorder gets its turn when `call` runs the method again
            return recorders[0].record(call, (group, *args), kwargs, _frame(1))

    call = TorchCall(method, public_name, f"torch.distributed.ProcessGroup.{name}")
    call.writes, call.collective, call.plain = (1, *_FIRST), True, False
    return method


def _watch_wait(original: Any) -> Callable[..., Any]:
    @wraps(original)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(work, *args, **kwargs)
        for recorder in _active_recorders():
            flush_finished(recorder, waited=work)
        return out

    return wait


def _active_recorders() -> list[Recorder]:
    """Return the recorders active in this thread, innermost first."""
    from torcheer.capture.record.recorder import Recorder

    if torch._C._is_torch_function_all_disabled():
        return []
    return [mode for mode in reversed(function_modes()) if isinstance(mode, Recorder)]


@contextmanager
def _without_recorder(recorder: Recorder) -> Iterator[None]:
    """Deactivate a recorder and the modes above it, as inside its `__torch_function__`."""
    above: list[Any] = []
    while not above or above[-1] is not recorder:
        above.append(_pop())
    try:
        yield
    finally:
        for mode in reversed(above):
            _push(mode)


def is_coalesced(call: TorchCall, kwargs: dict[str, Any]) -> bool:
    """Whether torch only queues this call.

    A coalescing block ends in one call of the process group.
    """
    world = torch.distributed.distributed_c10d._world
    if call.name not in _COALESCED or not world.pg_coalesce_state:
        return False
    return (kwargs.get("group") or world.default_pg) in world.pg_coalesce_state


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
