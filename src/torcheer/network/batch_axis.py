"""Finds the batch axis of a recorded pass, and the shape of one item of a value."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from torcheer.network.module_tree import ATTENTION
from torcheer.records import Op

_ITEM_AXES: Final = {"linear": 1, "conv1d": 2, "conv2d": 3, "conv3d": 4}  # axes of one item of their output
_SEQUENCES: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_BATCH_FIRST: Final = (8,)  # position among their arguments


class Batch(NamedTuple):
    """Where a pass has its batch, and how large it is."""

    size: int = 0  # 0 without a batch axis
    axis: int = 0  # of the inputs; 1 for sequence-first (recurrent layers' default); -1: no batch axis


NO_BATCH: Final = Batch(0, -1)


def batch_of(ops: list[Op]) -> Batch:
    """The batch: the first input's first length (second, where sequences come first), else the most common one."""
    shapes = [op.outputs[0].shape for op in ops if op.kind == "input" and op.outputs and op.outputs[0].shape]
    if _is_one_item(ops, shapes):
        return NO_BATCH
    axis = 1 if any(_is_sequence_first(op, shapes) for op in ops) else 0
    for dims in (2, 1):
        for shape in shapes:
            if len(shape) >= max(dims, axis + 1):
                return Batch(shape[axis], axis)
    lengths = Counter(op.outputs[0].shape[0] for op in ops if op.outputs and op.outputs[0].shape)
    return Batch(lengths.most_common(1)[0][0], 0) if lengths else NO_BATCH


def _is_one_item(ops: list[Op], inputs: list[tuple[int, ...]]) -> bool:
    """True if the model's input is a single item without a batch axis."""
    first = next((op for op in ops if op.name in _ITEM_AXES and op.outputs), None)
    if first is None:
        return False
    return {len(shape) for shape in (first.outputs[0].shape, *inputs)} == {_ITEM_AXES[first.name]}


def _is_sequence_first(op: Op, inputs: list[tuple[int, ...]]) -> bool:
    """True for a recurrent operation or an attention whose first axis is time, as that of an input."""
    shape = op.outputs[0].shape if op.outputs else ()
    if op.name in _SEQUENCES and dict(op.settings).get(_BATCH_FIRST) is False and len(shape) == 3:
        return any(other[:2] == shape[:2] for other in inputs)
    if not (op.modules and op.modules[-1].type == ATTENTION):
        return False
    if op.name == "softmax" and len(shape) == 3:  # batch * heads, tokens, keys
        return any(
            len(other) == 3 and shape[1] == other[0] != other[1] and shape[0] % other[1] == 0 for other in inputs
        )
    if op.name in ("softmax", "scaled_dot_product_attention") and len(shape) == 4:  # batch, heads, tokens, …
        return any(len(other) == 3 and (shape[2], shape[0]) == other[:2] and shape[0] != shape[2] for other in inputs)
    return False


def item_shape(shape: tuple[int, ...], batch: Batch, is_fed: bool = True) -> tuple[tuple[int, ...], int]:
    """The shape of one item of a value, and the value's batch axis (-1: none); the shape is never empty.

    `is_fed`: the value depends on an input, so that it may be a batch of sequences laid end to end.
    """
    size, axis = batch
    if axis < 0:
        return shape, -1
    axes = [place for place in (axis if len(shape) > 2 else 0, 0, 1) if len(shape) > place and shape[place] == size]
    if axes:
        return _without_axis(shape, axes[0]), axes[0]
    if is_fed and size > 1 and shape and shape[0] % size == 0:
        return (shape[0] // size, *shape[1:]), 0
    return shape or (1,), -1


def _without_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :]) or (1,)
