"""Where the passes of a model are noticed: by one hook, or over many idle passes by a cheaper counter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from torcheer.models import unwrapped
from torcheer.tap.pass_counter import PassCounter
from torcheer.tap.probe_hooks import BeginPass, PassHook

_LEAST_IDLE_PASSES = 4  # for fewer, exchanging the hook for a counter does not pay


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
            self._entries = [
                place.register_forward_pre_hook(self.hook, prepend=True, with_kwargs=True) for place in places
            ]

    def use_counter(self, module: nn.Module) -> None:
        """Let the counter replace the hook for its idle passes, after a pass of `module`, where it fits."""
        self._may_count = self._may_count and module is self._model  # not a replica on another GPU
        if self.hook.idle_passes >= _LEAST_IDLE_PASSES and self._may_count and PassCounter.fits(self._model):
            self.close()
            self.hook.counter = PassCounter(self._model, self.hook, self.use_hook)

    def close(self) -> None:
        """Take hook and counter off the model."""
        counter, self.hook.counter = self.hook.counter, None
        if counter is not None:
            counter.end()
        entries, self._entries = self._entries, []
        for handle in entries:
            handle.remove()


def is_called(model: nn.Module) -> bool:
    """Whether a step calls the model's own `forward`, as far as can be told."""
    inner = unwrapped(model)
    if getattr(inner, "_compiled_call_impl", None) is not None or isinstance(inner, torch.jit.ScriptModule):
        return False  # model.compile(): hooks are compiled away with it
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
