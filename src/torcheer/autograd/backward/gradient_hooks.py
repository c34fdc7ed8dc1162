"""Hooks: functions of the user's that are asked while gradients pass."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.autograd.tape.inplace_writes import node_now
from torcheer.autograd.tape.nodes import Node, node_of
from torcheer.errors import NotTraced

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


class Handle:
    """What `register_hook` returns."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """Take the hook away again."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def register_hook(tape: Tape, tensor: Tensor, hook: Any) -> Any:
    """Ask `hook` with the gradient of a tensor; what it returns goes on in its place."""
    place = node_now(tensor)
    if place is not None:
        return _added(place, hook)
    if not tensor.requires_grad:
        raise NotTraced("register_hook: no gradient will come to this tensor")
    if not hasattr(tensor, "wrap"):
        return tensor.register_hook(hook)  # a leaf keeps it as ever, in and after the block
    hooks = tensor.__dict__.setdefault("_torcheer_hooks", [])
    hooks.append(hook)
    return Handle(hooks, hook)


def register_post_accumulate_grad_hook(tape: Tape, tensor: Tensor, hook: Any) -> Any:
    """Call `hook(tensor)` when its `.grad` is complete."""
    if not hasattr(tensor, "wrap"):
        return tensor.register_post_accumulate_grad_hook(hook)
    hooks = tensor.__dict__.setdefault("_torcheer_after", [])
    hooks.append(hook)
    return Handle(hooks, hook)


def _added(node: Node, hook: Any) -> Handle:
    node.hooks = node.hooks or []
    node.hooks.append(hook)
    return Handle(node.hooks, hook)


def grad_fn(tape: Tape, tensor: Tensor, *_: Any) -> GradFn | None:
    """What stands where torch has its own `grad_fn`: nn.Module's backward hooks hang themselves on it."""
    node = node_of(tensor)
    return None if node is None else GradFn(node)


class GradFn:
    """A node, as hooks see it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _refuse_several(self) -> None:
        if self._node.rule is not None and self._node.rule.name.endswith("]"):
            raise NotTraced(
                "a backward hook of a module with several input or output tensors: hook the tensors themselves "
                "with register_hook"
            )

    def name(self) -> str:
        """The operation's name, as torch writes such names."""
        return f"{self._node.rule.name.partition('[')[0]}Backward" if self._node.rule is not None else "freed"

    def __repr__(self) -> str:
        return f"<{self.name()} {tuple(self._node.shape)}, recorded by torcheer>"

    def register_prehook(self, hook: Any) -> Handle:
        """Ask `hook` with the gradients that arrive; what it returns goes on in their place."""
        self._refuse_several()

        def ask(gradient: Tensor) -> Tensor | None:
            found = hook((gradient,))
            return None if found is None else found[0]

        return _added(self._node, ask)

    def register_hook(self, hook: Any) -> Handle:
        """Ask `hook` with what the rule made of the gradients; what it returns goes on in their place."""
        self._refuse_several()
        self._node.rule = rule = copy.copy(self._node.rule)
        before, asked = rule.function, [hook]

        def ask(g: Tensor, *args: Any, **kwargs: Any) -> Any:
            made = before(g, *args, **kwargs)
            made = tuple(one() if callable(one) else one for one in (made if isinstance(made, tuple) else (made,)))
            found = asked[0](made, (g,)) if asked else None
            return made if found is None else found

        rule.function = ask
        return Handle(asked, hook)
