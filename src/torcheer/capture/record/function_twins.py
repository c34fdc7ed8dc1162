"""Twins: copies of torch's Python functions whose inner operations reach the recorder.

While a function mode is active, `torch.nn.functional.relu` passes itself to the mode as one closed call. A twin runs
the same code object with globals in which no override check sees the mode, so that the inner operations arrive one by
one. Nothing in torch is changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn import Parameter

from torcheer.capture.torch_state import BOOLEAN_DISPATCHED, NO_FUNCTION_OVERRIDE, is_override_enabled

Function = Callable[..., Any]

_plain_types: dict[type, bool] = {Tensor: True, Parameter: True, type(None): True}


def _is_plain_type(kind: type) -> bool:
    """Whether tensors of this type do not override torch's functions."""
    is_plain = _plain_types.get(kind)
    if is_plain is None:
        override = getattr(kind, "__torch_function__", None)
        is_plain = _plain_types[kind] = override is None or override is NO_FUNCTION_OVERRIDE
    return is_plain


def _has_override(tensors: Iterable[Any]) -> bool:
    return not all(_is_plain_type(type(tensor)) for tensor in tensors) and is_override_enabled()


def _has_override_unary(tensor: Any) -> bool:
    return not _is_plain_type(type(tensor)) and is_override_enabled()


def _has_override_variadic(*tensors: Any) -> bool:
    return _has_override(tensors)


def _delegate_override(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Delegate a twin's call to a tensor subclass, under the original function."""
    return torch.overrides.handle_torch_function(_originals.get(function, function), *args, **kwargs)


# Replacements of torch's override checks in a twin's globals: subclasses still count, modes do not.
_OVERRIDE_CHECKS: dict[str, Function] = {
    "has_torch_function": _has_override,
    "has_torch_function_unary": _has_override_unary,
    "has_torch_function_variadic": _has_override_variadic,
    "handle_torch_function": _delegate_override,
}


class _NamespaceProxy:
    """A namespace that overrides some names and delegates the others to the original."""

    def __init__(self, original: Any, names: dict[str, Any]) -> None:
        self.__dict__.update(names)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _copy(function: Any, names: dict[str, Any], closure: Any = None) -> Function:
    twin = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, closure or function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def _functional_twins() -> tuple[dict[str, Any], dict[Function, Function]]:
    """Return the twins of torch.nn.functional's Python functions, and their shared globals."""
    names = dict(vars(functional))
    names.update(_OVERRIDE_CHECKS)
    twins: dict[Function, Function] = {}
    for function in vars(functional).values():
        if isinstance(function, types.FunctionType) and function.__globals__ is vars(functional):
            twins[function] = _copy(function, names)
    for function, branch in BOOLEAN_DISPATCHED.items():
        if getattr(function, "__module__", "") == functional.__name__ and branch.get("if_true") in twins:
            cells = [
                types.CellType(twins.get(cell.cell_contents, cell.cell_contents))
                if isinstance(cell.cell_contents, types.FunctionType)
                else cell
                for cell in function.__closure__ or ()
            ]
            twins[function] = _copy(function, function.__globals__, tuple(cells))
    for name, value in vars(functional).items():
        if isinstance(value, types.FunctionType) and value in twins:
            names[name] = twins[value]
    return names, twins


_functional_names, _twins = _functional_twins()
_functional_shadow = types.SimpleNamespace(**_functional_names)


def _engine_twin(function: Any) -> Function:
    """Return a twin of backward that keeps the recorder active.

    So the operations of hooks, checkpoints and Python backward rules are recorded.
    """
    return _copy(function, {**function.__globals__, **_OVERRIDE_CHECKS})


ENGINE: frozenset[Function] = frozenset((Tensor.backward, torch.autograd.backward, torch.autograd.grad))
for _function in ENGINE:
    _twins[_function] = _engine_twin(_function)


_originals: dict[Function, Function] = {twin: function for function, twin in _twins.items()}


def twin_of(function: Any) -> Function | None:
    """Return the twin of one of torch's functions, or None if it stays closed."""
    return _twins.get(function)


# These check for a function mode to decide between a fused kernel and the explicit path.
FUSED_MODULES = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder)


def forward_of(forward: Any) -> Function | None:
    """Return a twin of a torch module's forward, or None to call the module's own."""
    if not isinstance(forward, types.FunctionType) or not (forward.__module__ or "").startswith("torch.nn.modules."):
        return None
    return forward_twin(forward) if "F" in forward.__code__.co_names else None


def forward_twin(forward: Any) -> Function:
    """Return a copy of a forward that calls the twins of torch.nn.functional."""
    return _copy(forward, dict(forward.__globals__, F=_functional_shadow))


def choosing_twin(forward: Any, has_mode: Callable[[], bool], kernels: dict[str, Function]) -> Function:
    """Return a copy of a forward that ignores recorders when it chooses, and calls `kernels`."""

    def has_override(tensors: Iterable[Any]) -> bool:
        return _has_override(tensors) or has_mode()

    names = {
        "overrides": _NamespaceProxy(torch.overrides, {**_OVERRIDE_CHECKS, "has_torch_function": has_override}),
        **kernels,
    }
    return _copy(forward, dict(forward.__globals__, F=_functional_shadow, torch=_NamespaceProxy(torch, names)))
