"""Counting passes at a fifth of what a hook costs: torch's way around hooks takes 4 to 5 µs, a model's own attribute 1.

While no pass is of interest, the model has a `forward` of its own that counts and calls the real one. It is taken away
with the last pass that it was to count.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling

from torcheer.inspector.hooks import Called, in_backward


class Nap:
    """A model's `forward` while its hook sleeps: counts down the hook's quiet passes, then wakes it."""

    __slots__ = ("__weakref__", "__wrapped__", "_hook", "_model", "_wake")

    def __init__(self, model: nn.Module, hook: Called, wake: Callable[[], None]) -> None:
        self._model, self._hook, self._wake = model, hook, wake
        self.__wrapped__ = model.forward  # so that its signature can be asked for
        model.forward = self

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Whether a model has nothing there that we might disturb."""
        return "forward" not in vars(model) and isinstance(model.forward, MethodType)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        hook = self._hook
        if hook.nap is self and not is_dynamo_compiling() and in_backward() < 0:
            if self._model.training:
                hook.in_any_mode = False
                hook.quiet -= 1
            elif hook.in_any_mode:
                hook.quiet -= 1
            if not hook.quiet:
                self._wake()
        return self.__wrapped__(*arguments, **keywords)

    def end(self) -> None:
        """Leave; where somebody has wrapped us meanwhile, stay and do nothing."""
        if vars(self._model).get("forward") is self:
            del self._model.forward

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """What a copy of the model has in our place: its own."""
        return getattr(memo.get(id(self._model)), "forward", self)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._model, "forward")
