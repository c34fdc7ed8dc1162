"""A model's modules: their names, without the wrappers of DDP, FSDP, checkpointing and `torch.compile`."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, cast

from torch import nn

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_WRAPPER_NAMES = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))
_WRAPPER_PARTS = re.compile(rf"(^|\.)({'|'.join(sorted(_WRAPPER_NAMES))})(?=\.|$)")


def unwrapped(model: nn.Module) -> nn.Module:
    """Strip DistributedDataParallel, DataParallel and `torch.compile` from a model."""
    while True:
        if isinstance(model, _WRAPPERS):
            model = model.module
        elif "_orig_mod" in (parts := model._modules):  # getattr would be slow to say no
            model = cast(nn.Module, parts["_orig_mod"])
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


class ModulePaths(Mapping[str, nn.Module]):
    """The modules of a model by path, as `named_parts`; the model is walked only where a path does not lead there."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._parts: dict[str, nn.Module] | None = None

    @property
    def _all(self) -> dict[str, nn.Module]:
        if self._parts is None:
            self._parts = named_parts(self._model)
        return self._parts

    def find(self, path: str) -> nn.Module | None:
        """Return the module to which a path leads; None if it needs a walk, or does not exist."""
        module: nn.Module | None = self._model
        for name in path.split("."):
            if module is None or name in _WRAPPER_NAMES:
                return None
            module = module._modules[name] if name in module._modules else None  # a scripted one has no `get`
        return module

    def __getitem__(self, path: str) -> nn.Module:
        module = self.find(path)
        return module if module is not None else self._all[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def items(self) -> ItemsView[str, nn.Module]:
        """Return all of them; `Mapping` would look each up again."""
        return self._all.items()

    def values(self) -> ValuesView[nn.Module]:
        """Return all modules."""
        return self._all.values()

    def __len__(self) -> int:
        return len(self._all)


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Map names to modules, each once; the model itself under its class name, without wrappers."""
    inner = unwrapped(model)
    parts: dict[str, nn.Module] = {}
    for name, module in inner.named_modules():
        if module is not inner:
            parts.setdefault(plain_name(name), module)  # of a compiled submodule and the module it wraps, the former
    class_name = type(inner).__name__
    return {f"({class_name})" if class_name in parts else class_name: model, **parts}
