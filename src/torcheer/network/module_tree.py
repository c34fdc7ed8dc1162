"""The tree of modules that ran in a pass, with their calls and repeats (×N), read off its fold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from torcheer.network.fold import Box, Fold
from torcheer.network.network_records import ModuleNode
from torcheer.network.pass_fold import OpLeaf
from torcheer.records import ModuleCall, Op

ATTENTION: Final = "MultiheadAttention"  # counts as a leaf, whatever it calls
_SILENT: Final = ("Dropout", "Identity", "Flatten", "Unflatten", "DropPath", "StochasticDepth")

_PARAMETRIZED: Final = ".parametrizations"


@cache  # of a type's name, asked for each operation
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


def tree_of(fold: Fold[OpLeaf]) -> tuple[ModuleNode, ...]:
    """The modules that ran, in order of their first operation, each after the module it belongs to."""
    calls: dict[str, dict[ModuleCall, str]] = {}  # address -> its calls, and the module around each
    repeats: dict[str, int] = {}
    for call, around in _module_calls(fold.root, ""):
        calls.setdefault(call.address, {})[call] = around
    for run in _runs(fold.root):
        addresses = dict.fromkeys(box.call.address for box in run if box.call and box.sort == "module")
        if len(addresses) == len(run):  # of modules; a module called again and again has calls
            for address in addresses:
                repeats.setdefault(address, 0)
            repeats[next(iter(addresses))] = len(run)
    nodes = []
    for address, around_calls in calls.items():
        first, around = next(iter(around_calls.items()))
        nodes.append(ModuleNode(address, first.type, around, len(around_calls), repeats.get(address, 1)))
    return tuple(nodes)


def _module_calls(box: Box[OpLeaf], around: str) -> Iterator[tuple[ModuleCall, str]]:
    """Yield the calls of modules in a box at any depth, and the address of the module around each."""
    for member in box.members:
        if isinstance(member, OpLeaf):
            if member.call is not None:
                yield member.call, around
            continue
        assert member.call is not None
        is_module = member.sort == "module" and member.call.address
        if is_module:
            yield member.call, around
        yield from _module_calls(member, member.call.address if is_module else around)


def _runs(box: Box[OpLeaf]) -> Iterator[list[Box[OpLeaf]]]:
    """Yield what repeats in a box, at any depth."""
    yield from box.runs
    for member in box.boxes():
        yield from _runs(member)
