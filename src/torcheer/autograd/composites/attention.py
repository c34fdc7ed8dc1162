"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.composites.composed_activations import dropout
from torcheer.autograd.rules.rule_table import composite


@composite("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    r"""$\text{softmax}(Q K^\top / \sqrt d + M)\,V$: each query averages the values, weighted by the
    similarity of their keys."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        weights = _causal_softmax(scores)
    else:
        weights = torch.softmax(scores, -1) if attn_mask is None else _masked_softmax(scores, attn_mask)
    return (dropout(weights, dropout_p) if dropout_p else weights) @ value


def _causal_softmax(scores: Tensor) -> Tensor:
    """Compute weights in which no position attends to a later one."""
    past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return torch.softmax(scores.masked_fill(~past, -math.inf), -1)


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute weights under a boolean or additive mask; a fully masked query gets all zeros."""
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    fully_masked = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(fully_masked, 0), -1).masked_fill(fully_masked, 0)
