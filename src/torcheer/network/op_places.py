"""Where operations stand: the calls of the model, of functions and of modules around each, as everyone shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from torcheer.history.derived_facts import HistoryFacts
from torcheer.network.function_frames import FUNCTION, Paths, paths_with_functions
from torcheer.network.rolled_passes import rolled_passes
from torcheer.records import Edge, ModuleCall, Op

Path = tuple[ModuleCall, ...]
HANDFUL = 4  # outputs in a part without a name that are shown one by one


class Place(NamedTuple):
    """Where operations with the same calls around them stand."""

    path: Path  # the boxes around them, outermost first
    leaf: ModuleCall | None  # the module that has no other operation: both are one box
    name: str = ""  # of that module, relative to the boxes around it
    kind: str = ""  # its type


class Places:
    """The place of each operation of a pass, and which operations are passes of one item.

    With `rolled`, what repeats in a loop is one item, and calls that are passes of each other are one box.
    """

    def __init__(self, facts: HistoryFacts, *, rolled: bool = False) -> None:
        self.info, ops = facts.info, facts.ops
        self._has_calls = len(set(map(attrgetter("root_call"), ops))) > 1 and (
            len({op.root_call for op in ops if op.kind == "op"}) > 1
        )  # of the model: each is a box
        self._counters = _unread_counters(ops)
        stacks = _stacks(ops, self._counters)
        self._leaves = leaf_modules(stacks)
        self._paths: Paths = {} if facts.backward else paths_with_functions(ops, self.info)
        self._outputs = {op.index: op for op in ops if op.kind == "output"}
        passes: list[tuple[int, ...]] = rolled_passes(facts) if rolled else list(zip(range(len(ops))))
        parts = _returned_parts(ops) if self._outputs else []
        self.passes = _join(passes, parts) if parts else passes
        self._joined = {ops[part[0]].index for part in parts}
        self._first_calls = _same_calls(map(self._path, ops), self.passes) if rolled else {}
        self.times: Mapping[ModuleCall, int] = Counter(self._first_calls.values())  # calls that a box stands for
        self._several = several_calls(self._first_calls.get(modules[-1], modules[-1]) for modules in stacks)
        self._places: dict[Path, Place] = {}
        self._shared: dict[Path, Path] = {}  # one object for equal paths: readers compare by identity first
        self._last: tuple[Path | None, Place] = (None, Place((), None))  # the path and place of the last operation

    def joins(self, op: Op) -> bool:
        """True for the first of several outputs that are shown as one."""
        return op.index in self._joined

    def read_by(self, op: Op) -> tuple[Edge, ...]:
        """Return what an output reads: of a tensor that was returned before, what that output reads."""
        parents = op.parents
        while parents and (before := self._outputs.get(parents[0].parent)) is not None and before.parents:
            parents = before.parents
        return parents

    def is_counter(self, op: Op) -> bool:
        """True for the counter of a module that has no other operation but one: part of that module's box."""
        return bool(self._counters) and op.index in self._counters and op.modules[-1] in self._leaves

    def of(self, op: Op) -> Place:
        """Return the boxes around an operation."""
        path = self._path(op) if self._paths or self._has_calls else op.modules
        if path is self._last[0]:  # the common case; hashing a path takes longer
            return self._last[1]
        place = self._places.get(path)
        if place is None:
            boxes = tuple(self._first_calls.get(call, call) for call in path) if self._first_calls else path
            if op.modules and op.modules[-1] in self._leaves:
                around = self._shared.setdefault(boxes[:-1], boxes[:-1])
                place = Place(around, boxes[-1], call_name(boxes[-1], around, self._several), boxes[-1].type)
            else:
                place = Place(self._shared.setdefault(boxes, boxes), None)
            self._places[path] = place
        self._last = path, place
        return place

    def _path(self, op: Op) -> Path:
        """Return the functions, the call of the model if there are several, and the modules around an operation."""
        path = self._paths.get(op.index, op.modules) if self._paths else op.modules
        if op.root_call and self._has_calls and op.kind == "op":
            return (ModuleCall("", op.root_call, self.info.model), *path)
        return path


def _same_calls(paths: Iterable[Path], passes: Iterable[tuple[int, ...]]) -> dict[ModuleCall, ModuleCall]:
    """Map each call that is a pass of another, as the operations in it are, to the first pass; and that to itself."""
    paths = list(paths)
    first: dict[ModuleCall, ModuleCall] = {}

    def find(call: ModuleCall) -> ModuleCall:
        while first.get(call, call) != call:
            call = first[call]
        return call

    for members in passes:
        for index in members[1:]:
            for call, later_call in zip(paths[members[0]], paths[index]):
                if call.address != later_call.address:
                    break  # a function that is a frame in only one of the passes
                low, high = sorted((find(call), find(later_call)))
                first[high] = low
    return {call: find(call) for call in {*first, *first.values()}}


def _returned_parts(ops: list[Op]) -> list[tuple[int, ...]]:
    """Return the positions of outputs that are shown as one: parts of what the model returned that hold several.

    Of a cache or of all hidden states nobody wants to see each tensor; of an LSTM's pair of states they do.
    """
    parts: dict[int | str, list[int]] = {}
    for position, op in enumerate(ops):
        if len(op.returned_at) > 1:
            parts.setdefault(op.returned_at[0], []).append(position)
    return [
        tuple(part)
        for name, part in parts.items()
        if len(part) > 1
        and (isinstance(name, str) or len(part) > HANDFUL or any(len(ops[n].returned_at) > 2 for n in part))
    ]


def _join(passes: list[tuple[int, ...]], parts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Replace the outputs of each part by all of them together, where the last of them stands."""
    last = {part[-1]: part for part in parts}
    inside = {position for part in parts for position in part[:-1]}
    return [last.get(members[0], members) for members in passes if members[0] not in inside]


def several_calls(calls: Iterable[ModuleCall]) -> set[tuple[str, str]]:
    """Return the modules and functions, by address and type, of which there is more than one call among these."""
    first: dict[tuple[str, str], ModuleCall] = {}
    return {(call.address, call.type) for call in calls if first.setdefault((call.address, call.type), call) != call}


def address_of(path: Iterable[ModuleCall]) -> str:
    """Return the address of the innermost module of a path."""
    path = path if isinstance(path, tuple) else tuple(path)
    if path and path[-1].type != FUNCTION:  # the common case
        return path[-1].address
    return next((call.address for call in reversed(path) if call.type != FUNCTION), "")


def call_name(call: ModuleCall, around: Path, several: Container[tuple[str, str]]) -> str:
    """Return a module's name relative to the boxes around it, with its call if there are several."""
    is_numbered = (call.address, call.type) in several
    if not call.address:  # the model itself
        return f"call {call.call}" if is_numbered else ""
    name = call.address.removeprefix(f"{address_of(around)}.")
    return f"{name}:{call.call}" if is_numbered else name


def leaf_modules(stacks: Mapping[Path, int]) -> set[ModuleCall]:
    """Return the module calls in which exactly one operation ran, directly."""
    inner = {call for modules in stacks for call in modules[:-1]}
    return {modules[-1] for modules, number in stacks.items() if number == 1 and modules[-1] not in inner}


def _stacks(ops: Iterable[Op], counters: Container[int]) -> dict[Path, int]:
    """Count the operations in each module stack, without counters and the leaves of a backward pass."""
    count: dict[Path, int] = {}
    for op in ops:
        if op.modules and op.index not in counters and op.kind not in ("parameter", "constant"):
            count[op.modules] = count.get(op.modules, 0) + 1
    return count


def _unread_counters(ops: list[Op]) -> set[int]:
    """Return the updates of counters in buffers that nothing reads: batch norm's `num_batches_tracked += 1`."""
    counters = {op.index for op in ops if not op.parents and _is_counter(op)}
    return counters - {edge.parent for op in ops for edge in op.parents} if counters else counters


def _is_counter(op: Op) -> bool:
    return bool(op.modules and op.stored and op.name.endswith("_") and op.stored[0].kind == "buffer")
