"""Process groups: collectives and messages, which write into tensors that they are given.

The functions of `torch.distributed` reach a recorder as every function of torch does; what they write is in a table of
`calls`. The methods of `ProcessGroup` that lie below, and which people call too, reach nobody: where there is a process
group, `modules` has them replaced while a capture runs. In threads that record nothing they do what they did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch

from torcheer.capture.record.function_table import Call
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.torch_state import function_modes

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

_frame = sys._getframe
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack

# Methods that write, by the name that torch.distributed has for them: always to their first argument.
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
_PUT_OFF = frozenset(
    "all_reduce all_gather_single all_gather_into_tensor reduce_scatter_single reduce_scatter_tensor".split()
)

_own: dict[tuple[Any, str], Any] = {}  # methods that are replaced now, as they were


def watch() -> None:
    """Replace the methods, unless they are replaced already; `unwatch` puts them back."""
    for name, known_as in _METHODS.items():
        _replace(torch.distributed.ProcessGroup, name, partial(_watched, name, known_as))
    _replace(torch.distributed.Work, "wait", _watched_wait)


def _replace(kind: Any, name: str, watched: Callable[[Any], Any]) -> None:
    own = vars(kind).get(name)
    if own is not None and (kind, name) not in _own:
        _own[kind, name] = own
        setattr(kind, name, watched(own))


def unwatch() -> None:
    """Undo `watch`."""
    for (kind, name), own in _own.items():
        setattr(kind, name, own)
    _own.clear()


def _watched(name: str, known_as: str, own: Any) -> Callable[..., Any]:
    @wraps(own)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        recorders = _listening()
        if not recorders:
            return own(group, *args, **kwargs)
        with _aside(recorders[0]):  # the next one is met when the method is called again
            return recorders[0].record(call, (group, *args), kwargs, _frame(1))

    call = Call(method, known_as, f"torch.distributed.ProcessGroup.{name}")
    call.writes, call.collective, call.plain = (1, *_FIRST), True, False
    return method


def _watched_wait(own: Any) -> Callable[..., Any]:
    @wraps(own)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        out = own(work, *args, **kwargs)
        for recorder in _listening():
            settle(recorder, waited=work)
        return out

    return wait


def _listening() -> list[Recorder]:
    """The recorders that torch would tell of a call of this thread, innermost first."""
    from torcheer.capture.record.recorder import Recorder

    if torch._C._is_torch_function_all_disabled():
        return []
    return [mode for mode in reversed(function_modes()) if isinstance(mode, Recorder)]


@contextmanager
def _aside(recorder: Recorder) -> Iterator[None]:
    """Without a recorder and what lies above it, as inside its own `__torch_function__`."""
    above: list[Any] = []
    while not above or above[-1] is not recorder:
        above.append(_pop())
    try:
        yield
    finally:
        for mode in reversed(above):
            _push(mode)


def is_put_off(call: Call, kwargs: dict[str, Any]) -> bool:
    """Whether torch only collects this call: a block that coalesces ends in one call of the process group."""
    world = torch.distributed.distributed_c10d._world
    if call.name not in _PUT_OFF or not world.pg_coalesce_state:
        return False
    return (kwargs.get("group") or world.default_pg) in world.pg_coalesce_state


LATE = "its collective was still under way when the recording ended: wait for it inside the recording"


def without_groups(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the names of process groups in their place: a history that held one would keep its threads."""
    return tuple(map(_named, args)), {name: _named(value) for name, value in kwargs.items()}


def _named(value: Any) -> Any:
    return value.group_name if isinstance(value, torch.distributed.ProcessGroup) else value


# -- what is under way -----------------------------------------------------------------------------------------------


def is_under_way(work: Any) -> bool:
    """Whether a call returned before its results were there."""
    return hasattr(work, "wait")


def settle(recorder: Recorder, waited: Any = None, ended: bool = False) -> None:
    """Show the results that have arrived to those who save and follow; once the recording ended, say which have not."""
    waiting, recorder.under_way = recorder.under_way, []
    for node, call, work in waiting:
        arrived = work is waited or _has_arrived(work)
        if not arrived and not ended:
            recorder.under_way.append((node, call, work))
            continue
        slots = len(recorder.outputs(node))
        if recorder.after is not None:
            recorder.after(node, call, None)
        if not arrived and recorder.saved is not None:
            for slot in range(slots):
                recorder.memory.lost[node << SLOT_BITS | slot] = LATE


def _has_arrived(work: Any) -> bool:
    is_done = getattr(work, "is_completed", None) or getattr(work, "done", None)
    return is_done is None or bool(is_done())
