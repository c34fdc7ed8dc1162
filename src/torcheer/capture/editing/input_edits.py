"""Edits of what a single operation receives: it runs again, on the edited tensors.

An operation's name is known only once it ran, so it has run on what it was given. That row is taken back; what it drew
from random generators, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torcheer.capture.ambient_state import random_state, restore_random
from torcheer.capture.record.recorder import WIDTH, OpRow, Recorder
from torcheer.capture.record.tensor_trees import argument_tensors, leaves, replace
from torcheer.errors import BadArgument
from torcheer.terminal import plural

Arguments = tuple[Any, Any]


def run_again(recorder: Recorder, node: int, edit: Callable[[Arguments], Arguments]) -> tuple[int, Any]:
    """Run the operation of the last row on what `edit` makes of its arguments; return its new row, and its result."""
    row, begin = recorder.row(node), recorder.rows[node * WIDTH + OpRow._fields.index("refs")]
    settings = [(store, store.pop(node)) for store in _settings(recorder) if node in store]
    for tensor in leaves(row.out):
        recorder.refs_by_id.pop(id(tensor), None)
        recorder.versions.pop(id(tensor), None)
    del recorder.rows[node * WIDTH :], recorder.refs[begin:]
    recorder.count = node
    drawn = recorder.random_states.pop(node, None)
    restore_random(drawn or {})
    args, kwargs = edit((row.args, row.kwargs or {}))  # may add rows
    node = recorder.count
    if drawn is not None:
        recorder.random_states[node] = random_state(args, kwargs)
    out = row.call.function(*args, **kwargs)
    begin = len(recorder.refs)
    recorder.refs += [recorder.ref_of(tensor) for tensor in argument_tensors(args, kwargs)]
    recorder.set_refs(out, node)
    recorder.count = node + 1
    recorder.append((row.call, args, kwargs, out, begin, row.scope, row.code, row.lasti, row.nanoseconds))
    for store, value in settings:
        store[node] = value
    return node, out


def _settings(recorder: Recorder) -> tuple[dict[int, Any], ...]:
    return (recorder.autocast, recorder.modes, recorder.callers, recorder.notes)


def check_runs_again(recorder: Recorder, node: int, key: Any, label: str) -> None:
    """Raise BadArgument for an operation that cannot run twice, or receives nothing."""
    row, asked = recorder.row(node), f"edits[{key!r}]: the input of {label}"
    if row.call.mark:
        raise BadArgument(f"{asked} cannot be edited: it is no operation, so edit its output")
    if node in recorder.inplace_nodes or row.call.collective or row.call.late:
        why = "exchanges tensors with other processes" if row.call.collective else "writes to it in place"
        raise BadArgument(f"{asked} cannot be edited, as it {why}; edit the output of the operation that made it")
    if not leaves((row.args, row.kwargs)):
        raise BadArgument(f"{asked} cannot be edited: it receives no tensor")


def replace_argument(received: Arguments, number: int, new: Any) -> Arguments:
    """Return the arguments with one tensor replaced, by its place: an operation may read one twice."""
    tensors = leaves(received)
    replaced: Arguments = replace(received, iter([*tensors[:number], new, *tensors[number + 1 :]]))
    return replaced


def argument_number(recorder: Recorder, received: Arguments, number: int, key: Any, label: str) -> int:
    """Check which tensor an edit is for; raise BadArgument for one that is not there, or a parameter."""
    tensors = leaves(received)
    if not -len(tensors) <= number < len(tensors):
        raise BadArgument(
            f"edits[{key!r}] is for input {number}, but {label} received {plural(len(tensors), 'tensor')}"
        )
    if recorder.ref_of(tensors[number]) < 0:
        raise BadArgument(
            f"edits[{key!r}]: input {number} of {label} is a parameter or buffer; edit what it makes of it, or give "
            "tl.Edit(…, output=) the number of another input"
        )
    return number % len(tensors)
