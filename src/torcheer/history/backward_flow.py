"""Where gradients flow in a readable backward pass, and which values are kept for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import BackwardStep, Op

BORROWED_RULE = "torch’s own rule"


class BackwardFlow:
    """The gradients and kept values of a history whose operations have backward steps; the last op is the loss."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        differentiable: set[int] = set()  # parameters, and operations that depend on one
        for op in ops:
            if op.kind == "parameter" or (op.kind == "op" and any(e.parent in differentiable for e in op.parents)):
                differentiable.add(op.index)
        self.reached = {ops[-1].index} & differentiable  # ops that get a gradient
        self.sent: dict[int, list[int]] = {}  # operation -> the parents that it sends a gradient to
        for op in reversed(ops):
            if op.index in self.reached and op.kind == "op":
                self.sent[op.index] = [parent for parent in _gradient_targets(op) if parent in differentiable]
                self.reached.update(self.sent[op.index])
        self.uses = Counter(parent for parents in self.sent.values() for parent in parents)
        steps = [op.backward for op in ops if op.index in self.sent and op.backward]
        self.kept = dict.fromkeys(index for step in steps for index in step.saved)

    def kept_bytes(self, *kinds: str) -> int:
        """Return the size of the distinct values saved for backward, of these kinds of ops."""
        kept = (self.ops[index] for index in self.kept)
        return sum(meta.bytes for op in kept if op.kind in kinds for meta in op.outputs)


def _gradient_targets(op: Op) -> list[int]:
    """Return the parents that a rule sends a gradient to."""
    sent = (op.backward.sent if op.backward else ()) or (True,) * len(op.parents)
    return [edge.parent for edge, was_sent in zip(op.parents, sent) if was_sent]


def rule_text(step: BackwardStep) -> str:
    """Return a rule as one line: its formula, or that it is torch's own."""
    return latex_to_text(step.formula) or (BORROWED_RULE if step.borrowed else "")
