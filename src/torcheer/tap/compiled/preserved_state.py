"""An extra pass of a model leaves no trace: what its modules hold and random state are restored."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

_CONTAINERS = (list, dict, set, OrderedDict)


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restore what the modules hold, and random state of torch, numpy and Python.

    That is attributes, lists and dictionaries of a module (counters, caches, hooks). Buffers and other tensors are
    exchanged for copies meanwhile: their own memory is not written, as autograd may have saved it. What a hook or an
    object of the user's counts elsewhere is not known.
    """
    modules = list(model.modules())
    lazy = [module for module in modules if isinstance(module, LazyModuleMixin)]  # they get their shapes
    held = [vars(module) for module in modules if module not in lazy]
    containers = [value for names in held for value in names.values() if type(value) in _CONTAINERS]
    contents = [(value, value.copy()) for value in (*held, *containers)]
    modes = [(module, module.training) for module in lazy]
    scripted = [module for module in modules if isinstance(module, torch.jit.ScriptModule)]
    written = [(buffer, buffer.clone()) for module in scripted for buffer in module.buffers(recurse=False)]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            _exchange_tensors(held)
            yield
    finally:
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)
        for container, content in contents:
            _restore(container, content)
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, values in written:  # they cannot be exchanged
                buffer.copy_(values)


def _exchange_tensors(held: list[dict[str, Any]]) -> None:
    """Exchange buffers and other tensors that modules hold, without a gradient, for copies of them."""
    copies: dict[int, Tensor] = {}
    for names in held:
        buffers = names.get("_buffers")  # a scripted module has none of its own
        for place in (buffers if isinstance(buffers, dict) else {}, names):
            for name, value in place.items():
                if isinstance(value, Tensor) and not value.requires_grad and not is_lazy(value):
                    if id(value) not in copies:
                        copies[id(value)] = value.detach().clone()
                    place[name] = copies[id(value)]


def _restore(container: Any, content: Any) -> None:
    """Restore a container that has changed; others are not written, as other threads may read them."""
    if isinstance(container, set):
        is_same = container == content
    elif isinstance(container, list):
        is_same = len(container) == len(content) and all(map(_is, container, content))
    else:
        is_same = list(container) == list(content) and all(map(_is, container.values(), content.values()))
    if not is_same:
        container.clear()
        (container.extend if isinstance(container, list) else container.update)(content)


def _is(left: object, right: object) -> bool:
    return left is right
