"""Guard against collectives in replay, which would block or mislead other ranks."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from torcheer.capture.torch_state import NO_DISPATCH_OVERRIDE, OpOverload, OpOverloadPacket

# Namespaces of collectives, and the local functions in them: they wait for a pending one, or wrap its result.
_NAMESPACES = frozenset("c10d _c10d_functional _c10d_functional_autograd c10d_functional _dtensor symm_mem".split())
_LOCAL = frozenset(("wait_tensor", "_wrap_tensor_autograd"))


class WouldCommunicate(Exception):
    """An operation was about to communicate with other ranks; the message is its name."""


def is_collective(function: Any) -> bool:
    """Whether a dispatcher function is a collective, by its namespace."""
    if not isinstance(function, (OpOverload, OpOverloadPacket)):
        return False
    namespace, _, name = str(function).partition(".")
    return namespace in _NAMESPACES and name.partition(".")[0] not in _LOCAL


class NoCollectives(TorchDispatchMode):
    """A dispatch mode that raises before an operation communicates, also inside a DTensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_collective(func):
            raise WouldCommunicate(str(func))
        if any(map(_overrides_dispatch, types)):
            return NotImplemented  # let the subclass run it: its collectives then reach this mode
        return func(*args, **(kwargs or {}))


def _overrides_dispatch(kind: Any) -> bool:
    """Whether tensors of this type override dispatch; fake tensors do, but never communicate."""
    plain = kind.__torch_dispatch__ is NO_DISPATCH_OVERRIDE
    return not plain and kind.__module__ != "torch._subclasses.fake_tensor"
