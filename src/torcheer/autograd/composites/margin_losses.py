"""Margin, embedding and Poisson losses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.composites.loss_functions import reduce_loss
from torcheer.autograd.rules.rule_table import composite


@composite("soft_margin_loss")
def soft_margin_loss(x: Tensor, target: Tensor, reduction: Any = "mean") -> Any:
    r"""$\log(1 + e^{-t x})$: a score should have the sign of its target, and be large."""
    return reduce_loss(torch.nn.functional.softplus(-target * x), reduction)


@composite("margin_ranking_loss")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Any = "mean"
) -> Any:
    r"""$\max(m - t\,(a - b), 0)$: one score should exceed the other by a margin; then the loss is zero."""
    return reduce_loss((margin - target * (input1 - input2)).clamp(min=0), reduction)


@composite("hinge_embedding_loss")
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0, reduction: Any = "mean") -> Any:
    r"""$x$ where $t = 1$, $\max(m - x, 0)$ where $t = -1$: similar pairs are pulled together, others
    pushed apart up to a margin."""
    near = torch.where(target != -1, x, 0.0)
    return reduce_loss(near + torch.where(target != 1, (margin - x).clamp(min=0), 0.0), reduction)


@composite("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Any = "mean"
) -> Any:
    r"""$1 - \cos$ where $t = 1$, $\max(\cos - m, 0)$ where $t = -1$: similar vectors should point
    the same way."""
    dim = target.dim()
    sizes = [(x * x).sum(dim) + 1e-12 for x in (input1, input2)]
    cosine = (input1 * input2).sum(dim) / torch.sqrt(sizes[0] * sizes[1])
    losses = torch.where(target == 1, 1 - cosine, 0.0)
    return reduce_loss(losses + torch.where(target == -1, (cosine - margin).clamp(min=0), 0.0), reduction)


@composite("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: Any = "mean",
) -> Any:  # fmt: skip
    r"""$\max(\|a - p\| - \|a - n\| + m, 0)$: the positive example should be nearer than the negative, by a margin."""
    far = torch.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, torch.pairwise_distance(positive, negative, p, eps))
    return reduce_loss((torch.pairwise_distance(anchor, positive, p, eps) - far + margin).clamp(min=0), reduction)


@composite("multi_margin_loss")
def multi_margin_loss(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: Any = "mean"
) -> Any:
    r"""$\tfrac1n \sum_{j \ne t} \max(m - x_t + x_j, 0)^p$: the target class should exceed every other
    by a margin."""
    scores, classes = (x.reshape(1, -1), target.reshape(1, 1)) if x.dim() < 2 else (x, target.unsqueeze(1))
    shortfall = torch.relu(margin - scores.gather(1, classes) + scores) ** p
    shortfall = shortfall if weight is None else shortfall * weight[classes]
    losses = shortfall.scatter(1, classes, 0.0).sum(1) / scores.shape[1]
    return reduce_loss(losses.reshape(target.shape), reduction)


@composite("multilabel_margin_loss")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: Any = "mean") -> Any:
    r"""$\tfrac1n \sum_{j \in T} \sum_{i \notin T} \max(1 - x_j + x_i, 0)$: each target
    class should exceed each other class."""
    scores, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    is_label = (labels >= 0).cumprod(1) > 0  # the list of classes ends at the first -1
    labels = labels.clamp(min=0)
    is_target = torch.zeros_like(scores).scatter_add(1, labels, is_label.to(x.dtype)) > 0
    shortfall = torch.relu(1 - scores.gather(1, labels).unsqueeze(2) + scores.unsqueeze(1))
    is_counted = is_label.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = shortfall.masked_fill(~is_counted, 0).sum((1, 2)) / scores.shape[1]
    return reduce_loss(losses.reshape(x.shape[:-1]), reduction)


@composite("poisson_nll_loss")
def poisson_nll_loss(
    x: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Any = "mean"
) -> Any:
    r"""$e^x - t\,x$: the negative log-probability of a count $t$ at the rate $e^x$."""
    losses = torch.exp(x) - target * x if log_input else x - target * torch.log(x + eps)
    if full:  # Stirling's formula for log t!, which matters from two on
        count = torch.where(target > 1, target, 1.0)
        stirling = count * torch.log(count) - count + 0.5 * torch.log(2 * math.pi * count)
        losses = losses + torch.where(target > 1, stirling, 0.0)
    return reduce_loss(losses, reduction)
