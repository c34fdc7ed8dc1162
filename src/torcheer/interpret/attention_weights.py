"""Attention weights of a history: as a softmax returned them, or recomputed where a fused operation hides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from torcheer.errors import UnknownLayer, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.history.transformer.attention_ops import AttentionOp, attention_ops
from torcheer.history.value_arrays import to_numpy
from torcheer.network.heads.recorded_heads import weights_of
from torcheer.roles import is_role


@dataclass(frozen=True, slots=True, eq=False)
class AttentionWeights:
    """The weights of one attention; each row of `weights` adds up to 1, or is zero where every key is masked."""

    layer: str  # as it was asked for
    label: str  # of the operation that returned them, or inside which they are
    weights: NDArray[Any]  # (batch, heads, positions, keys)
    recomputed: bool  # from queries, keys and mask: the fused operation returned no weights

    def __repr__(self) -> str:
        batch, heads, positions, keys = self.weights.shape
        how = "recomputed from its queries, keys and mask" if self.recomputed else "as recorded"
        shape = f"{batch} × {heads} heads × {positions} × {keys}"
        return f"<AttentionWeights of {self.layer} ({self.label}): {shape}, {how}>"


def attention(history: ModelHistory, layer: Any) -> AttentionWeights:
    """Return the attention weights of a layer: a role ('attn[3]'), a module's path, or the label of its operation."""
    attention_op = _find(history, layer)
    if attention_op.softmax is not None:
        weights = to_numpy(attention_op.softmax.tensor_contents)
        batch = weights.shape[0] if weights.ndim == 4 else _batch(attention_op)
        weights = weights.reshape(batch, -1, *weights.shape[-2:])
        return AttentionWeights(str(layer), attention_op.softmax.label, weights, recomputed=False)

    def read(index: int, output: int) -> NDArray[Any]:
        return to_numpy(history.trace.value(index, output))

    try:
        computed = weights_of(attention_op.op.record, read, attention_op.op.shape[0])
    except ValueUnavailable as error:
        raise ValueUnavailable(
            f"the attention weights of {layer!r} are recomputed from queries, keys and mask, which this history has "
            f"not: {error}. Capture with layers_to_save='all'"
        ) from None
    if computed is None:
        raise ValueUnavailable(f"the attention weights of {layer!r} cannot be recomputed: queries and keys do not fit")
    return AttentionWeights(str(layer), attention_op.op.label, computed, recomputed=True)


def _batch(attention_op: AttentionOp) -> int:
    """Return the batch size where heads and samples share an axis: that of what the model received."""
    inputs = (op for op in attention_op.op.history if op.record.kind == "input" and op.shape)
    size = attention_op.op.shape[0]
    return next((op.shape[0] for op in inputs if size % op.shape[0] == 0), size)


def _find(history: ModelHistory, layer: Any) -> AttentionOp:
    everywhere = attention_ops(history)
    if isinstance(layer, str) and is_role(layer) and layer not in history.facts.module_types:
        path, call = history.facts.roles.resolve(layer)[0].attention, layer.rpartition(":")[2]
        inside = attention_ops(history, path) if path else []
        number = int(call) - 1 if ":" in layer and call.isdecimal() else 0
        if number < len(inside):
            return inside[number]
    elif isinstance(layer, str) and layer in history.facts.module_types:
        inside = attention_ops(history, layer)
        if inside:
            return inside[0]
    else:
        indices = set(history.indices(layer))
        for attention_op in everywhere:
            if attention_op.op.record.index in indices or (
                attention_op.softmax and attention_op.softmax.record.index in indices
            ):
                return attention_op
    labels = ", ".join(attention_op.op.label for attention_op in everywhere[:4]) or "none"
    raise UnknownLayer(f"{layer!r} has no attention in this history; attentions there: {labels}")
