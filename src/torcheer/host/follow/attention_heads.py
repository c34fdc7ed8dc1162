"""The attention weights of an `nn.MultiheadAttention`, recomputed if not returned."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_MOST_NUMBERS = 4_000_000  # of one batch item; larger attention is not computed


def attention_weights(module: nn.Module, arguments: Any, keywords: Any, output: Any) -> Tensor | None:
    """Attention weights of shape (batch, heads, tokens, keys).

    None where they cannot be computed.
    """
    if not isinstance(module, nn.MultiheadAttention):
        return None
    returned = output[1] if isinstance(output, tuple) and len(output) > 1 else None
    if isinstance(returned, Tensor) and returned.dim() == 4:
        return returned.detach()
    inputs = dict(zip(("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask"), arguments)) | keywords
    with torch.no_grad():
        return _compute_weights(module, inputs)


def _compute_weights(module: nn.MultiheadAttention, inputs: dict[str, Any]) -> Tensor | None:
    query, key = inputs.get("query"), inputs.get("key")
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.is_nested or module.bias_k is not None:
        return None
    query, key = query.detach(), key.detach()
    if query.dim() == 2:
        query, key = query[None], key[None]
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    if module.num_heads * query.shape[1] * key.shape[1] > _MOST_NUMBERS:
        return None
    queries, keys = _project(module, query, 0), _project(module, key, 1)
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(module.head_dim)
    scores = _apply_masks(scores, inputs.get("attn_mask"), inputs.get("key_padding_mask"), module.num_heads)
    return torch.softmax(scores, -1)


def _project(module: nn.MultiheadAttention, value: Tensor, part: int) -> Tensor:
    """Queries (part 0) or keys (part 1), split into heads."""
    size = module.embed_dim
    if module.in_proj_weight is not None:
        weight = module.in_proj_weight[part * size : (part + 1) * size]
    else:
        weight = module.q_proj_weight if part == 0 else module.k_proj_weight
    bias = module.in_proj_bias[part * size : (part + 1) * size] if module.in_proj_bias is not None else None
    projected = functional.linear(value, weight.detach(), bias.detach() if bias is not None else None)
    return projected.reshape(*projected.shape[:-1], module.num_heads, module.head_dim).transpose(1, 2)


def _apply_masks(scores: Tensor, mask: Any, padding: Any, heads: int) -> Tensor:
    if isinstance(mask, Tensor):
        mask = mask.reshape(-1, heads, *mask.shape[1:]) if mask.dim() == 3 else mask
        scores = scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if isinstance(padding, Tensor):
        padding = padding[:, None, None] if padding.dim() == 2 else padding
        scores = scores.masked_fill(padding, -math.inf) if padding.dtype == torch.bool else scores + padding
    return scores
