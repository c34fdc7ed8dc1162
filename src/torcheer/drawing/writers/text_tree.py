"""Write a history as a tree of text.

Modules and functions are branches, operations are leaves; ← names the inputs that are not just above, ↑ is the backward
rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torcheer.drawing.items.header_text import header_lines
from torcheer.history import ModelHistory
from torcheer.history.backward_flow import rule_text
from torcheer.network.fold import Box, Fold
from torcheer.network.pass_fold import OpLeaf, fold_pass
from torcheer.records import BESIDE, ModuleCall, Op
from torcheer.terminal import cut, human_bytes, human_place, human_shape, plural


def draw_text(history: ModelHistory, rolled: bool = False, depth: int | None = None, repeats_once: bool = False) -> str:
    """Return one line per operation (per layer when `rolled`), indented by its modules.

    Modules more than `depth` levels deep are one line each; None shows all. With `repeats_once`, only the last of equal
    modules that follow each other is opened.

    - `history`: a capture.
    """
    fold = fold_pass(history.facts, rolled=rolled)
    title = f"{history.model_name}{' (repeats rolled)' if rolled else ''}"
    if history.facts.backward:
        title = " · ".join(header_lines(history, depth, rolled))
    lines = _TreeLines(history, fold, rolled)
    tree = _draw(lines, fold.root, "", depth or 10**9, repeats_once)
    stopped = [f"✗ stopped: {history.info.stopped}"] if history.info.stopped else []
    return "\n".join([title, *tree, *stopped]) + "\n"


def _draw(lines: _TreeLines, box: Box[OpLeaf], indent: str, depth: int, repeats_once: bool) -> Iterator[str]:
    """Yield the lines of what is in a box."""
    runs = {id(run[-1]): run for run in box.runs} if repeats_once else {}
    hidden = {id(member) for run in runs.values() for member in run[:-1]}
    shown = [member for member in box.members if id(member) not in hidden]
    for position, member in enumerate(shown):
        stem, deeper = ("└─ ", "   ") if position == len(shown) - 1 else ("├─ ", "│  ")
        if isinstance(member, OpLeaf):
            yield indent + stem + lines.op(member)
            continue
        run = runs.get(id(member), [member])
        folded = f"  {lines.count(member)} operations{' each' if len(run) > 1 else ''}" if depth == 1 else ""
        yield indent + stem + lines.box(run) + folded
        if depth > 1:
            lines.skip(run[-2:-1])
            yield from _draw(lines, member, indent + deeper, depth - 1, repeats_once)
        else:
            lines.skip([member])


def _leaves(box: Box[OpLeaf]) -> Iterator[OpLeaf]:
    """Yield the operations in a box, at any depth."""
    for member in box.members:
        if isinstance(member, Box):
            yield from _leaves(member)
        else:
            yield member


class _TreeLines:
    """Writes the lines of a tree, and remembers the operation of the line above."""

    def __init__(self, history: ModelHistory, fold: Fold[OpLeaf], rolled: bool) -> None:
        self._facts = history.facts
        self._flow = history.facts.backward
        self._rolled = rolled
        self._first = {index: leaf.ops[0] for leaf in fold.leaves for index in leaf.ops} if rolled else {}
        self._above = -1

    def box(self, run: Sequence[Box[OpLeaf]]) -> str:
        """Return the line of a box, or of several that repeat."""
        names = [_address(box.call, box.name) for box in run if box.call]
        call, number = run[-1].call, len(run) if len(run) > 1 else run[-1].times
        assert call is not None
        name = f"{names[0]} … {names[-1]}" if len(run) > 1 else names[0]
        is_composite = self._flow is not None and call.address.endswith(call.type)  # its name is its type
        kind = (
            "" if is_composite else f" ({call.type})" if name else call.type
        )  # the only call of the model has no name
        return name + kind + (f" ×{number}" if number > 1 else "")

    def op(self, leaf: OpLeaf) -> str:
        """Return the line of an operation."""
        if leaf.joins:
            return self._joined(leaf)
        index, inside = leaf.ops[0], leaf.call
        op, flow = self._facts.ops[index], self._flow
        shapes = " ".join(human_shape(meta.shape) for meta in op.outputs)
        count = len(leaf.ops)
        sources = self._sources(leaf)
        parts = [
            self._name(index),
            f" ×{count}" if count > 1 else "",
            f"  {shapes}",
            "" if flow else _held_text(op),
            f"  [{_address(inside, leaf.name)} ({inside.type})]" if inside else "",
            f"  ← {', '.join(sources)}" if sources and sources != [self._name(self._above)] else "",
            self._rule(op),
            f"  edited: {op.edited}" if op.edited else "",
            "  (beside)" if op.note == BESIDE else f"  note: {op.note}" if op.note else "",
        ]
        self._above = index
        return "".join(parts)

    def _joined(self, leaf: OpLeaf) -> str:
        """Return the line of several outputs that are shown as one."""
        ops, sources = [self._facts.ops[index] for index in leaf.ops], self._sources(leaf)
        ends = " … ".join(dict.fromkeys([*sources[:1], *sources[-1:]]))
        shapes = dict.fromkeys(human_shape(meta.shape) for op in ops for meta in op.outputs)
        self._above = leaf.ops[-1]
        return (
            f"{self._name(leaf.ops[0])} … {self._name(leaf.ops[-1])}  {human_place(ops[0].returned_at[:1])}: "
            f"{plural(len(ops), 'tensor')} {' '.join(cut(list(shapes), 4))}"
            f"{f'  ← {ends}' if ends else ''}"
        )

    def skip(self, boxes: Sequence[Box[OpLeaf]]) -> None:
        """Note that the line above covers these boxes."""
        for box in boxes:
            self._above = list(_leaves(box))[-1].ops[0]

    def count(self, box: Box[OpLeaf]) -> int:
        """Return the number of operations in a box, at any depth."""
        return sum(1 for _ in _leaves(box))

    def _rule(self, op: Op) -> str:
        """Return an operation's backward rule, what it keeps, and how many gradients add up."""
        if self._flow is None or op.backward is None or op.index not in self._flow.sent:
            return ""
        saved = ["its result" if index == op.index else self._name(index) for index in op.backward.saved]
        keeps = f"  keeps {', '.join(saved)}" if saved else ""
        uses = self._flow.uses[op.index]
        return f"  ↑ {rule_text(op.backward)}{keeps}" + (f"  += of {uses}" if uses > 1 else "")

    def _sources(self, leaf: OpLeaf) -> list[str]:
        """Return the names of all parents; when rolled, those of every pass."""
        parents = dict.fromkeys(edge.parent for index in leaf.ops for edge in self._facts.ops[index].parents)
        names = [self._name(parent) for parent in parents]
        return list(dict.fromkeys(names)) if self._rolled else names

    def _name(self, index: int) -> str:
        if index < 0:
            return ""
        layers, op = self._facts.layers, self._facts.ops[index]
        if self._flow:  # a leaf is called by its own name
            return f"{op.name}_{index}" if op.kind == "op" else op.name or "constant"
        return layers.all[layers.of[self._first[index]]].label if self._rolled else layers.label(index)


def _held_text(op: Op) -> str:
    """Return the size of the parameters that an operation reads; of its buffers where it reads no parameter."""
    for kind in ("parameter", "buffer"):
        held = [stored.bytes for stored in op.stored if stored.kind == kind]
        if held:
            return f"  {human_bytes(sum(held))} of {kind}s"
    return ""


def _address(call: ModuleCall, name: str) -> str:
    """Return the address of a call, numbered as the name of its box is; of the model its name."""
    number = f":{call.call}" if name.endswith(f":{call.call}") else ""
    return f"{call.address}{number}" if call.address else name
