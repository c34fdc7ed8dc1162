"""A model's modules: their names, without the wrappers of DDP, FSDP, checkpointing and `torch.compile`."""

from __future__ import annotations

import re

from torch import nn

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_WRAPPER_PARTS = re.compile(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(?=\.|$)")


def unwrapped(model: nn.Module) -> nn.Module:
    """Strip DistributedDataParallel, DataParallel and `torch.compile` from a model."""
    while True:
        if isinstance(model, _WRAPPERS):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def plain_name(name: str) -> str:
    """A module's name without the path segments that `torch.compile`, checkpointing and FSDP insert."""
    return _WRAPPER_PARTS.sub("", name).removeprefix(".")


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Map names to modules, each once; the model itself under its class name, without wrappers."""
    inner = unwrapped(model)
    parts: dict[str, nn.Module] = {}
    for name, module in inner.named_modules():
        if module is not inner:
            parts.setdefault(plain_name(name), module)  # of a compiled submodule and the module it wraps, the former
    class_name = type(inner).__name__
    return {f"({class_name})" if class_name in parts else class_name: model, **parts}
