"""Write a history as a tree of text.

Modules are branches, operations are leaves; ← names the inputs that are not just above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from torcheer.history import ModelHistory
from torcheer.records import BESIDE, ModuleCall
from torcheer.terminal import human_bytes


@dataclass(slots=True)
class Branch:
    """A module call and what ran inside it, in order."""

    call: ModuleCall | None
    parts: list[Branch | int] = field(default_factory=list)  # an int is the index of an op


def draw_text(history: ModelHistory, rolled: bool = False, depth: int | None = None) -> str:
    """Return one line per operation (per layer when `rolled`), indented by its modules.

    Modules more than `depth` levels deep are one line each; None shows all.
    """
    passes = history.facts.layers.passes
    shown = ((index, op.modules) for index, op in enumerate(history.ops) if not (rolled and passes[index] > 1))
    lines = [f"{history.model_name}{' (repeats rolled)' if rolled else ''}"]
    lines += draw_tree(_HistoryLines(history, rolled), shown, depth)
    if history.info.stopped:
        lines.append(f"✗ stopped: {history.info.stopped}")
    return "\n".join(lines) + "\n"


class TreeLines(Protocol):
    """Writes the lines of a tree, and remembers the operation of the line above."""

    def module(self, call: ModuleCall | None) -> str:
        """Return the line of a module call."""

    def op(self, index: int, inside: ModuleCall | None = None) -> str:
        """Return the line of an operation; `inside` is a module with no other operation."""

    def skip_to(self, index: int) -> None:
        """Note that the line above covers operations up to this one."""


def draw_tree(lines: TreeLines, ops: Iterable[tuple[int, tuple[ModuleCall, ...]]], depth: int | None) -> Iterator[str]:
    """Yield a line for each module and operation.

    Operations are given with the modules they ran inside.
    """
    return _draw(lines, _build_tree(ops), "", depth or 10**9)


def _build_tree(ops: Iterable[tuple[int, tuple[ModuleCall, ...]]]) -> Branch:
    """Sort the operations into the module calls they ran inside."""
    root = Branch(None)
    path = [root]
    for index, modules in ops:
        shared = 0
        while shared < min(len(modules), len(path) - 1) and path[shared + 1].call == modules[shared]:
            shared += 1
        del path[shared + 1 :]
        for call in modules[shared:]:
            inner = Branch(call)
            path[-1].parts.append(inner)
            path.append(inner)
        path[-1].parts.append(index)
    return root


def _draw(lines: TreeLines, branch: Branch, indent: str, depth: int) -> Iterator[str]:
    for position, part in enumerate(branch.parts):
        last = position == len(branch.parts) - 1
        stem, deeper = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(part, Branch) and len(part.parts) == 1 and isinstance(part.parts[0], int):
            yield indent + stem + lines.op(part.parts[0], inside=part.call)  # a module of one op needs no branch
        elif isinstance(part, Branch):
            ops = list(_ops(part))
            folded = f"  {len(ops)} operations" if depth == 1 else ""
            yield indent + stem + lines.module(part.call) + folded
            if depth > 1:
                yield from _draw(lines, part, indent + deeper, depth - 1)
            else:
                lines.skip_to(ops[-1])
        else:
            yield indent + stem + lines.op(part)


def _ops(branch: Branch) -> Iterator[int]:
    for part in branch.parts:
        if isinstance(part, Branch):
            yield from _ops(part)
        else:
            yield part


class _HistoryLines:
    """Writes the lines of a history."""

    def __init__(self, history: ModelHistory, rolled: bool) -> None:
        self._facts = history.facts
        self._rolled = rolled
        self._above = -1

    def module(self, call: ModuleCall | None) -> str:
        """Return the line of a module call."""
        assert call is not None
        number = f":{call.call}" if not self._rolled and self._facts.module_calls[call.address] > 1 else ""
        return f"{call.address}{number} ({call.type})"

    def op(self, index: int, inside: ModuleCall | None = None) -> str:
        """Return the line of an operation."""
        op, layers = self._facts.ops[index], self._facts.layers
        layer = layers.all[layers.of[index]]
        shapes = " ".join("×".join(map(str, meta.shape)) or "scalar" for meta in op.outputs)
        count = len(layer.ops)
        parts = [
            layer.label if self._rolled else layers.label(index),
            f"×{count}" if self._rolled and count > 1 else "",
            f"  {shapes}",
            f"  {human_bytes(sum(stored.bytes for stored in op.stored))} of parameters" if op.stored else "",
            f"  [{self.module(inside)}]" if inside else "",
            f"  ← {', '.join(self._sources(index))}" if self._needs_arrow(index) else "",
            f"  edited: {op.edited}" if op.edited else "",
            "  (beside)" if op.note == BESIDE else f"  note: {op.note}" if op.note else "",
        ]
        self._above = index
        return "".join(f" {part}" if part.startswith("×") else part for part in parts)

    def skip_to(self, index: int) -> None:
        """Note that the line above covers operations up to this one."""
        self._above = index

    def _needs_arrow(self, index: int) -> bool:
        sources = self._sources(index)
        return bool(sources) and sources != [self._name(self._above)]

    def _sources(self, index: int) -> list[str]:
        """Return the names of all parents; when rolled, those of every pass."""
        layers = self._facts.layers
        passes = layers.all[layers.of[index]].ops if self._rolled else [index]
        parents = (edge.parent for each in passes for edge in self._facts.ops[each].parents)
        return list(dict.fromkeys(self._name(parent) for parent in parents))

    def _name(self, index: int) -> str:
        if index < 0:
            return ""
        layers = self._facts.layers
        return layers.all[layers.of[index]].label if self._rolled else layers.label(index)
