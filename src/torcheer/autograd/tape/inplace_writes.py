"""In-place operations, recorded as operations that return a new tensor.

`x += 1` becomes: the result of `x + 1` is recorded, then copied into x's memory, and x gets the node of that result.
Saved values that a rule will read are copied before their memory is overwritten. If x is a view, its base gets a node
for "the old base with this part replaced"; other views of the base get a new node when they are next read.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.rules.indexing import put_at
from torcheer.autograd.rules.rule_table import RULES
from torcheer.autograd.tape.function_plans import FunctionPlan, plan_of
from torcheer.autograd.tape.nodes import Node, node_of, views_written_base
from torcheer.autograd.tape.torch_grad_off import call_without_grad
from torcheer.errors import LeafWritten

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


def write(tape: Tape, plan: FunctionPlan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
    """Run a function that writes to its first argument, and record the write."""
    target, operands = args[0], args[1:]
    base = target._base
    for tensor in (target, base):
        if tensor is not None and tensor.requires_grad:
            raise LeafWritten(
                f"{plan.where} would overwrite a tensor of shape {tuple(tensor.shape)} that asked for a gradient, and "
                f"there would be nothing left to have the gradient of. Write x = x + … instead of x += …, or wrap the "
                f"change in torch.no_grad() if it is an update that needs no gradient"
            )
    if plan_of(plan.functional).view:
        return _change_strides(tape, plan, args, kwargs, frame)
    old = current_node(target)
    source = (
        target if old is not None else call_without_grad(target.clone, (), {})
    )  # a node that held its own result would be a cycle
    if plan.name in OUT_OF_PLACE:
        new = tape.inside(plan.name, plan.functional, (source, *operands), kwargs, frame)
    else:
        new = tape.run(plan_of(plan.functional), (source, *operands), kwargs, frame)
    if new.dtype != target.dtype:
        new = tape.run(plan_of(Tensor.to), (new, target.dtype), {}, frame)
    if new.shape != target.shape:
        new = tape.run(plan_of(Tensor.expand), (new, target.shape), {}, frame)
    root = target if base is None else base
    protect(node_of(root), old)
    call_without_grad(target.copy_, (new,), {})
    new_node = node_of(new)
    if new_node is None:  # zero_(), fill_(): the result does not depend on the old value
        new_node = Node(RULES["clone"], Tensor.clone, (new,), {}, [], target)
    _rebind(target, new_node, old)
    if base is not None:
        old_base = node_of(base) or base.detach()
        node = Node(RULES["put"], torch.Tensor.put, (old_base, positions(target, base), new_node), {}, [], base)
        node.scope, node.site = new_node.scope, new_node.site
        _rebind(base, node, node_of(base))
        new_node.version = target._version
    return target


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.device, x.dtype).expand(x.shape)


def _fill(x: Tensor, value: Any) -> Tensor:
    return value.to(x.dtype).expand(x.shape) if isinstance(value, Tensor) else torch.full_like(x, value)


def _random(name: str) -> Any:
    def draw(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return getattr(torch.empty_like(x.detach()), name)(*args, **kwargs)  # type: ignore[no-any-return]

    return draw


# Out-of-place forms of in-place functions that have none in torch.
OUT_OF_PLACE: dict[str, Any] = {
    "setitem_": put_at,
    "zero_": torch.zeros_like,
    "fill_": _fill,
    "copy_": _copy,
    **{name: _random(name) for name in ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_")},
}


def _change_strides(
    tape: Tape, plan: FunctionPlan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> Any:
    """Run transpose_(), unsqueeze_() and the like: they change shape and strides, not memory."""
    target, old = args[0], node_of(args[0])
    node = node_of(tape.run(plan_of(plan.functional), args, kwargs, frame))
    unchanged = [each for each in _value_holders(old) if each.value._version == each.value_version]
    call_without_grad(plan.function, args, kwargs)
    for holder in unchanged:
        holder.value_version = holder.value._version  # torch counts it as a write
    if old is not None:
        old.tensor = no_tensor
    if node is not None:
        node.tensor, node.version = weakref.ref(target), target._version
        target._torcheer = node
    return target


def _rebind(tensor: Tensor, node: Node, old: Node | None) -> None:
    """Make a tensor the result of `node` instead of `old`."""
    node.tensor, node.version, node.inplace = weakref.ref(tensor), tensor._version, True
    if old is not None and old is not node:
        old.tensor = no_tensor  # the tensor is the result of another node now, with another gradient
    if old is not None and old.family is not None:
        node.family = old.family
        node.family.append(weakref.ref(node))
    tensor._torcheer = node  # type: ignore[attr-defined]


def protect(*nodes: Node | None) -> None:
    """Copy saved values whose memory is about to be overwritten."""
    for start in nodes:
        for node in _value_holders(start):
            is_unchanged = node.value._version == node.value_version
            node.value = node.value.clone()
            node.value_version = 0 if is_unchanged else -1  # changed unrecorded: backward will raise


def no_tensor() -> None:
    """Stand in for a weak reference: no tensor is this node's result any more."""


def _value_holders(start: Node | None) -> list[Node]:
    """Return the nodes that hold a saved value in the memory of a node's result."""
    family = [] if start is None else [start] if start.family is None else [member() for member in start.family]
    return [node for node in family if node is not None and node.value is not None]


def refresh_node(tensor: Tensor, node: Node | None) -> Node:
    """Return the node of a tensor whose memory was written to through another view."""
    base = tensor._base
    written = node_of(base) if base is not None else None
    if base is None or written is None or not written.inplace:
        assert node is not None
        node.version = tensor._version  # written under no_grad: the value changed, its node did not
        return node
    if node is not None:
        node.tensor = no_tensor
    fresh = Node(RULES["take"], torch.take, (written, positions(tensor, base)), {}, [], tensor)
    fresh.scope, fresh.site = written.scope, written.site
    fresh.family = written.family = written.family or [weakref.ref(written)]
    fresh.family.append(weakref.ref(fresh))
    tensor._torcheer = fresh  # type: ignore[attr-defined]
    return fresh


def join_family(node: Node, parent: Node) -> None:
    """Register that a view shares memory with its base."""
    family = parent.family
    if family is None:
        family = parent.family = [weakref.ref(parent)]
    elif len(family) >= 32 and not len(family) & (len(family) - 1):  # at 32, 64, 128, …
        family[:] = [member for member in family if member() is not None]
    node.family = family
    family.append(weakref.ref(node))


def current_node(tensor: Tensor) -> Node | None:
    """Return the node of a tensor, updated if its memory was written to since."""
    node = node_of(tensor)
    if (node is None and views_written_base(tensor)) or (node is not None and tensor._version != node.version):
        return refresh_node(tensor, node)
    return node


def positions(view: Tensor, base: Tensor) -> Tensor:
    """Return the flat index in `base`, counted row by row, of each element of a view."""
    places = torch.empty_strided(base.shape, base.stride(), dtype=torch.int64, device=base.device)
    call_without_grad(places.copy_, (torch.arange(base.numel(), device=base.device).view(base.shape),), {})
    return places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
