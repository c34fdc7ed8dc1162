"""The tree of modules that ran in a pass, with runs of equal siblings (×N)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from torcheer.network.network_records import ModuleNode
from torcheer.records import ModuleCall, Op

ATTENTION: Final = "MultiheadAttention"  # counts as a leaf, whatever it calls
_SILENT: Final = ("Dropout", "Identity", "Flatten", "Unflatten", "DropPath", "StochasticDepth")

_PARAMETRIZED: Final = ".parametrizations"


def is_silent(kind: str) -> bool:
    """True for types of modules that leave values as they are, apart from dropping some."""
    return any(word in kind for word in _SILENT)


def stack_of(op: Op) -> tuple[ModuleCall, ...]:
    """The module calls around an operation, outermost first, down to the leaf: without dropouts and the like."""
    stack = []
    for call in op.modules:
        if not is_silent(call.type) and _PARAMETRIZED not in call.address:  # what computes a weight is no layer
            stack.append(call)
        if call.type == ATTENTION:
            break
    return tuple(stack)


def tree_of(ops: list[Op]) -> tuple[ModuleNode, ...]:
    """The modules that ran, in order of their first operation, each after the module it belongs to."""
    kinds: dict[str, str] = {}
    parents: dict[str, str] = {}
    calls: dict[str, set[int]] = {}
    own: dict[str, list[Any]] = {}  # what a module ran itself
    for op in ops:
        around = ""
        for call in op.modules:
            kinds.setdefault(call.address, call.type)
            parents.setdefault(call.address, around)
            calls.setdefault(call.address, set()).add(call.call)
            around = call.address
        shapes = tuple([meta.shape for meta in op.outputs]), tuple([stored.shape for stored in op.stored])
        own.setdefault(around, []).append((op.name, repr(op.settings), shapes))
    children: dict[str, list[str]] = {}
    for address, parent in parents.items():
        children.setdefault(parent, []).append(address)
    looks: dict[str, Any] = {}
    leaves: set[str] = set()  # with one operation in each call
    for address in reversed(list(kinds)):  # a module comes after the one it belongs to
        inner = tuple(looks[child] for child in children.get(address, ()))
        looks[address] = hash((kinds[address], tuple(own.get(address, ())), inner))
        if not inner and len(own[address]) == len(calls[address]):
            leaves.add(address)
    runs = _runs(children, looks, _readers(ops, leaves))
    return tuple(
        ModuleNode(address, kind, parents[address], len(calls[address]), runs[address])
        for address, kind in kinds.items()
    )


def _readers(ops: list[Op], leaves: Container[str]) -> dict[str, set[str]]:
    """Of each module but leaves what reads its results: the siblings by their addresses, "" for anything else."""
    by_index = {op.index: op for op in ops}
    readers: dict[str, set[str]] = {}
    for op in ops:
        for edge in op.parents:
            source, target = by_index[edge.parent].modules, op.modules
            if source is target or not source:
                continue
            shared = 0
            while shared < min(len(source), len(target)) and source[shared].address == target[shared].address:
                shared += 1
            for depth in range(shared, len(source)):
                reader = target[depth].address if depth == shared < len(target) else ""
                if source[depth].address not in leaves:
                    readers.setdefault(source[depth].address, set()).add(reader)
    return readers


def _runs(children: dict[str, list[str]], looks: dict[str, Any], readers: dict[str, set[str]]) -> dict[str, int]:
    """Of each module the length of the run of equal siblings that it begins, each read by the next; 0 within a run."""
    runs: dict[str, int] = {}
    for siblings in children.values():
        first = last = siblings[0]
        for sibling in siblings:
            if sibling != first and looks[sibling] == looks[first] and readers.get(last) == {sibling}:
                runs[first], runs[sibling] = runs[first] + 1, 0
            else:
                first, runs[sibling] = sibling, 1
            last = sibling
    return runs
