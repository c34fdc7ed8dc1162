"""An extra pass of a model leaves no trace: what its modules hold and random state are restored."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from torcheer.vocabulary.dtypes import DTYPES, torch_types

_CONTAINERS = frozenset({list, dict, set, OrderedDict})
_NO_TENSORS = _CONTAINERS | {bool, int, float, str, tuple, type(None)}  # asked first: a class is slow to say no
_COPIED_TOGETHER = torch_types(row for row in DTYPES.values() if row.has_arithmetic)


class PreservedState:
    """What the modules of a model hold, and random state of torch, numpy and Python.

    What modules hold is their attributes, lists and dictionaries (counters, caches, hooks). Buffers and other tensors
    are exchanged for copies meanwhile: their own memory is not written, as autograd may have saved it. What a hook or
    an object of the user's counts elsewhere is not known.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._lazy = [module for module in modules if isinstance(module, LazyModuleMixin)]  # they get their shapes
        self._held = [vars(module) for module in modules if not isinstance(module, LazyModuleMixin)]
        self._scripted = [module for module in modules if isinstance(module, torch.jit.ScriptModule)]
        self.parameters = [p for module in modules for p in module._parameters.values() if p is not None]
        self._devices = sorted({p.device.index or 0 for p in self.parameters if p.is_cuda})
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of a tensor: itself, and its copy

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore all of it after a block; a later block, such as the pass's backward, has the copies of the first."""
        containers = [value for names in self._held for value in names.values() if type(value) in _CONTAINERS]
        contents = [(names, names.copy()) for names in self._held]
        contents += [(container, container.copy()) for container in containers if container]
        empty = [container for container in containers if not container]  # most are: hooks of modules
        modes = [(module, module.training) for module in self._lazy]
        written = [(buffer, buffer.clone()) for module in self._scripted for buffer in module.buffers(recurse=False)]
        python_state, numpy_state = random.getstate(), numpy.random.get_state()
        try:
            with torch.random.fork_rng(self._devices):
                self._exchange_tensors()
                yield
        finally:
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)
            for container in filter(None, empty):
                container.clear()
            for container, content in contents:
                _restore(container, content)
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for buffer, values in written:  # they cannot be exchanged
                    buffer.copy_(values)

    def _exchange_tensors(self) -> None:
        """Exchange buffers and other tensors that modules hold, without a gradient, for copies of them."""
        places = [
            (place, name, value)
            for names in self._held
            for place in (names.get("_buffers"), names)
            if isinstance(place, dict)  # a scripted module has no buffers of its own
            for name, value in place.items()
            if type(value) not in _NO_TENSORS and _is_state(value)
        ]
        new = {id(value): value for *_, value in places if id(value) not in self._copies}
        self._copies |= zip(new, zip(new.values(), _copies(list(new.values()))))
        for place, name, value in places:
            place[name] = self._copies[id(value)][1]


def _is_state(value: object) -> bool:
    return isinstance(value, Tensor) and not value.requires_grad and not is_lazy(value)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors, each into memory of its own; usual ones of a device and type with one call."""
    copies, alike = list[Tensor](), dict[Any, tuple[list[Tensor], list[Tensor]]]()
    for tensor in tensors:
        plain = tensor.detach()
        if type(plain) is not Tensor or plain.layout is not torch.strided or plain.dtype not in _COPIED_TOGETHER:
            copies.append(plain.clone())
            continue
        copies.append(torch.empty_like(plain))
        targets, sources = alike.setdefault((plain.device, plain.dtype), ([], []))
        targets.append(copies[-1])
        sources.append(plain)
    for targets, sources in alike.values():
        torch._foreach_copy_(targets, sources)
    return copies


def _restore(container: Any, content: Any) -> None:
    """Restore a container that has changed; others are not written, as other threads may read them."""
    if isinstance(container, set):
        is_same = container == content
    elif isinstance(container, list):
        is_same = len(container) == len(content) and all(map(is_, container, content))
    else:
        is_same = len(container) == len(content) and all(map(is_, container, content))
        is_same = is_same and all(map(is_, container.values(), content.values()))
    if not is_same:
        container.clear()
        (container.extend if isinstance(container, list) else container.update)(content)
