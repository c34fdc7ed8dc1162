"""`tracer`: a tensor whose operations are recorded wherever it goes, without `record()`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.nodes import node_of
from torcheer.autograd.plans import PASS, SPECIAL, plan_of
from torcheer.autograd.tape import current

_frame = sys._getframe


class tracer(Tensor):
    """A tensor of floats that remembers what was done to it."""

    is_tracer = True

    @staticmethod
    def __new__(cls, data: Any = (), *, requires_grad: bool = False) -> tracer:
        with torch._C.DisableTorchFunction():
            plain = data.detach() if isinstance(data, Tensor) else torch.as_tensor(data)
            plain = plain if plain.is_floating_point() else plain.to(torch.get_default_dtype())
            made = plain.as_subclass(cls)
        made._asks = requires_grad
        if isinstance(data, Tensor) and (node := node_of(data)) is not None:
            made._torcheer = node
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plan = plan_of(func)
        tape = current()
        with torch._C.DisableTorchFunctionSubclass():
            if plan.kind is PASS:
                return func(*args, **(kwargs or {}))
            if plan.kind is not SPECIAL and not torch.is_grad_enabled():
                return cls.wrap(func(*args, **(kwargs or {})))
            return cls.wrap(tape.run(plan, args, kwargs or {}, _frame(1)))

    @classmethod
    def wrap(cls, out: Any) -> Any:
        """The same results as tracers."""
        if type(out) is Tensor:
            if not out.is_floating_point():
                return out
            made = out.as_subclass(cls)
            made._asks = False
            node = node_of(out)
            if node is not None:
                made._torcheer = node
                node.tensor = weakref.ref(made)
            return made
        if isinstance(out, (tuple, list)) and not isinstance(out, torch.Size):
            parts = [cls.wrap(one) for one in out]
            return type(out)(parts) if type(out) in (tuple, list) or hasattr(out, "n_fields") else type(out)(*parts)
        return out

    # What torch's own autograd would answer

    @property
    def requires_grad(self) -> bool:
        """Whether it asked for a gradient, or leads to something that did."""
        return self._asks

    @requires_grad.setter
    def requires_grad(self, asks: bool) -> None:
        self._asks = asks

    def requires_grad_(self, requires_grad: bool = True) -> tracer:
        """Ask for a gradient."""
        self._asks = requires_grad
        return self
