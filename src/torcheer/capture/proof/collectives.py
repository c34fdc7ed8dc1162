"""Operations that talk to other ranks: replay must never run one, the others would wait for it or be misled by it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Where torch keeps them, and what there only waits for one that is under way, or wraps its result.
_NAMESPACES = frozenset("c10d _c10d_functional _c10d_functional_autograd c10d_functional _dtensor symm_mem".split())
_LOCAL = frozenset(("wait_tensor", "_wrap_tensor_autograd"))


class Communicates(Exception):
    """An operation was about to talk to other ranks; the text is its name."""


def is_collective(function: Any) -> bool:
    """Whether a function is itself a collective, known to the dispatcher by its name."""
    if not isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return False
    namespace, _, name = str(function).partition(".")
    return namespace in _NAMESPACES and name.partition(".")[0] not in _LOCAL


class NoCollectives(TorchDispatchMode):
    """Raises where an operation would communicate, also deep inside a distributed tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_collective(func):
            raise Communicates(str(func))
        if any(map(_has_ways_of_its_own, types)):
            return NotImplemented  # let the subclass say what it does: its collectives come by here then
        return func(*args, **(kwargs or {}))


def _has_ways_of_its_own(kind: Any) -> bool:
    """Whether tensors of this type run something else than is asked; a fake tensor has nothing to send."""
    plain = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
    return not plain and kind.__module__ != "torch._subclasses.fake_tensor"
