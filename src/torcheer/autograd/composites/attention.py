"""Attention."""

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
    r"""$\text{softmax}(Q K^\top / \sqrt d + M)\,V$: a query mixes the values by likeness to their keys."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        shares = _causal(scores)
    else:
        shares = torch.softmax(scores, -1) if attn_mask is None else _masked(scores, attn_mask)
    return (dropout(shares, dropout_p) if dropout_p else shares) @ value


def _causal(scores: Tensor) -> Tensor:
    """Nobody looks ahead."""
    past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return torch.softmax(scores.masked_fill(~past, -math.inf), -1)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Where a mask says so; a query that may look nowhere sees nothing."""
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    nowhere = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(nowhere, 0), -1).masked_fill(nowhere, 0)
