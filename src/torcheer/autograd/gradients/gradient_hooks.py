"""Hooks: user functions that are called with gradients during the backward pass."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.autograd.tape.inplace_writes import current_node
from torcheer.autograd.tape.nodes import Node, node_of
from torcheer.errors import NotTraced

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


class HookHandle:
    """Handle of a registered hook, to remove it."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """Remove the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def register_hook(tape: Tape, tensor: Tensor, hook: Any) -> Any:
    """Call `hook` with the gradient of a tensor; its return value, if any, replaces it."""
    place = current_node(tensor)
    if place is not None:
        return _add_hook(place, hook)
    if not tensor.requires_grad:
        raise NotTraced("register_hook: no gradient will come to this tensor")
    if not hasattr(tensor, "wrap"):
        return tensor.register_hook(hook)  # torch stores the hooks of a leaf, also after the block
    hooks = tensor.__dict__.setdefault("_torcheer_hooks", [])
    hooks.append(hook)
    return HookHandle(hooks, hook)


def register_post_accumulate_grad_hook(tape: Tape, tensor: Tensor, hook: Any) -> Any:
    """Call `hook(tensor)` when its `.grad` is complete."""
    if not hasattr(tensor, "wrap"):
        return tensor.register_post_accumulate_grad_hook(hook)
    hooks = tensor.__dict__.setdefault("_torcheer_after", [])
    hooks.append(hook)
    return HookHandle(hooks, hook)


def _add_hook(node: Node, hook: Any) -> HookHandle:
    node.hooks = node.hooks or []
    node.hooks.append(hook)
    return HookHandle(node.hooks, hook)


def grad_fn(tape: Tape, tensor: Tensor, *_: Any) -> GradFn | None:
    """Return our replacement for torch's `grad_fn`, for the backward hooks of nn.Module."""
    node = node_of(tensor)
    return None if node is None else GradFn(node)


class GradFn:
    """The interface of torch's `grad_fn`, over a node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _refuse_several(self) -> None:
        if self._node.rule is not None and self._node.rule.name.endswith("]"):
            raise NotTraced(
                "a backward hook of a module with several input or output tensors: hook the tensors themselves "
                "with register_hook"
            )

    def name(self) -> str:
        """Return the operation's name in torch's form, such as `mulBackward`."""
        return f"{self._node.rule.name.partition('[')[0]}Backward" if self._node.rule is not None else "freed"

    def __repr__(self) -> str:
        return f"<{self.name()} {tuple(self._node.shape)}, recorded by torcheer>"

    def register_prehook(self, hook: Any) -> HookHandle:
        """Call `hook` with the gradients that arrive; its return value replaces them."""
        self._refuse_several()

        def call_hook(gradient: Tensor) -> Tensor | None:
            replacement = hook((gradient,))
            return None if replacement is None else replacement[0]

        return _add_hook(self._node, call_hook)

    def register_hook(self, hook: Any) -> HookHandle:
        """Call `hook` with the gradients that the rule returned; its return value replaces them."""
        self._refuse_several()
        self._node.rule = rule = copy.copy(self._node.rule)
        original, hooks = rule.function, [hook]

        def call_hook(g: Tensor, *args: Any, **kwargs: Any) -> Any:
            returned = original(g, *args, **kwargs)
            returned = returned if isinstance(returned, tuple) else (returned,)
            gradients = tuple(part() if callable(part) else part for part in returned)
            replacement = hooks[0](gradients, (g,)) if hooks else None
            return gradients if replacement is None else replacement

        rule.function = call_hook
        return HookHandle(hooks, hook)
