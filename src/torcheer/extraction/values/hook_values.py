"""Outputs of modules read by forward hooks: as a capture gives them, without one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.capture.record.tensor_trees import direct_tensors
from torcheer.models import named_parts
from torcheer.roles import is_role, roles_of
from torcheer.tap.compiled.compiled_parts import compiled_parts
from torcheer.tap.compiled.eager_stance import EAGER_STANCE

_FAST_PATHS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class _StopForward(BaseException):
    """Ends a forward pass once every layer was read.

    A BaseException, so that no model catches it.
    """


class HookReader:
    """Reader of modules' outputs in one call of a model."""

    def __init__(self, model: torch.nn.Module, modules: dict[str, torch.nn.Module]) -> None:
        self._model, self._modules = model, modules
        inside = {id(module) for part in compiled_parts(model) for module in part.modules_inside()}
        # Compiled code calls no hook, so it runs as the Python it was made from; around it, it stays as it is.
        self.runs_eagerly = any(id(module) in inside for module in modules.values())
        self._copied_layers: set[str] = set()  # layers whose values are overwritten in place later
        self._last_layer = ""  # the layer after which the pass may stop, known after the first pass
        self._thread = 0  # the thread of this call: other threads may run the model and trigger the hooks
        self._order: list[str] = []
        self._values: dict[str, Tensor] = {}
        self._outputs: dict[str, Tensor] = {}  # of the first pass, beside copies of what they were
        self._versions: dict[str, int] = {}

    @classmethod
    def for_layers(cls, model: torch.nn.Module, layers: Iterable[str]) -> HookReader | None:
        """Make a reader if all layers are modules; None otherwise."""
        modules, layers = named_parts(model), list(layers)
        named = {name for name in layers if name not in modules and is_role(name)}
        modules |= {name: modules[roles_of(modules).resolve(name)[0].path] for name in named}
        return cls(model, {name: modules[name] for name in layers}) if set(layers) <= set(modules) else None

    @property
    def closes_fast_paths(self) -> bool:
        """Return whether hooks make the model compute otherwise: torch's attention looks for them."""
        return any(isinstance(module, _FAST_PATHS) for module in self._model.modules())

    @property
    def has_run(self) -> bool:
        """Return whether a pass gave a value for every layer."""
        return bool(self._last_layer)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor] | None:
        """Return the value of each layer; None where hooks cannot read it and a capture is needed.

        The first pass copies every value, and finds those that are overwritten later by comparing.
        """
        self._thread, self._order, self._values, self._versions = get_ident(), [], {}, {}
        handles = [module.register_forward_hook(self._make_hook(name)) for name, module in self._modules.items()]
        try:
            with EAGER_STANCE if self.runs_eagerly else nullcontext():
                self._model(*args, **kwargs)
        except _StopForward:
            pass
        finally:
            for handle in handles:
                handle.remove()
        order, values, outputs = self._order, self._values, self._outputs
        self._values, self._outputs = {}, {}
        if sorted(order) != sorted(self._modules):  # not called, or more than once
            return None
        if changed := [name for name, value in values.items() if value._version != self._versions[name]]:
            self._copied_layers.update(changed)
            return None
        self._copied_layers.update(name for name, output in outputs.items() if not same_bits(output, values[name]))
        self._last_layer = order[-1]
        return values

    def _make_hook(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if get_ident() != self._thread:
                return
            tensors = [output] if isinstance(output, Tensor) else direct_tensors(output)
            if len(tensors) != 1 or not _is_readable(tensors[0]):
                return
            self._order.append(name)
            value = tensors[0].detach()
            if not self._last_layer:
                self._outputs[name] = value
            copies = not self._last_layer or name in self._copied_layers
            self._values[name] = value.clone() if copies else value
            self._versions[name] = self._values[name]._version
            if name == self._last_layer:
                raise _StopForward

        return hook


def _is_readable(tensor: Tensor) -> bool:
    """Return whether a tensor has plain bytes, and a version counter that shows in-place writes."""
    plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
    return plain and not tensor.is_inference()


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same type, shape and bytes: NaN equals NaN, and -0 differs from 0."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return torch.equal(_as_bytes(first), _as_bytes(second))


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
