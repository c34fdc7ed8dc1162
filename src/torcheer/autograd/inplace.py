"""Writing in place, understood as making something new.

`x += 1` becomes: the result of `x + 1` is recorded, then written into x's memory, and x goes on as that result. Values
that some rule will read are copied before their memory is written to. Where x is a view, what it looks into becomes
"the old one with this piece put back"; other views of it are asked for again when they are next read.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.nodes import Node, node_of
from torcheer.autograd.plans import Plan, plan_of
from torcheer.autograd.quiet import quietly
from torcheer.autograd.rules.indexing import put_at
from torcheer.autograd.rules.table import RULES
from torcheer.errors import LeafWritten

if TYPE_CHECKING:
    from torcheer.autograd.tape import Tape


def write(tape: Tape, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
    """Run a function that writes to its first argument."""
    target, rest = args[0], args[1:]
    base = target._base
    for tensor in (target, base):
        if tensor is not None and tensor.requires_grad:
            raise LeafWritten(
                f"{plan.where} would overwrite a tensor of shape {tuple(tensor.shape)} that asked for a gradient, and "
                f"there would be nothing left to have the gradient of. Write x = x + … instead of x += …, or wrap the "
                f"change in torch.no_grad() if it is an update that needs no gradient"
            )
    if plan_of(plan.functional).view:
        return _turn(tape, plan, args, kwargs, frame)
    if plan.name in WRITTEN:
        new = tape.inside(plan.name, plan.functional, (target, *rest), kwargs, frame)
    else:
        new = tape.run(plan_of(plan.functional), (target, *rest), kwargs, frame)
    if new.dtype != target.dtype:
        new = tape.run(plan_of(Tensor.to), (new, target.dtype), {}, frame)
    if new.shape != target.shape:
        new = tape.run(plan_of(Tensor.expand), (new, target.shape), {}, frame)
    old = node_of(target)
    root = target if base is None else base
    protect(node_of(root), old)
    quietly(target.copy_, (new,), {})
    made = node_of(new)
    if made is None:  # zero_(), fill_(): nothing of the past is left
        made = Node(RULES["clone"], Tensor.clone, (new,), {}, [], target)
    _settle(target, made, old)
    if base is not None:
        node = Node(
            RULES["put"], torch.Tensor.put, (node_of(base) or base, positions(target, base), made), {}, [], base
        )
        made.value = target.detach() if made.value is None else made.value
        node.scope, node.site = made.scope, made.site
        _settle(base, node, node_of(base))
        made.version = target._version
    return target


def _copied(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.device, x.dtype).expand(x.shape)


def _filled(x: Tensor, value: Any) -> Tensor:
    return value.to(x.dtype).expand(x.shape) if isinstance(value, Tensor) else torch.full_like(x, value)


def _drawn(name: str) -> Any:
    def draw(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return getattr(torch.empty_like(x.detach()), name)(*args, **kwargs)  # type: ignore[no-any-return]

    return draw


# What is written by functions that have no other name for not writing in place.
WRITTEN: dict[str, Any] = {
    "setitem_": put_at,
    "zero_": torch.zeros_like,
    "fill_": _filled,
    "copy_": _copied,
    **{name: _drawn(name) for name in ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_")},
}


def _turn(tape: Tape, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
    """transpose_(), unsqueeze_(): nothing is written, the same memory is only counted another way."""
    target, node = args[0], node_of(tape.run(plan_of(plan.functional), args, kwargs, frame))
    quietly(plan.function, args, kwargs)
    if node is not None:
        node.tensor, node.version = weakref.ref(target), target._version
        target._torcheer = node
    return target


def _settle(tensor: Tensor, node: Node, old: Node | None) -> None:
    """A tensor goes on as the result of a node."""
    node.tensor, node.version, node.inplace = weakref.ref(tensor), tensor._version, True
    if old is not None and old.family is not None:
        node.family = old.family
        node.family.append(weakref.ref(node))
    tensor._torcheer = node  # type: ignore[attr-defined]


def protect(*nodes: Node | None) -> None:
    """Copy what rules will read of memory that is about to be written to."""
    for start in nodes:
        if start is None:
            continue
        for reference in start.family or [weakref.ref(start)]:
            node = reference()
            if node is not None and node.value is not None:
                node.value = node.value.clone()


def refreshed(tensor: Tensor, node: Node | None) -> Node:
    """The node of a tensor whose memory was written to through another name."""
    base = tensor._base
    written = node_of(base) if base is not None else None
    if base is None or written is None or not written.inplace:
        assert node is not None
        node.version = tensor._version  # written under no_grad: the value changed, its past did not
        return node
    fresh = Node(RULES["take"], torch.take, (written, positions(tensor, base)), {}, [], tensor)
    fresh.scope, fresh.site = written.scope, written.site
    fresh.family = written.family = written.family or [weakref.ref(written)]
    fresh.family.append(weakref.ref(fresh))
    tensor._torcheer = fresh  # type: ignore[attr-defined]
    return fresh


def join_family(node: Node, parent: Node) -> None:
    """Remember that a view shares memory with what it looks into."""
    if parent.family is None:
        parent.family = [weakref.ref(parent)]
    node.family = parent.family
    node.family.append(weakref.ref(node))


def positions(view: Tensor, base: Tensor) -> Tensor:
    """Where each element of a view stands in what it looks into, counted row by row."""
    places = torch.empty_like(base, dtype=torch.int64)  # of the same strides
    quietly(places.copy_, (torch.arange(base.numel(), device=base.device).view(base.shape),), {})
    return places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
