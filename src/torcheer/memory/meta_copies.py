"""Copies of a model, its inputs and its optimizer on meta: shapes and types without memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torcheer.encoding import is_composed, not_supported
from torcheer.errors import BadArgument, NotAModel, reason_of
from torcheer.memory.storage_log import tensors_in


def meta_tensor(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a meta tensor of the same shape, strides and type."""
    chosen = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=chosen, device="meta", requires_grad=tensor.requires_grad
    )


def meta_model(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """Return a copy of a model on meta.

    - `dtype`: the type of its floating-point parameters and buffers; None: as they are.
    """
    if not isinstance(model, nn.Module):
        raise NotAModel(f"plan needs an nn.Module, got {type(model).__name__}")
    memo: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise BadArgument(f"plan: {name} has no shape before the first pass; run the model once, then plan it")
        if hasattr(parameter, "_local_tensor"):
            raise BadArgument(f"plan: {name} is sharded; plan the model before it is wrapped, with world_size=N")
        if is_composed(parameter):
            raise BadArgument(f"plan: {name}: {not_supported(parameter)}; plan the model before it is quantised")
        memo[id(parameter)] = nn.Parameter(meta_tensor(parameter.detach(), dtype), parameter.requires_grad)
    for module in model.modules():
        for tensor in tensors_in([module._buffers, vars(module)]):
            if id(tensor) not in memo:
                memo[id(tensor)] = meta_tensor(tensor.detach(), dtype)
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise BadArgument(
            f"plan: {type(model).__name__} cannot be copied ({reason_of(error)}); build it under "
            "`with torch.device('meta'):` and give that"
        ) from error


def on_meta(value: Any, dtype: torch.dtype | None = None) -> Any:
    """Return nested inputs with meta tensors in place of real ones."""
    if isinstance(value, Tensor):
        return meta_tensor(value, dtype)
    if isinstance(value, dict):
        return {key: on_meta(item, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_meta(item, dtype) for item in value)
    return value


def meta_optimizer(optimizer: Any, model: nn.Module, meta: nn.Module) -> torch.optim.Optimizer:
    """Return a copy of an optimizer over the parameters of a meta model.

    - `optimizer`: an optimizer over parameters of `model`, a class of optimizers, a function that makes one from
      parameters, or the name of one in torch.optim ("AdamW").
    """
    copies = {id(old): new for old, new in zip(model.parameters(), meta.parameters(), strict=True)}
    if not isinstance(optimizer, torch.optim.Optimizer):
        stand_ins = [
            nn.Parameter(torch.zeros([1] * p.dim(), dtype=p.dtype), p.requires_grad) for p in meta.parameters()
        ]
        copies = {id(old): new for old, new in zip(stand_ins, meta.parameters(), strict=True)}
        optimizer = _built(optimizer, stand_ins)
    memo: dict[int, Any] = dict(copies)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in memo:
                raise BadArgument(
                    "plan: the optimizer holds parameters that are not the model's; build it over model.parameters()"
                )
    for state in optimizer.state.values():
        for tensor in tensors_in(state):
            if tensor.dim():
                memo.setdefault(id(tensor), meta_tensor(tensor.detach()))
    return copy.deepcopy(optimizer, memo)  # type: ignore[no-any-return]


def _built(optimizer: Any, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    make: Callable[[Iterable[nn.Parameter]], Any] = optimizer
    if isinstance(optimizer, str):
        known = {name.lower(): value for name, value in vars(torch.optim).items() if isinstance(value, type)}
        if optimizer.lower() not in known:
            from torcheer.terminal import did_you_mean

            hint = did_you_mean(optimizer, [value.__name__ for value in known.values()])
            raise BadArgument(f"plan: torch.optim has no optimizer named {optimizer!r}.{hint}")
        make = known[optimizer.lower()]
    if not callable(make):
        raise BadArgument(
            f"plan: optimizer={optimizer!r}; give an optimizer, a class such as torch.optim.AdamW, its name, or a "
            "function of parameters: lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)"
        )
    built = make(parameters)
    if not isinstance(built, torch.optim.Optimizer):
        raise BadArgument(f"plan: optimizer(parameters) returned a {type(built).__name__}, not an optimizer")
    return built
