"""Places in the model: operations at one place of a reused module are passes of one layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torcheer.records import ModuleCall, Op, RunInfo

UNNAMED = "?"  # a parameter that is not in the model: possibly a different one each time


def find_places(ops: Sequence[Op], info: RunInfo) -> list[int]:
    """Return for each op the first at its place in a reused module with parameters or buffers, or itself."""
    calls = _CallPlaces(with_state(ops, info))
    first_ops: dict[Any, int] = {}
    counts: dict[Any, int] = {}
    firsts = []
    for index, op in enumerate(ops):
        if not (op.modules or op.root_call) or op.kind in ("input", "output"):
            firsts.append(index)
            continue
        place, call = calls.find(op.modules, op.root_call)
        identity = (op.name, op.site, stored_names(op))
        number = counts[call, identity] = counts.get((call, identity), 0) + 1
        firsts.append(first_ops.setdefault((place, identity, number), index))
    return firsts


def stored_names(op: Op) -> tuple[str, ...]:
    """Return the names of the parameters and buffers an op read."""
    return tuple(stored.name for stored in op.stored) if op.stored else ()


def with_state(ops: Iterable[Op], info: RunInfo) -> set[str]:
    """Return the addresses of modules with parameters or buffers, at any depth."""
    holders = {name.rpartition(".")[0] for name in info.stored}
    holders |= {module.address for module in info.modules.values() if module.stored}  # also tied parameters
    if not info.stored:
        used = {stored.name for op in ops for stored in op.stored}
        holders |= {name.rpartition(".")[0] for name in used}
    addresses = set()
    for address in holders:
        while address and address not in addresses:
            addresses.add(address)
            address = address.rpartition(".")[0]
    return addresses


class _CallPlaces:
    """Numbers of module calls and places; calls of a module with parameters share a place."""

    def __init__(self, with_state: set[str]) -> None:
        self._with_state = with_state
        self._places_by_call: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._places: dict[tuple[int, str, int], int] = {}
        self._occurrences: dict[tuple[int, str], int] = {}

    def find(self, modules: tuple[ModuleCall, ...], root_call: int) -> tuple[int, int]:
        """Return the place and the unique number of the innermost call."""
        if not modules:  # the model itself: one place for all of its calls if it has parameters
            return (-1, -root_call) if self._with_state else (-root_call, -root_call)
        inner = modules[-1]
        key = (inner.address, inner.call, len(modules))
        if key not in self._places_by_call:
            place, call = self.find(modules[:-1], root_call)
            occurrence = 0
            if inner.address not in self._with_state:
                occurrence = self._occurrences[call, inner.address] = (
                    self._occurrences.get((call, inner.address), 0) + 1
                )
            place = self._places.setdefault((place, inner.address, occurrence), len(self._places))
            self._places_by_call[key] = place, len(self._places_by_call)
        return self._places_by_call[key]
