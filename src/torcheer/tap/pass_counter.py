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

from torcheer.tap.probe_hooks import Called, in_backward


def _its(name: str) -> Any:
    """An attribute of the method that a nap stands for."""
    return property(lambda nap: getattr(nap.__wrapped__, name))


class Nap:
    """A model's `forward` while its hook sleeps: counts down the hook's quiet passes, then wakes it.

    With `count` that does it, in its own way; it says False of a pass that was not foreseen.
    """

    __slots__ = ("__weakref__", "__wrapped__", "_count", "_hook", "_model", "_wake")

    def __init__(
        self, model: nn.Module, hook: Called, wake: Callable[[], None], count: Callable[[], bool] | None = None
    ) -> None:
        self._model, self._hook, self._wake, self._count = model, hook, wake, count
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
            elif not hook.in_any_mode:
                return self.__wrapped__(*arguments, **keywords)
            if self._count is None:
                hook.quiet -= 1
                if hook.quiet <= 0:  # less than zero where two threads count at once
                    self._wake()
            elif not self._count() or hook.quiet <= 0:
                self._wake()
        return self.__wrapped__(*arguments, **keywords)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What stands here else: torch.jit and torch.export look at its code, which they take from methods only."""
        return MethodType

    # One by one: a class with a `__getattr__` is slower at each attribute, and we are called at each pass.
    __code__, __globals__, __func__, __self__ = (
        _its("__code__"),
        _its("__globals__"),
        _its("__func__"),
        _its("__self__"),
    )
    __defaults__, __kwdefaults__, __closure__ = _its("__defaults__"), _its("__kwdefaults__"), _its("__closure__")
    __name__ = _its("__name__")

    def end(self) -> None:
        """Leave; where somebody has wrapped us meanwhile, stay and do nothing."""
        if vars(self._model).get("forward") is self:
            del self._model.forward

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """What a copy of the model has in our place: its own."""
        return getattr(memo.get(id(self._model)), "forward", self)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._model, "forward")
