"""Outputs of modules read by forward hooks: cheaper than a capture, where both agree."""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from torcheer.roles import is_role, roles_of


class _StopForward(BaseException):
    """Ends a forward pass once every layer was read.

    A BaseException, so that no model catches it.
    """


class HookReader:
    """Reader of modules' outputs in one call of a model."""

    def __init__(self, model: torch.nn.Module, modules: dict[str, torch.nn.Module]) -> None:
        self._model, self._modules = model, modules
        self._copied_layers: set[str] = set()  # layers whose values are overwritten in place later
        self._last_layer = ""  # the layer after which the pass may stop, once known
        self._thread = 0  # the thread of this call: other threads may run the model and trigger the hooks
        self._order: list[str] = []
        self._values: dict[str, Tensor] = {}
        self._versions: dict[str, int] = {}

    @classmethod
    def for_layers(cls, model: torch.nn.Module, layers: Iterable[str]) -> HookReader | None:
        """Make a reader if all layers are modules; None otherwise."""
        modules = {name: module for name, module in model.named_modules() if name}
        layers = list(layers)
        named = {name for name in layers if name not in modules and is_role(name)}
        modules |= {name: modules[roles_of(modules).resolve(name)[0].path] for name in named}
        return cls(model, {name: modules[name] for name in layers}) if set(layers) <= set(modules) else None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor] | None:
        """Return the value of each layer; None where hooks cannot read it and a capture is needed."""
        self._thread, self._order, self._values, self._versions = get_ident(), [], {}, {}
        handles = [module.register_forward_hook(self._make_hook(name)) for name, module in self._modules.items()]
        try:
            self._model(*args, **kwargs)
        except _StopForward:
            pass
        finally:
            for handle in handles:
                handle.remove()
        order, values, self._values = self._order, self._values, {}
        if sorted(order) != sorted(self._modules):  # not called, or more than once
            return None
        if changed := [name for name, value in values.items() if value._version != self._versions[name]]:
            self._copied_layers.update(changed)
            return None
        self._last_layer = order[-1]
        return values

    def _make_hook(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if get_ident() != self._thread:
                return
            if not isinstance(output, Tensor) or output.is_inference():
                return  # several values, or one whose version counter does not show in-place writes
            self._order.append(name)
            self._values[name] = output.detach().clone() if name in self._copied_layers else output.detach()
            self._versions[name] = self._values[name]._version
            if name == self._last_layer:
                raise _StopForward

        return hook
