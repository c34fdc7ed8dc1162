"""Values of whole modules by forward hooks: a capture without its cost, where it gives the same."""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor


class _Enough(BaseException):
    """Everything that was asked for is there; no model catches this by mistake."""


class Hooks:
    """What modules return in one call of a model."""

    def __init__(self, model: torch.nn.Module, modules: dict[str, torch.nn.Module]) -> None:
        self._model, self._modules = model, modules
        self._copied: set[str] = set()  # layers whose values are written over later on
        self._last = ""  # the layer behind which nothing is needed any more, once that is known
        self._thread = 0  # the one that runs the model for us: others may run it, too, and meet our hooks
        self._order: list[str] = []
        self._values: dict[str, Tensor] = {}
        self._versions: dict[str, int] = {}

    @classmethod
    def of(cls, model: torch.nn.Module, layers: Iterable[str]) -> Hooks | None:
        """Hooks for layers that are all modules; None where one is not."""
        known = {name: module for name, module in model.named_modules() if name}
        layers = list(layers)
        return cls(model, {name: known[name] for name in layers}) if set(layers) <= set(known) else None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor] | None:
        """The value of each layer; None where hooks cannot tell: ask a capture then."""
        self._thread, self._order, self._values, self._versions = get_ident(), [], {}, {}
        handles = [module.register_forward_hook(self._taker(name)) for name, module in self._modules.items()]
        try:
            self._model(*args, **kwargs)
        except _Enough:
            pass
        finally:
            for handle in handles:
                handle.remove()
        order, values, self._values = self._order, self._values, {}
        if sorted(order) != sorted(self._modules):  # not called, or more than once
            return None
        if changed := [name for name, value in values.items() if value._version != self._versions[name]]:
            self._copied.update(changed)
            return None
        self._last = order[-1]
        return values

    def _taker(self, name: str) -> Any:
        def take(module: torch.nn.Module, args: Any, output: Any) -> None:
            if get_ident() != self._thread:
                return
            if not isinstance(output, Tensor) or output.is_inference():
                return  # several values, or one that does not say when it is written over
            self._order.append(name)
            self._values[name] = output.detach().clone() if name in self._copied else output.detach()
            self._versions[name] = self._values[name]._version
            if name == self._last:
                raise _Enough

        return take
