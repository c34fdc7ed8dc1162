"""The tree of modules that ran in a pass, with runs of equal siblings (×N)."""

from __future__ import annotations

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
    own: dict[str, list[Any]] = {}  # what a module ran itself: operations and shapes of parameters
    for op in ops:
        around = ""
        for call in op.modules:
            kinds.setdefault(call.address, call.type)
            parents.setdefault(call.address, around)
            calls.setdefault(call.address, set()).add(call.call)
            around = call.address
        own.setdefault(around, []).append((op.name, tuple(stored.shape for stored in op.stored)))
    children: dict[str, list[str]] = {}
    for address, parent in parents.items():
        children.setdefault(parent, []).append(address)
    looks: dict[str, Any] = {}
    for address in reversed(list(kinds)):  # a module comes after the one it belongs to
        inner = tuple(looks[child] for child in children.get(address, ()))
        looks[address] = hash((kinds[address], tuple(own.get(address, ())), inner))
    runs = _runs(children, looks)
    return tuple(
        ModuleNode(address, kind, parents[address], len(calls[address]), runs[address])
        for address, kind in kinds.items()
    )


def _runs(children: dict[str, list[str]], looks: dict[str, Any]) -> dict[str, int]:
    """Of each module the length of the run of equal siblings that it begins; 0 within a run."""
    runs: dict[str, int] = {}
    for siblings in children.values():
        first = siblings[0]
        for sibling in siblings:
            if sibling != first and looks[sibling] == looks[first]:
                runs[first], runs[sibling] = runs[first] + 1, 0
            else:
                first, runs[sibling] = sibling, 1
    return runs
