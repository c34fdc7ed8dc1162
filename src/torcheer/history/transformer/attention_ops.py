"""The attention operations of a history: fused (`scaled_dot_product_attention`) or written out with a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_views import OpView

FUSED = "scaled_dot_product_attention"
_PRODUCTS = frozenset(("matmul", "bmm", "baddbmm", "einsum", "__matmul__"))
_BETWEEN = 12  # operations between the scores and the softmax, and between the weights and their use


@dataclass(frozen=True, slots=True)
class AttentionOp:
    """One attention: the operation that returns its heads' results, and where its weights are."""

    op: OpView  # returns (batch, heads, positions, size), or (batch × heads, positions, size)
    softmax: OpView | None  # returns the weights; None inside a fused operation

    @property
    def scores(self) -> OpView:
        """The operation that multiplies queries with keys."""
        product = self.op if self.softmax is None else _nearest_product(self.softmax)
        assert product is not None
        return product

    def source(self, letter: str) -> tuple[int, int]:
        """Return which output of which operation its "q", "k" or "v" is."""
        op, place = (self.op, -1) if letter == "v" else (self.scores, {"q": -2, "k": -1}[letter])
        if self.softmax is None:
            place = "qkv".index(letter)
        edge = [edge for edge in op.record.parents if edge.where[-1:] != ("attn_mask",)][place]
        return edge.parent, edge.output

    def is_transposed(self, letter: str) -> bool:
        """Whether positions are along the last axis of its "q", "k" or "v": of keys that a softmax follows."""
        return letter == "k" and self.softmax is not None


def attention_ops(history: ModelHistory, inside: str = "") -> list[AttentionOp]:
    """Return every attention of a history, in order; with `inside`, those in the module at this path."""
    return [attention_op for attention_op in _all(history) if not inside or _is_in(attention_op.op, inside)]


def _is_in(op: OpView, path: str) -> bool:
    return any(call.address == path or call.address.startswith(f"{path}.") for call in op.record.modules)


def _all(history: ModelHistory) -> Iterator[AttentionOp]:
    for op in history:
        if op.record.name == FUSED:
            yield AttentionOp(op, None)
        elif op.record.name == "softmax" and len(op.shape) in (3, 4) and _nearest_product(op) is not None:
            use = _nearest_use(op)
            if use is not None:
                yield AttentionOp(use, op)


def _nearest_product(op: OpView) -> OpView | None:
    """Return the matrix product whose result, scaled and masked, an operation reads."""
    for _ in range(_BETWEEN):
        parents = [parent for parent in op.parents if len(parent.shape) >= 3 and "float" in parent.dtype]
        parents = parents or [parent for parent in op.parents if len(parent.shape) >= 3]
        product = next((parent for parent in parents if parent.record.name in _PRODUCTS), None)
        if product is not None:
            return product
        if not parents:
            return None
        op = parents[0]
    return None


def _nearest_use(op: OpView) -> OpView | None:
    """Return the matrix product that reads attention weights, perhaps after dropout and a cast."""
    for _ in range(_BETWEEN):
        for child in op.children:
            if child.record.name in _PRODUCTS:
                return child
        if len(op.children) == 0:
            return None
        op = op.children[0]
    return None
