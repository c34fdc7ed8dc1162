"""Where an operation stands in the model: what stands at one place of a reused module is one layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torcheer.records import ModuleCall, Op, RunInfo

UNNAMED = "?"  # a parameter the model does not hold: it may be another one each time


def find_places(ops: Sequence[Op], info: RunInfo) -> list[int]:
    """For each op, the first op that stood at its place inside a reused module with parameters; else itself."""
    calls = _Calls(parametrised(ops, info))
    seen: dict[Any, int] = {}
    counts: dict[Any, int] = {}
    firsts = []
    for index, op in enumerate(ops):
        if not (op.modules or op.root_call) or op.kind in ("input", "output"):
            firsts.append(index)
            continue
        place, call = calls.find(op.modules, op.root_call)
        what = (op.name, op.site, stored_names(op))
        number = counts[call, what] = counts.get((call, what), 0) + 1
        firsts.append(seen.setdefault((place, what, number), index))
    return firsts


def stored_names(op: Op) -> tuple[str, ...]:
    """The names of what an op read from the model."""
    return tuple(stored.name for stored in op.stored) if op.stored else ()


def parametrised(ops: Iterable[Op], info: RunInfo) -> set[str]:
    """The addresses of modules that hold parameters, themselves or further in."""
    parameters = {name for name, stored in info.stored.items() if stored.kind == "parameter"}
    holders = {name.rpartition(".")[0] for name in parameters}
    for module in info.modules.values():  # a tied parameter is held under another name than its own
        if any(name in parameters or name not in info.stored for name in module.stored):
            holders.add(module.address)
    if not info.stored:
        used = {stored.name for op in ops for stored in op.stored if stored.kind == "parameter"}
        holders |= {name.rpartition(".")[0] for name in used}
    found = set()
    for address in holders:
        while address and address not in found:
            found.add(address)
            address = address.rpartition(".")[0]
    return found


class _Calls:
    """Numbers module calls and their places; calls of a module with parameters all have the same place."""

    def __init__(self, with_parameters: set[str]) -> None:
        self._with_parameters = with_parameters
        self._found: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._places: dict[tuple[int, str, int], int] = {}
        self._occurrences: dict[tuple[int, str], int] = {}

    def find(self, modules: tuple[ModuleCall, ...], root_call: int) -> tuple[int, int]:
        """The place of the innermost call, and a number of its own."""
        if not modules:  # the model itself: one place if it has parameters, whichever call of it this is
            return (-1, -root_call) if self._with_parameters else (-root_call, -root_call)
        inner = modules[-1]
        key = (inner.address, inner.call, len(modules))
        if key not in self._found:
            place, call = self.find(modules[:-1], root_call)
            occurrence = 0
            if inner.address not in self._with_parameters:
                occurrence = self._occurrences[call, inner.address] = (
                    self._occurrences.get((call, inner.address), 0) + 1
                )
            place = self._places.setdefault((place, inner.address, occurrence), len(self._places))
            self._found[key] = place, len(self._found)
        return self._found[key]
