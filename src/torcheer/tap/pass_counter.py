"""Count passes at a fifth of the cost of a hook: torch's hook path takes 4 to 5 µs, an instance attribute 1.

While no pass is watched, the model's instance has a `forward` that counts and calls the real one. It is removed with
the last pass that it had to count.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling

from torcheer.tap.probe_hooks import PassHook, in_backward


def _delegate(name: str) -> Any:
    """A property that reads an attribute of the wrapped method."""
    return property(lambda counter: getattr(counter.__wrapped__, name))


class PassCounter:
    """Replaces a model's `forward` during idle passes: counts them down, then restores the hook by `resume`."""

    __slots__ = ("__weakref__", "__wrapped__", "_hook", "_model", "_resume")

    def __init__(self, model: nn.Module, hook: PassHook, resume: Callable[[], None]) -> None:
        self._model, self._hook, self._resume = model, hook, resume
        self.__wrapped__ = model.forward  # so that `inspect.signature` works
        model.forward = self

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Whether a model's `forward` is an ordinary method that can be replaced safely."""
        return "forward" not in vars(model) and isinstance(model.forward, MethodType)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        hook = self._hook
        if hook.counter is self and not is_dynamo_compiling() and in_backward() < 0:
            if self._model.training:
                hook.in_any_mode = False
            elif not hook.in_any_mode:
                return self._test(arguments, keywords) if hook.sees_tests else self.__wrapped__(*arguments, **keywords)
            if hook.count is None:
                hook.idle_passes -= 1
                if hook.idle_passes <= 0:  # below zero where two threads count at once
                    self._resume()
            elif not hook.count() or hook.idle_passes <= 0:
                self._resume()
        return self.__wrapped__(*arguments, **keywords)

    def _test(self, arguments: Any, keywords: Any) -> Any:
        """Run a pass in evaluation mode, reported by the hook: torch is past the point where it calls hooks."""
        self._resume()
        self._hook(self._model, arguments, keywords)
        try:
            return self.__wrapped__(*arguments, **keywords)
        finally:
            self._hook.end_test()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Pretend to be a method: torch.jit and torch.export read the code of methods only."""
        return MethodType

    # One by one: a class with `__getattr__` is slower at every attribute, and this runs at every pass.
    __code__, __globals__, __func__, __self__ = (
        _delegate("__code__"),
        _delegate("__globals__"),
        _delegate("__func__"),
        _delegate("__self__"),
    )
    __defaults__, __kwdefaults__ = _delegate("__defaults__"), _delegate("__kwdefaults__")
    __closure__ = _delegate("__closure__")
    __name__ = _delegate("__name__")

    def end(self) -> None:
        """Restore the model's `forward`; where other code has wrapped it meanwhile, stay and only pass calls on."""
        if vars(self._model).get("forward") is self:
            del self._model.forward

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Give a copy of the model its own `forward`."""
        return getattr(memo.get(id(self._model)), "forward", self)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._model, "forward")
