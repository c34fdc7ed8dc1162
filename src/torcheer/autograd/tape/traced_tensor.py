"""`tracer`: a tensor whose operations are recorded wherever it goes, without `record()`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.backward.derivatives import backward
from torcheer.autograd.tape.function_plans import PASS, SPECIAL, plan_of
from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.tape import current
from torcheer.errors import BadArgument

_frame = sys._getframe
_outside = torch._C._is_torch_function_enabled  # whether it is a user who asks, and not the tape at work


class tracer(Tensor):
    """A tensor of floats that remembers what was done to it.

    >>> a = tracer([1, 2, 3]).requires_grad_()
    >>> (a * a).Sum().backward()
    >>> a.grad
    tensor([2., 4., 6.])
    """

    is_tracer = True
    name: str | None = None  # shown where a gradient arrives
    _asks: bool = False
    _torcheer: Any  # there once something has made it

    @staticmethod
    def __new__(cls, data: Any = (), *, requires_grad: bool = False) -> tracer:
        with torch._C.DisableTorchFunction():
            plain = data.detach() if isinstance(data, Tensor) else torch.as_tensor(data)
            if plain.is_complex():
                raise BadArgument(f"tracer: the rules here are for real numbers, and this is {plain.dtype}")
            plain = plain if plain.is_floating_point() else plain.to(torch.get_default_dtype())
            made = Tensor._make_subclass(cls, plain)
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
            # A view stays one, so that a write to it is a write to what it shows.
            made = Tensor._make_subclass(cls, out) if out._base is None else out.as_subclass(cls)
            node = node_of(out)
            if node is not None:
                made._torcheer = node
                node.tensor = weakref.ref(made)
            return made
        if isinstance(out, (tuple, list)) and not isinstance(out, torch.Size):
            parts = [cls.wrap(one) for one in out]
            return type(out)(parts) if type(out) in (tuple, list) or hasattr(out, "n_fields") else type(out)(*parts)
        return out

    # What torchtrace calls its own

    def Sum(self) -> tracer:
        """All elements added up, as a tensor of one."""
        from torcheer.autograd import nn

        return nn.Sum()(self)  # type: ignore[no-any-return]

    def View(self, *shape: Any) -> tracer:
        """The same numbers in another shape."""
        from torcheer.autograd import nn

        return nn.View(*shape)(self)  # type: ignore[no-any-return]

    def Gather(self, index: Any) -> tracer:
        """Of row i the entry in column `index[i]`: (N, M) becomes (N, 1)."""
        from torcheer.autograd import nn

        return nn.Gather_last(index)(self)  # type: ignore[no-any-return]

    # What torch's own autograd would answer

    def backward(  # type: ignore[override]
        self, show: Any = False, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
        inputs: Any = None,
    ) -> None:  # fmt: skip
        """Send gradients back from here; `show` prints every operation on the way."""
        if isinstance(show, Tensor):  # torch's first argument is the gradient
            show, gradient = False, show
        backward(self, gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs, show=show)

    @property
    def requires_grad(self) -> bool:
        """Whether it asked for a gradient, or leads to something that did."""
        return self._asks or (_outside() and node_of(self) is not None)

    @requires_grad.setter
    def requires_grad(self, asks: bool) -> None:
        self.requires_grad_(asks)

    def requires_grad_(self, requires_grad: bool = True) -> tracer:
        """Ask for a gradient."""
        if node_of(self) is None:
            self._asks = requires_grad
        elif not requires_grad:
            raise BadArgument(
                "requires_grad_(False): this tensor was computed from others; detach() gives it without its past"
            )
        return self

    # What goes along when it is copied, and how it prints

    def __deepcopy__(self, memo: dict[int, Any]) -> tracer:
        if id(self) not in memo:
            memo[id(self)] = made = type(self)(_plain(self).clone(), requires_grad=self._asks)
            made.name, made.grad = self.name, None if self.grad is None else self.grad.clone()
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _again, (type(self), _plain(self), self._asks, self.name)

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if form and not self.dim() else super().__format__(form)


def _again(kind: type[tracer], plain: Tensor, asks: bool, name: str | None) -> tracer:
    made = kind(plain, requires_grad=asks)
    made.name = name
    return made


def _plain(tensor: Tensor) -> Tensor:
    """The numbers alone, as a tensor of torch's own kind."""
    with torch._C.DisableTorchFunction():
        return tensor.detach().as_subclass(Tensor)
