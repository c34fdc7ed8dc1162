"""Notice a model's passes: by one hook, or at a fifth of its cost by a counter.

Torch's hook path takes 4 to 5 µs, an instance attribute 1.

While no pass is watched, the model's instance has a `forward` that counts and calls the real one. It is removed with
the last pass that it had to count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling

from torcheer.models import unwrapped
from torcheer.tap.compiled.compiled_calls import CompiledCall
from torcheer.tap.compiled.compiled_parts import IN_PLACE, CompiledPart, part_at
from torcheer.tap.probe_hooks import BeginPass, PassEndHook, PassHook, in_backward

_LEAST_IDLE_PASSES = 4  # for fewer, exchanging the hook for a counter does not pay


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
        own = vars(model)
        return "forward" not in own and own.get(IN_PLACE) is None and isinstance(model.forward, MethodType)

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


class PassGate:
    """Keeps the hook on a model, or its counter; both call `begin(module, arguments, keywords)`.

    `hook` is the countdown: its idle passes are only counted. `end()` is called after a test that the counter began.
    """

    def __init__(self, model: nn.Module, begin: BeginPass, end: Callable[[], None]) -> None:
        self.hook = PassHook(begin, end, only_training=model.training)
        self._model, self._entries = model, list[Any]()
        self.is_called = self._may_count = is_called(model)
        self._lock = threading.Lock()

    def use_hook(self) -> None:
        """Let the hook count the passes."""
        with self._lock:  # several threads that count a model's passes may get here at once
            self.close()
            self.is_called = is_called(self._model)  # it may have been compiled meanwhile
            places = [self._model] if self.is_called else list(entrances(self._model))
            self._entries = [_entry(place, self.hook) for place in places]

    def use_counter(self, module: nn.Module) -> None:
        """Let the counter replace the hook for its idle passes, after a pass of `module`, where it fits."""
        self._may_count = self._may_count and module is self._model  # not a replica on another GPU
        if self.hook.idle_passes >= _LEAST_IDLE_PASSES and self._may_count and PassCounter.fits(self._model):
            self.close()
            self.hook.counter = PassCounter(self._model, self.hook, self.use_hook)

    def end_with(self, end: Callable[[], None]) -> Any:
        """Call `end` after the model's call in progress; returns a handle that is to be removed then."""
        if compiled := [entry for entry in self._entries if isinstance(entry, _CompiledEntry)]:
            return compiled[0].end_with(end)
        return self._model.register_forward_hook(PassEndHook(end), always_call=True)

    def close(self) -> None:
        """Take hook and counter off the model."""
        counter, self.hook.counter = self.hook.counter, None
        if counter is not None:
            counter.end()
        entries, self._entries = self._entries, []
        for handle in entries:
            handle.remove()


class _CompiledEntry:
    """The hook of a compiled model, in the call that sits in its place: torch's own are slower, or compiled away."""

    def __init__(self, part: CompiledPart, hook: PassHook) -> None:
        self._call = CompiledCall.at(part, self)
        self._call.begin = hook.notice

    def end_with(self, end: Callable[[], None]) -> Any:
        self._call.end = end
        return _CallEnd(self._call)

    def remove(self) -> None:
        self._call.begin = self._call.end = None
        self._call.leave(self)


class _CallEnd:
    """Removes what ends a compiled call."""

    def __init__(self, call: CompiledCall) -> None:
        self._call = call

    def remove(self) -> None:
        self._call.end = None


def _entry(model: nn.Module, hook: PassHook) -> Any:
    if (part := part_at(model)) is not None:
        return _CompiledEntry(part, hook)
    return model.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


def is_called(model: nn.Module) -> bool:
    """Whether a step calls the model's own `forward`, as far as can be told."""
    inner = unwrapped(model)
    if isinstance(inner, torch.jit.ScriptModule):
        return False
    lightning = callable(getattr(inner, "training_step", None)) and inner is model
    return not lightning and type(inner).forward is not nn.Module.forward


def entrances(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules whose first call begins a step: the model and its topmost parts."""
    if isinstance(model, torch.jit.ScriptModule):
        return  # accepts no hooks
    yield model
    for part in model.children():
        if isinstance(part, torch.jit.ScriptModule) or type(part).forward is nn.Module.forward:
            yield from entrances(part)
        else:
            yield part
