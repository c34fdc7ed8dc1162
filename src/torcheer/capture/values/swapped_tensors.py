"""Tensors whose contents torch swaps (`torch.utils.swap_tensors`): the record follows the contents.

`module.to` swaps parameters where `torch.__future__.set_swap_module_params_on_conversion` is on. torch refuses to swap
a tensor that anything refers to weakly, so the recorder holds such tensors strongly meanwhile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.recorder import ARGS, KWARGS, OUT, WIDTH, Recorder
from torcheer.capture.record.tensor_trees import leaves, replace

References = dict[int, Callable[[], Tensor | None]]  # id of a tensor -> what shall refer to it


class _Held:
    """Stands in the place of a weak reference while torch swaps."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __call__(self) -> Tensor:
        return self.tensor


def run_swap(recorders: Sequence[Recorder], swap: Callable[..., Any], first: Tensor, second: Tensor) -> Any:
    """Run a function that swaps two tensors, without weak references of these recorders in its way."""
    pair = (first, second)
    holders = [recorder for recorder in recorders if any(map(weakref.getweakrefs, pair))]
    for recorder in holders:
        _refer(recorder, {id(tensor): _Held(tensor) for tensor in pair})
    try:
        with recorders[-1].paused():  # a recorded look at a tensor would be one reference too many
            return swap(first, second)
    finally:
        for recorder in holders:
            _refer(recorder, {id(tensor): weakref.ref(tensor) for tensor in pair})


def follow_swap(recorders: Sequence[Recorder], swap: Callable[..., Any], first: Tensor, second: Tensor) -> Any:
    """Swap the contents of two tensors, and move what is known of them along."""
    logs = [recorder.gradient_log for recorder in recorders if recorder.gradient_log is not None]
    hooked = [(log, log.unhook(first), log.unhook(second)) for log in logs]
    try:
        out = swap(first, second)
    except BaseException:
        for log, keys, second_keys in hooked:
            log.hook_all(first, keys)
            log.hook_all(second, second_keys)
        raise
    for log, keys, second_keys in hooked:
        log.swap(id(first), id(second))
        log.hook_all(first, [-id(first) if key == -id(second) else key for key in second_keys])
        log.hook_all(second, [-id(second) if key == -id(first) else key for key in keys])
    for recorder in recorders:
        with recorder.paused():
            _refer(recorder, {id(first): weakref.ref(second), id(second): weakref.ref(first)})
            _swap_keys(recorder, id(first), id(second))
            _swap_in_rows(recorder, {id(first): second, id(second): first})
            _name_both(recorder, first, second)
    return out


def _refer(recorder: Recorder, references: References) -> None:
    """Replace the recorder's weak references to some tensors."""

    def change(reference: Any) -> Any:
        return references.get(id(reference()), reference)

    recorder.memory.change_references(change)
    if recorder.alive is not None:
        recorder.alive.update([(key, change(reference)) for key, reference in recorder.alive.items()])
    facts = recorder.facts
    for place, cell in enumerate(facts):
        if type(cell) is weakref.ref or type(cell) is _Held:
            facts[place] = change(cell)


def _swap_keys(recorder: Recorder, first: int, second: int) -> None:
    """Swap the entries of two ids in every table that is kept by id."""
    memory = recorder.memory
    tables: list[dict[int, Any] | None] = [recorder.refs_by_id, recorder.versions, recorder.alive, recorder.gradients]
    tables += [memory.stale, memory.exposed]
    for table in tables:
        swap_entries(table or {}, first, second)
    for key in memory.stale.keys() & {first, second}:
        memory.stale[key].block.stale.append(key)
    if (first in recorder.unsettled) != (second in recorder.unsettled):
        recorder.unsettled ^= {first, second}


def swap_entries(table: dict[Any, Any], first: Any, second: Any) -> None:
    """Swap what a table has under two keys; each may be missing."""
    entries = [(second, table.pop(first, None)), (first, table.pop(second, None))]
    table.update([(key, entry) for key, entry in entries if entry is not None])


def _swap_in_rows(recorder: Recorder, others: dict[int, Tensor]) -> None:
    """Let rows, and what is kept beside them, hold the tensor that has the contents now."""

    def swapped(value: Any) -> Any:
        tensors = leaves(value)
        if others.keys().isdisjoint(map(id, tensors)):
            return value
        return replace(value, iter([others.get(id(tensor), tensor) for tensor in tensors]))

    rows = recorder.rows
    for column in (ARGS, KWARGS, OUT):
        rows[column::WIDTH] = [swapped(cell) if cell is not None else None for cell in rows[column::WIDTH]]
    recorder.stored[:] = map(swapped, recorder.stored)
    for table in (recorder.extra_writes, recorder.saved or {}):
        table.update([(key, swapped(held)) for key, held in table.items()])
    if recorder.recent is not None:
        recent = [(node, swapped(out)) for node, out in recorder.recent]
        recorder.recent.clear()
        recorder.recent.extend(recent)
    recorder.forget_outputs()


def _name_both(recorder: Recorder, first: Tensor, second: Tensor) -> None:
    """Name both tensors by the module that holds one of them; note where the contents that it has now come from."""
    home = _home_of(recorder, first) or _home_of(recorder, second)
    if home is None:
        return
    for tensor in (first, second):
        recorder.kept_alive.append(tensor)
        recorder.owners.setdefault(id(tensor), home)
        ref = None if recorder.find_ref(id(tensor)) is not None else recorder.memory.alias_of(tensor)
        if ref is not None:
            recorder.assigned[ref] = (recorder.count, *home)


def _home_of(recorder: Recorder, tensor: Tensor) -> tuple[torch.nn.Module, str] | None:
    """Return the module of the model, and the name there, that a parameter has."""
    home = recorder.owners.get(id(tensor))
    if home is None and recorder.model is not None:
        for module in recorder.model.modules():
            for name, parameter in module._parameters.items():
                if parameter is tensor:
                    return module, name
    return home
