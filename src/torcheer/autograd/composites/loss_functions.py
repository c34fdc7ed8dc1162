"""Losses for regression and classification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.errors import BadArgument

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}  # as torch's C++ names them


def reduce_loss(losses: Tensor, reduction: Any) -> Any:
    """Apply torch's `reduction`: the mean, the sum, or every loss."""
    how = REDUCTIONS.get(reduction, reduction)
    return losses if how == "none" else losses.sum() if how == "sum" else losses.mean()


@composite("mse_loss")
def mse_loss(x: Tensor, target: Tensor, reduction: Any = "mean") -> Any:
    r"""$\overline{(x - t)^2}$: large errors count most."""
    return reduce_loss((x - target) ** 2, reduction)


@composite("l1_loss")
def l1_loss(x: Tensor, target: Tensor, reduction: Any = "mean") -> Any:
    r"""$\overline{|x - t|}$: every error counts by its size."""
    return reduce_loss((x - target).abs(), reduction)


@composite("huber_loss")
def huber_loss(x: Tensor, target: Tensor, reduction: Any = "mean", delta: float = 1.0) -> Any:
    r"""$\tfrac12 d^2$ up to $\delta$, then $\delta\,(d - \tfrac12 \delta)$: large errors count linearly."""
    d = (x - target).abs()
    near = d.clamp(max=delta)
    return reduce_loss(near * (d - 0.5 * near), reduction)


@composite("smooth_l1_loss")
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: Any = "mean", beta: float = 1.0) -> Any:
    r"""$\tfrac12 d^2 / \beta$ up to $\beta$, then a straight line: Huber's loss, divided by $\beta$."""
    d = (x - target).abs()
    if beta == 0:
        return reduce_loss(d, reduction)
    near = d.clamp(max=beta)
    return reduce_loss(near / beta * (d - 0.5 * near), reduction)


@composite("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: Any = "mean"
) -> Any:
    r"""$(1 - t)\,x + \text{softplus}(-x)$: binary cross entropy of a logit, stable for large ones."""
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    losses = (1 - target) * x + factor * torch.nn.functional.softplus(-x)
    return reduce_loss(losses if weight is None else losses * weight, reduction)


@composite("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(x: Tensor, target: Tensor, weight: Any = None, reduction: Any = "mean", ignore_index: int = -100) -> Any:
    r"""$-x_t$: the negative log-probability of the target class."""
    axis = 1 if x.dim() > 1 else 0
    if weight is not None and weight.requires_grad:
        raise BadArgument("the weight of a class is a given here: it gets no gradient, so it should not ask for one")
    with unrecorded():  # these depend on the target alone
        counts = target != ignore_index
        safe = target.where(counts, 0)
        share = counts.to(x.dtype) if weight is None else weight[safe] * counts
        mean = REDUCTIONS.get(reduction, reduction) == "mean"
        share = torch.where(counts, share / share.sum(), 0.0) if mean else share
    losses = -x.gather(axis, safe.unsqueeze(axis)).squeeze(axis) * share
    return losses.sum() if mean else reduce_loss(losses, reduction)


@composite("cross_entropy_loss")
def cross_entropy(
    x: Tensor, target: Tensor, weight: Any = None, reduction: Any = "mean", ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    r"""$-\log \text{softmax}(x)_t$: the negative log-probability that the scores give to the target class."""
    axis = 1 if x.dim() > 1 else 0
    logs = torch.log_softmax(x, axis)
    if target.is_floating_point():
        return _against_probabilities(logs, target, weight, reduction, label_smoothing)
    unsmoothed = nll_loss(logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return unsmoothed
    return (1 - label_smoothing) * unsmoothed + label_smoothing / x.shape[axis] * _smoothing_loss(
        logs, target, weight, reduction, ignore_index
    )


def _against_probabilities(logs: Tensor, target: Tensor, weight: Any, reduction: Any, smoothing: float) -> Any:
    """Compute the cross entropy against a target that is a distribution itself."""
    axis = 1 if logs.dim() > 1 else 0
    target = target * (1 - smoothing) + smoothing / logs.shape[axis] if smoothing else target
    weighted = (
        logs if weight is None else logs * weight.reshape(-1, *(1,) * (logs.dim() - 2)) if axis else logs * weight
    )
    losses = -(weighted * target).sum(axis)
    if REDUCTIONS.get(reduction, reduction) == "mean":
        return losses.sum() / (logs.numel() / logs.shape[axis])
    return reduce_loss(losses, reduction)


def _smoothing_loss(logs: Tensor, target: Tensor, weight: Any, reduction: Any, ignore_index: int) -> Any:
    """Compute the loss of the part of a smoothed target that is spread over all classes."""
    axis = 1 if logs.dim() > 1 else 0
    counts = target != ignore_index
    weighted = logs if weight is None else logs * (weight.reshape(-1, *(1,) * (logs.dim() - 2)) if axis else weight)
    losses = -weighted.sum(axis) * counts
    if REDUCTIONS.get(reduction, reduction) == "mean":
        total = counts.sum() if weight is None else (weight[target.where(counts, 0)] * counts).sum()
        return losses.sum() / total
    return reduce_loss(losses, reduction)


@composite("kl_div")
def kl_div(x: Tensor, target: Tensor, reduction: Any = "mean", log_target: bool = False) -> Any:
    r"""$t\,(\log t - x)$: the information lost when $e^x$ stands for the true distribution $t$."""
    losses = torch.exp(target) * (target - x) if log_target else torch.xlogy(target, target) - target * x
    return reduce_loss(losses, reduction)
