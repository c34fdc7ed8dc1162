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

from torcheer.autograd.rules.indexing import put_at
from torcheer.autograd.rules.rule_table import RULES
from torcheer.autograd.tape.function_plans import Plan, plan_of
from torcheer.autograd.tape.nodes import Node, node_of, shows_written
from torcheer.autograd.tape.torch_grad_off import quietly
from torcheer.errors import LeafWritten

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


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
    old = node_now(target)
    given = target if old is not None else quietly(target.clone, (), {})  # or it would hold itself
    if plan.name in WRITTEN:
        new = tape.inside(plan.name, plan.functional, (given, *rest), kwargs, frame)
    else:
        new = tape.run(plan_of(plan.functional), (given, *rest), kwargs, frame)
    if new.dtype != target.dtype:
        new = tape.run(plan_of(Tensor.to), (new, target.dtype), {}, frame)
    if new.shape != target.shape:
        new = tape.run(plan_of(Tensor.expand), (new, target.shape), {}, frame)
    root = target if base is None else base
    protect(node_of(root), old)
    quietly(target.copy_, (new,), {})
    made = node_of(new)
    if made is None:  # zero_(), fill_(): nothing of the past is left
        made = Node(RULES["clone"], Tensor.clone, (new,), {}, [], target)
    _settle(target, made, old)
    if base is not None:
        whole = node_of(base) or base.detach()
        node = Node(RULES["put"], torch.Tensor.put, (whole, positions(target, base), made), {}, [], base)
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
    target, old = args[0], node_of(args[0])
    node = node_of(tape.run(plan_of(plan.functional), args, kwargs, frame))
    sound = [one for one in _sharing(old) if one.value._version == one.value_version]
    quietly(plan.function, args, kwargs)
    for kept in sound:
        kept.value_version = kept.value._version  # torch counts it as a write
    if old is not None:
        old.tensor = nobody
    if node is not None:
        node.tensor, node.version = weakref.ref(target), target._version
        target._torcheer = node
    return target


def _settle(tensor: Tensor, node: Node, old: Node | None) -> None:
    """A tensor goes on as the result of a node."""
    node.tensor, node.version, node.inplace = weakref.ref(tensor), tensor._version, True
    if old is not None and old is not node:
        old.tensor = nobody  # the tensor is another result now, and has another gradient
    if old is not None and old.family is not None:
        node.family = old.family
        node.family.append(weakref.ref(node))
    tensor._torcheer = node  # type: ignore[attr-defined]


def protect(*nodes: Node | None) -> None:
    """Copy what rules will read of memory that is about to be written to."""
    for start in nodes:
        for node in _sharing(start):
            sound = node.value._version == node.value_version
            node.value = node.value.clone()
            node.value_version = 0 if sound else -1  # changed where nothing was recorded: backward will say so


def nobody() -> None:
    """In place of a weak reference: no tensor is this result any more."""


def _sharing(start: Node | None) -> list[Node]:
    """The nodes that keep a value in the memory of one's result."""
    family = [] if start is None else [start] if start.family is None else [one() for one in start.family]
    return [node for node in family if node is not None and node.value is not None]


def refreshed(tensor: Tensor, node: Node | None) -> Node:
    """The node of a tensor whose memory was written to through another name."""
    base = tensor._base
    written = node_of(base) if base is not None else None
    if base is None or written is None or not written.inplace:
        assert node is not None
        node.version = tensor._version  # written under no_grad: the value changed, its past did not
        return node
    if node is not None:
        node.tensor = nobody
    fresh = Node(RULES["take"], torch.take, (written, positions(tensor, base)), {}, [], tensor)
    fresh.scope, fresh.site = written.scope, written.site
    fresh.family = written.family = written.family or [weakref.ref(written)]
    fresh.family.append(weakref.ref(fresh))
    tensor._torcheer = fresh  # type: ignore[attr-defined]
    return fresh


def join_family(node: Node, parent: Node) -> None:
    """Remember that a view shares memory with what it looks into."""
    family = parent.family
    if family is None:
        family = parent.family = [weakref.ref(parent)]
    elif len(family) >= 32 and not len(family) & (len(family) - 1):  # at 32, 64, 128, …
        family[:] = [one for one in family if one() is not None]
    node.family = family
    family.append(weakref.ref(node))


def node_now(tensor: Tensor) -> Node | None:
    """The node of a tensor as it is now, where it shows something that has been written to since."""
    node = node_of(tensor)
    if (node is None and shows_written(tensor)) or (node is not None and tensor._version != node.version):
        return refreshed(tensor, node)
    return node


def positions(view: Tensor, base: Tensor) -> Tensor:
    """Where each element of a view stands in what it looks into, counted row by row."""
    places = torch.empty_strided(base.shape, base.stride(), dtype=torch.int64, device=base.device)
    quietly(places.copy_, (torch.arange(base.numel(), device=base.device).view(base.shape),), {})
    return places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
