"""`tracer`: a tensor subclass whose operations are recorded without `record()`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.gradients.derivatives import backward
from torcheer.autograd.tape.function_plans import PASS, SPECIAL, plan_of
from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.tape import current
from torcheer.capture.torch_state import DisableTorchFunction, DisableTorchFunctionSubclass, is_override_enabled
from torcheer.errors import BadArgument
from torcheer.terminal import met_difference

_frame = sys._getframe
_is_called_by_user = is_override_enabled  # False while the tape itself is at work


class LeafAnswer(int):
    """What `is_leaf` is: torch's answer, and called, torchtrace's."""

    ends_chain: bool

    def __call__(self) -> bool:
        return self.ends_chain

    def __repr__(self) -> str:
        return repr(bool(self))


class tracer(Tensor):
    """A float tensor that records the operations on it.

    - `data`: numbers, an array or a tensor; whole numbers become floats. Several whole numbers are a shape, of zeros.
    - `requires_grad`: let `backward` fill its `.grad`.

    >>> a = tracer([1, 2, 3]).requires_grad_()
    >>> (a * a).Sum().backward()
    >>> a.grad
    tensor([2., 4., 6.])
    """

    is_tracer = True
    name: str | None = None  # printed by backward(show=True)
    _requires_grad: bool = False
    _torcheer: Any  # its node, set if an operation made it
    _last_node: Any = None  # the operator that returned it
    _ends_chain: bool = False

    @staticmethod
    def __new__(cls, data: Any = (), *sizes: int, requires_grad: bool = False) -> tracer:
        with DisableTorchFunction():
            if sizes or isinstance(data, torch.Size):
                data = torch.zeros((data, *sizes) if sizes else data)
            elif type(data) is int:
                met_difference("torchtrace", "one size")
            plain = data.detach() if isinstance(data, Tensor) else torch.as_tensor(data)
            if plain.is_complex():
                raise BadArgument(f"tracer: the rules here are for real numbers, and this is {plain.dtype}")
            if plain.dtype == torch.float64:
                met_difference("torchtrace", "float64")
            plain = plain if plain.is_floating_point() else plain.to(torch.get_default_dtype())
            traced = Tensor._make_subclass(cls, plain)
        traced._requires_grad = requires_grad
        if isinstance(data, Tensor) and (node := node_of(data)) is not None:
            traced._torcheer = node
        return traced

    def __init__(self, *data: Any, requires_grad: bool = False) -> None:
        super().__init__()  # for classes that inherit from it and hand their arguments on

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plan = plan_of(func)
        tape = current()
        with DisableTorchFunctionSubclass():
            if plan.kind is PASS:
                return func(*args, **(kwargs or {}))
            if plan.kind is not SPECIAL and not torch.is_grad_enabled():
                return cls.wrap(func(*args, **(kwargs or {})))
            return cls.wrap(tape.run(plan, args, kwargs or {}, _frame(1)))

    @classmethod
    def wrap(cls, out: Any) -> Any:
        """Convert results to tracers, also inside tuples and lists."""
        if type(out) is Tensor:
            if not out.is_floating_point():
                return out
            # A view stays a view, so that a write to it reaches its base.
            traced = Tensor._make_subclass(cls, out) if out._base is None else out.as_subclass(cls)
            node = node_of(out)
            if node is not None:
                traced._torcheer = node
                node.tensor = weakref.ref(traced)
            return traced
        if isinstance(out, (tuple, list)) and not isinstance(out, torch.Size):
            parts = [cls.wrap(item) for item in out]
            return type(out)(parts) if type(out) in (tuple, list) or hasattr(out, "n_fields") else type(out)(*parts)
        return out

    # Methods of torchtrace

    def Sum(self) -> tracer:
        """Return the sum of all elements, as a tensor of one element."""
        from torcheer.autograd import nn

        return nn.Sum()(self)  # type: ignore[no-any-return]

    def View(self, *shape: Any) -> tracer:
        """Reshape the tensor."""
        from torcheer.autograd import nn

        return nn.View(*shape)(self)  # type: ignore[no-any-return]

    def Gather(self, index: Any) -> tracer:
        """Return the entry in column `index[i]` of each row i: (N, M) becomes (N, 1)."""
        from torcheer.autograd import nn

        return nn.Gather_last(index)(self)  # type: ignore[no-any-return]

    base_Sum, base_View, base_Gather = Sum, View, Gather

    def ask_grad(self) -> bool:
        """True if `requires_grad_()` was called on it."""
        return self._requires_grad

    def before(self) -> Any:
        """Return the operator that made it; None for one that nothing has made."""
        return self._last_node

    def store(self, node: Any) -> None:
        """Set the operator that made it."""
        self._last_node = node

    def end(self) -> tracer:
        """Mark it as the end of a chain, for `is_leaf()`."""
        self._ends_chain = True
        return self

    @property
    def is_leaf(self) -> Any:  # type: ignore[override]
        """True if no operation made it; `is_leaf()` is torchtrace's, True for what a loss or a sum returned."""
        answer = LeafAnswer(node_of(self) is None)
        answer.ends_chain = self._ends_chain or getattr(self._last_node, "ends_chain", False)
        return answer

    def from_Tracer(self, old_Tracer: tracer) -> tracer:
        """Become another tracer: its numbers, and what made them."""
        if not isinstance(old_Tracer, tracer):
            raise BadArgument(f"from_Tracer takes a tracer, not {type(old_Tracer).__name__}; tracer(…) makes one")
        with DisableTorchFunction():
            self.data = old_Tracer.data
        self._requires_grad, self._last_node = old_Tracer._requires_grad, old_Tracer._last_node
        self._ends_chain = old_Tracer._ends_chain
        if (node := node_of(old_Tracer)) is not None:
            self._torcheer, node.tensor = node, weakref.ref(self)
        return self

    # Torch's autograd API

    def backward(  # type: ignore[override]
        self, show: Any = False, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
        inputs: Any = None,
    ) -> None:  # fmt: skip
        """Run the backward pass from this tensor; `show` prints every operation on the way."""
        if isinstance(show, Tensor):  # torch's first argument is the gradient
            show, gradient = False, show
        backward(self, gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs, show=show)

    @property
    def requires_grad(self) -> bool:
        """True if it requires a gradient, or was computed from something that does."""
        return self._requires_grad or (_is_called_by_user() and node_of(self) is not None)

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> tracer:
        """Set whether this leaf requires a gradient."""
        if node_of(self) is None:
            self._requires_grad = requires_grad
        elif not requires_grad:
            raise BadArgument(
                "requires_grad_(False): this tensor was computed from others; detach() gives it without its past"
            )
        return self

    # Copying, pickling, formatting

    def __deepcopy__(self, memo: dict[int, Any]) -> tracer:
        if id(self) not in memo:
            memo[id(self)] = copy = type(self)(as_plain(self).clone(), requires_grad=self._requires_grad)
            copy.name, copy.grad = self.name, None if self.grad is None else self.grad.clone()
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self), as_plain(self), self._requires_grad, self.name)

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if form and not self.dim() else super().__format__(form)


def _rebuild(kind: type[tracer], plain: Tensor, requires_grad: bool, name: str | None) -> tracer:
    """Unpickle a tracer."""
    rebuilt = kind(plain, requires_grad=requires_grad)
    rebuilt.name = name
    return rebuilt


def as_plain(tensor: Tensor) -> Tensor:
    """Return the values as a plain torch.Tensor."""
    with DisableTorchFunction():
        return tensor.detach().as_subclass(Tensor)
