"""Attention weights of a recorded pass: as saved, or recomputed from queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.network.network_records import Layer
from torcheer.records import Op

Array = NDArray[Any]
Read = Callable[[int, int], Array | None]  # the value of an operation's output

SUFFIX: Final = ".weights"
SHARES: Final = (0.0, 1.0)  # what attention weights lie in
_MOST_NUMBERS: Final = 4_000_000  # of one batch item
_ATTENTION: Final = "scaled_dot_product_attention"


def heads_of(op: Op, batch: int, by_index: Mapping[int, Op]) -> tuple[int, ...] | None:
    """The shape (heads, tokens, keys) of an attention operation; None for all others."""
    if not op.outputs or "float" not in op.outputs[0].dtype:
        return None
    shape, heads = op.outputs[0].shape, None
    if op.name == _ATTENTION and len(shape) == 4 and shape[0] == batch:
        keys = next((edge for edge in op.parents if edge.where in ((1,), ("key",))), None)
        if keys is not None:
            heads = (*shape[1:3], by_index[keys.parent].tensors[keys.output].shape[-2])
    elif op.name == "softmax" and len(shape) == 4 and shape[0] == batch:
        heads = shape[1:]
    elif op.name == "softmax" and len(shape) == 3 and _is_attention(op) and batch > 0 and shape[0] % batch == 0:
        heads = (shape[0] // batch, *shape[1:])
    return heads if heads and 0 < prod(heads) <= _MOST_NUMBERS else None


def _is_attention(op: Op) -> bool:
    return bool(op.modules) and "attention" in op.modules[-1].type.lower()


def layer_of(name: str, heads: tuple[int, ...], beside: str) -> Layer:
    """The layer that shows attention weights, a tile for each head."""
    return Layer(name, heads, "Attention", "heads", relation="right" if beside else "", other=beside, range=SHARES)


def weights_of(op: Op, read: Read, batch: int) -> Array | None:
    """Attention weights of an operation, of shape (batch, heads, tokens, keys)."""
    if op.name != _ATTENTION:
        weights = read(op.index, 0)
        return None if weights is None else weights.reshape(batch, -1, *weights.shape[-2:])
    arguments = {edge.where[0]: read(edge.parent, edge.output) for edge in op.parents if len(edge.where) == 1}
    query, key = _argument(arguments, 0, "query"), _argument(arguments, 1, "key")
    if query is None or key is None or query.shape[-1] != key.shape[-1]:
        return None
    if query.ndim == key.ndim == 3:  # one head, without an axis of its own
        query, key = query[:, None], key[:, None]
    if query.ndim != 4 or key.ndim != 4:
        return None
    settings = dict(op.settings)
    if settings.get(("enable_gqa",), False) is True and query.shape[1] % key.shape[1] == 0:
        key = key.repeat(query.shape[1] // key.shape[1], axis=1)  # several queries share a key
    if query.shape[:-2] != key.shape[:-2]:
        return None
    scale = settings.get(("scale",), settings.get((6,)))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = real_numbers(query) @ real_numbers(key).swapaxes(-1, -2) * scale
    mask = _argument(arguments, 3, "attn_mask")
    if settings.get(("is_causal",), settings.get((5,))) is True:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None:
        mask = mask[:, None] if mask.ndim == 3 and len(op.outputs[0].shape) == 3 else mask
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + real_numbers(mask)
    return _softmax(scores)


def _argument(arguments: dict[int | str, Array | None], position: int, name: str) -> Array | None:
    return arguments.get(position, arguments.get(name))


def _softmax(scores: Array) -> Array:
    """Return the weights; of a row that may look at no key, zeros, as torch's attention has them."""
    largest = scores.max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        weights: Array = np.exp(scores - largest)
        weights /= weights.sum(-1, keepdims=True)
    return np.where(largest == -np.inf, 0, weights).astype(np.float32)
