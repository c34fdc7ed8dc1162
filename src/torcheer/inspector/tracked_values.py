"""The handler's hooks on models and tensors, one per name; they never raise into the model."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument, NotAModel
from torcheer.inspector.handler_child import Worker
from torcheer.inspector.layer_discovery import first_tensor, on_gradient

Transform = Callable[[Tensor], Any]


class Passing(Protocol):
    """The handler, as far as a probe needs it: decides which values are sent."""

    internal_message: str

    def passes(self, count: int) -> bool:
        """Whether the value with this number is sent."""


class Probe(ABC):
    """Counts the values of one name and sends every n-th; one that fails is reported and sends no more."""

    variable: str

    def __init__(self, handler: Passing, worker: Worker, name: str, item: Any, transform: Transform | None) -> None:
        self.name, self.count = name, 0  # how many values it had, sent or not
        self._handler, self._worker, self._transform = handler, worker, transform
        self._disabled, self._handles = False, list[Any]()
        self._lock, self._most_handles = threading.Lock(), 64
        self._item = weakref.ref(item)
        self._attach(item)

    @staticmethod
    @abstractmethod
    def check(name: Any, item: Any) -> None:
        """Refuse what cannot be tracked."""

    @abstractmethod
    def _attach(self, item: Any) -> None: ...

    @property
    def silence(self) -> str:
        """Why nothing has come by this name; "" where something has, be it by hand."""
        return "" if self.count or self.name in self._worker.put_by_hand else self._why_silent()

    def _why_silent(self) -> str:
        return "no gradient came to it"

    def _pass_on(self, tensor: Tensor) -> None:
        """Count a value; send every n-th."""
        with self._lock:
            count, self.count = self.count, self.count + 1
        if self._disabled or not self._handler.passes(count):
            return
        try:
            if (value := self._transformed(tensor)) is not None:
                message = self._handler.internal_message
                self._worker.send(self.name, self.variable, value, count=count, message=message)
        except Exception as error:  # no error here may reach the model
            self._give_up(f"{type(error).__name__}: {error}")

    def _transformed(self, tensor: Tensor) -> Tensor | None:
        if self._transform is None:
            return tensor
        with torch.no_grad():
            result = self._transform(tensor)
            return result if result is None or isinstance(result, Tensor) else torch.as_tensor(result)

    def _give_up(self, why: str) -> None:
        self._disabled = True
        self._worker.tell(f"{self.name} is no longer sent: {why}")

    def _keep(self, handle: Any) -> None:
        """Store a hook's handle, and drop those whose tensors no longer exist."""
        self._handles.append(handle)
        if len(self._handles) > self._most_handles:
            self._handles = [each for each in self._handles if each.hooks_dict_ref() is not None]
            self._most_handles = max(64, 2 * len(self._handles))

    def remove(self) -> None:
        """Remove the hooks."""
        self._disabled = True
        for handle in self._handles:
            handle.remove()
        self._handles = []


class _ModuleProbe(Probe):
    """A forward hook. A copy of the module, also one in a file or another process, comes without it."""

    _ran = False

    def _why_silent(self) -> str:
        if self._ran:
            return "it ran, and returned nothing that can be sent"
        return "it never ran, or inside torch.compile, where no hook is called"

    @staticmethod
    def check(name: Any, item: Any) -> None:
        _check_name(name)
        if isinstance(item, torch.jit.ScriptModule):
            raise NotAModel(f"{name!r} is a ScriptModule, which takes no hooks; track the module it was made from")
        if not isinstance(item, nn.Module):
            raise NotAModel(f"{name!r} is a {type(item).__name__}; track_model and track_layer take nn.Modules")

    def _attach(self, item: nn.Module) -> None:
        self._keep(item.register_forward_hook(self))

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Torch calls this after the module."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():  # our copies must not become part of the program
            return
        if self._disabled or (module is not self._item() and not getattr(module, "_is_replica", False)):
            return
        self._ran = True
        try:
            self._handle_output(output)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    @abstractmethod
    def _handle_output(self, output: Any) -> None: ...

    def __reduce__(self) -> tuple[type[Nothing], tuple[()]]:
        return Nothing, ()


class Nothing:
    """Replaces a hook in a copy of the model."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Torch calls this after the module."""


class ModelProbe(_ModuleProbe):
    """Sends what a module returns."""

    variable = "output"

    def _handle_output(self, output: Any) -> None:
        if output is None:
            return
        tensor = first_tensor(output)
        if tensor is not None:
            self._pass_on(tensor)
        else:  # the next output may have one: a model is also called to be traced
            self._worker.tell(f"{self.name} is not sent: it returned a {type(output).__name__} without a tensor")


class LayerProbe(_ModuleProbe):
    """Sends the gradient of what a module returns.

    The hook is on the tensor: torch's own for modules cannot be used where a later one works in place.
    """

    variable = "grad"

    def _why_silent(self) -> str:
        return "it ran, and no gradient came back to it" if self._ran else super()._why_silent()

    def _handle_output(self, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        tensor = first_tensor(output, requires_grad=True)
        if tensor is None:
            return
        if tensor.is_leaf:  # a leaf outlives this step, and so does its hook of the last one
            for handle in self._handles[1:]:
                if handle.hooks_dict_ref() is tensor._backward_hooks:
                    handle.remove()
                    self._handles.remove(handle)
        self._keep(on_gradient(tensor, self._pass_on))


class TensorProbe(Probe):
    """Sends the value of a tensor when its gradient arrives."""

    variable = "tensor"

    @staticmethod
    def check(name: Any, item: Any) -> None:
        _check_name(name)
        if not isinstance(item, Tensor):
            raise BadArgument(f"{name!r} is a {type(item).__name__}; track_tensor takes tensors")
        if not item.requires_grad:
            raise BadArgument(
                f"{name!r} gets no gradient, at which it would be sent; call requires_grad_() on it first"
            )

    def _attach(self, item: Tensor) -> None:
        # A leaf may get other memory (`model.to`); whoever sends it a gradient keeps it alive. What was computed may be
        # gone by then: its memory is kept, and not the tensor, which would keep this hook, which keeps the tensor.
        self._memory = None if item.is_leaf else item.detach()
        self._keep(on_gradient(item, self._arrived))

    def _arrived(self, gradient: Tensor) -> None:
        tensor = self._memory if self._memory is not None else self._item()
        if not self._disabled and tensor is not None:
            self._pass_on(tensor)

    def remove(self) -> None:
        """Remove the hook."""
        super().remove()
        self._memory = None


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise BadArgument(f"what is tracked goes by a name, and {name!r} is none; try {{'model': model}}")
