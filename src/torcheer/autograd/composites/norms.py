"""Normalisation: subtract the mean, divide by the standard deviation, scale and shift."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import composite, wide


@composite("layer_norm")
def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    r"""$(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot w + b$: each sample by itself, over the last axes."""
    axes = tuple(range(-len(normalized_shape), 0))
    contiguous = wide(x.contiguous())  # as torch returns it
    centred = contiguous - contiguous.mean(axes, keepdim=True)
    y = centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    return _scale_and_shift(y, weight, bias).to(x.dtype)


@composite("rms_norm")
def rms_norm(x: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    r"""$x / \sqrt{\overline{x^2} + \varepsilon} \odot w$: scaled to a root mean square of one;
    the mean is not moved."""
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    y = wide(x)
    return _scale_and_shift(y * torch.rsqrt((y * y).mean(axes, keepdim=True) + eps), weight, None).to(x.dtype)


@composite("_weight_norm")
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    r"""$g\,v / \|v\|$: the length of a weight and its direction, learned separately."""
    axes = [axis for axis in range(v.dim()) if dim == -1 or axis != dim % v.dim()]
    return v * (g * torch.rsqrt((v * v).sum(axes, keepdim=True)))


@composite("group_norm")
def group_norm(x: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    r"""$(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot w + b$: layer_norm over groups of channels."""
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1:].numel() // num_groups)
    y = layer_norm(grouped, (grouped.shape[-1],), None, None, eps).reshape(x.shape)
    shape = (-1, *(1,) * (x.dim() - 2))
    return _scale_and_shift(
        y, weight if weight is None else weight.reshape(shape), bias if bias is None else bias.reshape(shape)
    )


@composite("batch_norm")
def batch_norm(
    x: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
    *_: Any,
) -> Any:  # fmt: skip
    r"""$(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot w + b$: over the batch; in eval with the running
    averages from training."""
    axes, shape = (0, *range(2, x.dim())), (1, -1, *(1,) * (x.dim() - 2))
    if not training:
        scale = torch.rsqrt(running_var + eps)
        y = (x - running_mean.reshape(shape)) * scale.reshape(shape)
        return _scale_and_shift(y, *_reshape_both(weight, bias, shape)).to(x.dtype)
    mean = wide(x).mean(axes, keepdim=True)
    centred = wide(x) - mean
    variance = (centred * centred).mean(axes, keepdim=True)
    if running_mean is not None:
        with torch.no_grad():
            count = x.numel() / x.shape[1]
            running_mean.lerp_(mean.reshape(-1).to(running_mean.dtype), momentum)
            running_var.lerp_((variance * (count / (count - 1))).reshape(-1).to(running_var.dtype), momentum)
    return _scale_and_shift(centred * torch.rsqrt(variance + eps), *_reshape_both(weight, bias, shape)).to(x.dtype)


@composite("instance_norm")
def instance_norm(
    x: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, *_: Any,
) -> Any:  # fmt: skip
    r"""$(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot w + b$: batch_norm of every sample by itself."""
    if not use_input_stats:
        return batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)
    shape = (1, -1, *(1,) * (x.dim() - 2))
    if running_mean is not None:
        with torch.no_grad():
            flat = x.flatten(2)
            running_mean.lerp_(flat.mean(2).mean(0), momentum)
            running_var.lerp_(flat.var(2).mean(0), momentum)
    y = layer_norm(x, x.shape[2:], None, None, eps)
    return _scale_and_shift(y, *_reshape_both(weight, bias, shape)).to(x.dtype)


def _reshape_both(weight: Any, bias: Any, shape: Any) -> tuple[Any, Any]:
    return (None if weight is None else weight.reshape(shape)), (None if bias is None else bias.reshape(shape))


def _scale_and_shift(y: Tensor, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias
