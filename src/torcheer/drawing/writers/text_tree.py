"""Write a history as a tree of text.

Modules and functions are branches, operations are leaves; ← names the inputs that are not just above, ↑ is the backward
rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torcheer.drawing.items.header_text import header_lines
from torcheer.history import ModelHistory
from torcheer.history.backward_flow import rule_text
from torcheer.network.function_frames import Paths, paths_with_functions
from torcheer.network.rolled_passes import rolled_passes
from torcheer.records import BESIDE, ModuleCall, Op
from torcheer.terminal import human_bytes, human_shape


@dataclass(slots=True)
class Branch:
    """A module call and what ran inside it, in order."""

    call: ModuleCall | None
    parts: list[Branch | int] = field(default_factory=list)  # an int is the index of an op


def draw_text(history: ModelHistory, rolled: bool = False, depth: int | None = None) -> str:
    """Return one line per operation (per layer when `rolled`), indented by its modules.

    Modules more than `depth` levels deep are one line each; None shows all.
    """
    flow, facts = history.facts.backward, history.facts
    passes = rolled_passes(facts) if rolled else list(zip(range(len(facts.ops))))
    shown = [facts.ops[members[0]] for members in passes]
    title = f"{history.model_name}{' (repeats rolled)' if rolled else ''}"
    if flow:
        shown = [op for op in shown if op.kind == "op"]
        title = " · ".join(header_lines(history, depth, rolled))
    paths = {} if flow else paths_with_functions(facts.ops, history.info)
    writer = _TreeLines(history, passes, paths, rolled)
    lines = [title, *_draw(writer, _build_tree(shown, paths), "", depth or 10**9)]
    if history.info.stopped:
        lines.append(f"✗ stopped: {history.info.stopped}")
    return "\n".join(lines) + "\n"


def _build_tree(ops: Iterable[Op], paths: Paths) -> Branch:
    """Sort the operations into the calls of functions and modules they ran inside."""
    root = Branch(None)
    path = [root]
    for op in ops:
        calls, shared = paths.get(op.index, op.modules), 0
        while shared < min(len(calls), len(path) - 1) and path[shared + 1].call == calls[shared]:
            shared += 1
        del path[shared + 1 :]
        for call in calls[shared:]:
            inner = Branch(call)
            path[-1].parts.append(inner)
            path.append(inner)
        path[-1].parts.append(op.index)
    return root


def _draw(lines: _TreeLines, branch: Branch, indent: str, depth: int) -> Iterator[str]:
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


class _TreeLines:
    """Writes the lines of a tree, and remembers the operation of the line above."""

    def __init__(self, history: ModelHistory, passes: Iterable[tuple[int, ...]], paths: Paths, rolled: bool) -> None:
        self._facts = history.facts
        self._calls = {call.address: call.call for path in paths.values() for call in path}
        self._calls |= history.facts.module_calls
        self._flow = history.facts.backward
        self._rolled = rolled
        self._passes = {index: members for members in passes for index in members} if rolled else {}
        self._above = -1

    def module(self, call: ModuleCall | None) -> str:
        """Return the line of a module call."""
        assert call is not None
        number = f":{call.call}" if not self._rolled and self._calls[call.address] > 1 else ""
        is_composite = self._flow is not None and call.address.endswith(call.type)  # its name is its type
        return f"{call.address}{number}" + ("" if is_composite else f" ({call.type})")

    def op(self, index: int, inside: ModuleCall | None = None) -> str:
        """Return the line of an operation; `inside` is a module with no other operation."""
        op, flow = self._facts.ops[index], self._flow
        shapes = " ".join(human_shape(meta.shape) for meta in op.outputs)
        count = len(self._passes.get(index, ()))
        sources = self._sources(index)
        parts = [
            self._name(index),
            f" ×{count}" if count > 1 else "",
            f"  {shapes}",
            f"  {human_bytes(sum(stored.bytes for stored in op.stored))} of parameters"
            if op.stored and not flow
            else "",
            f"  [{self.module(inside)}]" if inside else "",
            f"  ← {', '.join(sources)}" if sources and sources != [self._name(self._above)] else "",
            self._rule(op),
            f"  edited: {op.edited}" if op.edited else "",
            "  (beside)" if op.note == BESIDE else f"  note: {op.note}" if op.note else "",
        ]
        self._above = index
        return "".join(parts)

    def skip_to(self, index: int) -> None:
        """Note that the line above covers operations up to this one."""
        self._above = index

    def _rule(self, op: Op) -> str:
        """Return an operation's backward rule, what it keeps, and how many gradients add up."""
        if self._flow is None or op.backward is None or op.index not in self._flow.sent:
            return ""
        saved = ["its result" if index == op.index else self._name(index) for index in op.backward.saved]
        keeps = f"  keeps {', '.join(saved)}" if saved else ""
        uses = self._flow.uses[op.index]
        return f"  ↑ {rule_text(op.backward)}{keeps}" + (f"  += of {uses}" if uses > 1 else "")

    def _sources(self, index: int) -> list[str]:
        """Return the names of all parents; when rolled, those of every pass."""
        passes = self._passes.get(index, (index,))
        parents = dict.fromkeys(edge.parent for each in passes for edge in self._facts.ops[each].parents)
        names = [self._name(parent) for parent in parents]
        return list(dict.fromkeys(names)) if self._rolled else names

    def _name(self, index: int) -> str:
        if index < 0:
            return ""
        layers, op = self._facts.layers, self._facts.ops[index]
        if self._flow:  # a leaf is called by its own name
            return f"{op.name}_{index}" if op.kind == "op" else op.name or "constant"
        return layers.all[layers.of[self._passes[index][0]]].label if self._rolled else layers.label(index)
