"""Gradients of saved values, one entry per backward call."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from torcheer.capture.torch_state import GRADIENTS, DisableTorchFunction, backward_call, require
from torcheer.capture.values.swapped_tensors import swap_entries
from torcheer.errors import BadArgument


class GradientLog:
    """Collects gradients through tensor hooks and keeps them until it is freed."""

    def __init__(self) -> None:
        require(GRADIENTS)
        self._calls: list[int] = []  # autograd's graph task id of each backward call, in order
        self._gradients: dict[tuple[int, int], Tensor] = {}  # (backward call, ref or id) -> gradient
        self._handles: dict[int, Any] = {}  # ref or id -> the hook
        weakref.finalize(self, _remove, self._handles)

    def hook(self, tensor: Tensor, key: int) -> None:
        """Hook a tensor to keep its gradients."""
        if not tensor.requires_grad or key in self._handles or is_lazy(tensor):  # a lazy module's has no values yet
            return
        log = weakref.ref(self)

        def keep(gradient: Tensor | None) -> None:
            gradient_log = log()
            if gradient_log is not None:
                gradient_log._keep(key, gradient)

        self._handles[key] = tensor.register_hook(keep)

    def hook_again(self, tensor: Tensor, key: int) -> None:
        """Move the hook of a tensor behind its others, which may change the gradient."""
        if key in self._handles:
            self._handles.pop(key).remove()
            self.hook(tensor, key)

    def unhook(self, tensor: Tensor) -> list[int]:
        """Take the hooks off a tensor, whose contents torch is about to swap; return their keys.

        torch swaps all but the tensor's list of hooks, to which a later hook would be added in vain.
        """
        hooks = tensor._backward_hooks
        keys = [key for key, handle in self._handles.items() if hooks is not None and handle.hooks_dict_ref() is hooks]
        for key in keys:
            self._handles.pop(key).remove()
        if keys and not hooks:
            tensor._backward_hooks = None
        return keys

    def hook_all(self, tensor: Tensor, keys: list[int]) -> None:
        """Hook a tensor for each of these keys."""
        for key in keys:
            self.hook(tensor, key)

    def swap(self, first: int, second: int) -> None:
        """Swap the gradients of two stored tensors, by their ids: their contents were swapped."""
        for call in self._calls:
            swap_entries(self._gradients, (call, -first), (call, -second))

    def _keep(self, key: int, gradient: Tensor | None) -> None:
        if gradient is None:  # autograd's zero: no gradient flows back through an unused output
            return
        call = backward_call()
        if call not in self._calls:
            self._calls.append(call)
        with DisableTorchFunction():  # backward may run inside a recording
            self._gradients[call, key] = gradient.detach()

    def of(self, key: int) -> list[Tensor | None]:
        """Return one gradient per backward call, None if it missed the tensor; [] if all did."""
        gradients = [self._gradients.get((call, key)) for call in self._calls]
        return gradients if any(gradient is not None for gradient in gradients) else []


def _remove(handles: dict[int, Any]) -> None:
    for handle in handles.values():
        handle.remove()


def backward(history: Any, loss: Any = None, *, gradient: Any = None, **options: Any) -> Any:
    """Run backward from `loss` (default: the sum of the first output); return the history."""
    log = getattr(history.trace, "gradient_log", None)
    if log is None:
        raise BadArgument("this history keeps no gradients: capture with save_gradients=True")
    if loss is None:
        loss = history["output_1"].tensor_contents.sum()
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        reason = "does not require grad" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
        raise BadArgument(f"backward needs a tensor made from the model's output with grad enabled; this loss {reason}")
    if loss.numel() != 1 and gradient is None:
        raise BadArgument(
            f"backward needs a single number, this loss has shape {tuple(loss.shape)}; take .sum() or .mean()"
        )
    loss.backward(gradient, **options)
    return history
