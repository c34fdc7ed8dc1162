"""A model's modules: their names, without the wrappers of DDP, FSDP, checkpointing and `torch.compile`."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_WRAPPER_NAMES = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))
_WRAPPER_PARTS = re.compile(rf"(^|\.)({'|'.join(sorted(_WRAPPER_NAMES))})(?=\.|$)")


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


def named_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Map paths to the modules of a model, each once, without the model itself; faster than torch's own walk."""
    parts: dict[str, nn.Module] = {}
    if _add_parts(parts, {id(model)}, "", model._modules):
        named, parts = parts, {}
        for path, part in named.items():
            if plain := plain_name(path):
                parts.setdefault(plain, part)
    return parts


def _add_parts(parts: dict[str, nn.Module], seen: set[int], prefix: str, modules: Any) -> bool:
    """Add modules and what is in them; whether there is a wrapper among them."""
    is_wrapped = False
    for name, part in modules.items():
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        path = prefix + name
        parts[path] = part
        if name in _WRAPPER_NAMES:
            is_wrapped = True
        if part._modules and _add_parts(parts, seen, f"{path}.", part._modules):
            is_wrapped = True
    return is_wrapped


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Map names to modules, each once; the model itself under its class name, without wrappers."""
    inner = unwrapped(model)
    parts: dict[str, nn.Module] = {}
    for name, module in inner.named_modules():
        if module is not inner:
            parts.setdefault(plain_name(name), module)  # of a compiled submodule and the module it wraps, the former
    class_name = type(inner).__name__
    return {f"({class_name})" if class_name in parts else class_name: model, **parts}
