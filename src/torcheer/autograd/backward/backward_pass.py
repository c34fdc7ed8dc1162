"""The backward pass: every operation that matters, newest first; its rule once; sums where gradients meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import NOTHING, VALUE
from torcheer.autograd.tape.nodes import CHANGED, GONE, Leaf, Node, free, node_of, parents_of
from torcheer.errors import GraphFreed, RuleMistake, SavedValueChanged

Starts = list[tuple[Any, Tensor]]
Watch = Callable[[Node, Tensor, list[tuple[Any, Tensor]]], object]


def run_backward(
    starts: Starts, *, only: list[Any] | None = None, create_graph: bool, keep: bool, watch: Watch | None = None
) -> dict[int, Tensor]:
    """Send gradients back from `starts` and add them to `.grad` of everything on the way.

    With `only`, a list of nodes and leaves, nothing is added anywhere: what reached those is returned by id, and
    whatever does not lead to them is left out.
    """
    sums: dict[int, Tensor] = {}  # id of a node or leaf -> its gradient so far
    leaves: dict[int, Leaf] = {}
    waiting: list[Any] = []
    wanted = None if only is None else {id(one) for one in only}
    useful = None if wanted is None else leading_to(wanted, [start for start, _ in starts])
    arrived: dict[int, Tensor] = {}

    def add(target: Any, gradient: Tensor, fresh: bool) -> None:
        if useful is not None and id(target) not in useful:
            return
        place = target if target.__class__ is Node else leaves.setdefault(id(target), Leaf(target))
        if gradient.shape != place.shape:
            gradient = sum_to(gradient, place.shape)
        if gradient.dtype != place.dtype:
            gradient = gradient.to(place.dtype)
        key = id(place)
        if key in sums:
            sums[key] = sums[key] + gradient
            place.fresh = True
        else:
            sums[key] = gradient
            place.fresh = fresh and gradient._base is None
            heappush(waiting, place)

    for start, gradient in starts:
        add(start, gradient, False)
    while waiting:
        place = heappop(waiting)
        gradient = sums.pop(id(place))
        for hook in tuple(place.hooks):  # one may take itself away
            changed = hook(gradient)
            gradient, place.fresh = gradient if changed is None else changed, False  # it may hold on to it
        target = place if place.__class__ is Node else place.tensor
        if wanted is None:
            _deliver(place, gradient, create_graph)
        elif id(target) in wanted:
            arrived[id(target)] = gradient
        if target is not place:
            continue
        trusted = place.rule is not None and place.rule.trusted
        passed = apply_rule(place, gradient, create_graph)
        for number, (parent, part) in enumerate(passed):
            alone = part is not gradient and all(part is not other for _, other in passed[:number])
            add(parent, part, alone and trusted)
        if watch is not None:
            watch(place, gradient, passed)
        if not keep:
            free(place)
    return arrived


def apply_rule(node: Node, gradient: Tensor, create_graph: bool = False) -> list[tuple[Any, Tensor]]:
    """Ask a node's rule what the gradient of its result means for what it read."""
    rule = node.rule
    if rule is None:
        raise GraphFreed(GONE)
    for tensor, version in node.versions:
        if tensor._version != version:
            raise SavedValueChanged(CHANGED.format(rule.name, tuple(tensor.shape)))
    values = [_value(rule, arg, rule.reads[place], create_graph) for place, arg in enumerate(node.args)]
    if rule.reads_result:
        values.insert(0, _value(rule, node, VALUE, create_graph))
    found = rule.function(gradient, *values, **node.kwargs)
    found = found if found.__class__ is tuple else (found,)
    if any(True for _ in parents_of(node.args[len(found) : len(rule.parameters)])):
        raise RuleMistake(
            f"the rule of {rule.name} returned {len(found)} of {len(node.args)} gradients; None says none"
        )
    return list(_matched(node, node.args, found))


def _value(rule: Any, arg: Any, reads: int, create_graph: bool) -> Any:
    """What a rule is given for an argument: a node stands for its shape, or for its value where that is read."""
    if arg.__class__ is Node and reads is not NOTHING:
        value = arg.value
        if value is None:  # let go by a backward from elsewhere, or a factor that no other argument asks about
            held = arg.tensor()
            if arg.rule is None and (held is None or held._version != arg.version):
                raise GraphFreed(GONE)
            if held is None:
                return arg
            value = held.detach()
        elif value._version != arg.value_version:
            raise SavedValueChanged(CHANGED.format(rule.name, tuple(value.shape)))
        if not create_graph:
            return value
        alias = value.detach()  # so that the gradient's own graph leads on to where the value came from
        alias._torcheer = arg
        return alias
    if arg.__class__ is list or arg.__class__ is tuple:
        return arg.__class__([_value(rule, one, reads, create_graph) for one in arg])
    return arg


def _matched(node: Node, args: Any, found: Iterable[Any]) -> Iterator[tuple[Any, Tensor]]:
    """Pair what a rule returned with the arguments; a lambda is only asked where a gradient is wanted."""
    for arg, part in zip(args, found):
        if part is None:
            continue
        if arg.__class__ is list or arg.__class__ is tuple:
            yield from _matched(node, arg, part)
        elif arg.__class__ is Node or (isinstance(arg, Tensor) and arg.requires_grad):
            part = part() if callable(part) and not isinstance(part, Tensor) else part
            if not hasattr(part, "shape"):
                raise RuleMistake(f"the rule of {node.rule.name} returned {type(part).__name__} where a tensor belongs")
            yield arg, part


def sum_to(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Broadcasting copied a value; the gradient of a copy is the sum over the copies."""
    if gradient.dim() < len(shape):
        gradient = gradient.reshape((1,) * (len(shape) - gradient.dim()) + gradient.shape)
    extra = gradient.dim() - len(shape)
    stretched = [
        place + extra
        for place, size in enumerate(shape)
        if size == 1 and gradient.shape[place + extra : place + extra + 1] != (1,)
    ]
    if extra > 0 or stretched:
        gradient = gradient.sum([*range(extra), *stretched], keepdim=True)
    if gradient.numel() != shape.numel():
        raise RuleMistake(
            f"a gradient of shape {tuple(gradient.shape)} cannot belong to a value of shape {tuple(shape)}"
        )
    return gradient.reshape(shape)


def reached(starts: Iterable[Any]) -> list[Node]:
    """Every node that gradients from `starts` can come to, newest first."""
    found: dict[int, Node] = {}
    stack = [start for start in starts if start.__class__ is Node]
    while stack:
        node = stack.pop()
        if node.order not in found:
            found[node.order] = node
            stack += [parent for parent in parents_of(node.args) if parent.__class__ is Node]
    return [found[order] for order in sorted(found, reverse=True)]


def leading_to(wanted: set[int], starts: list[Any]) -> set[int]:
    """The nodes and leaves from which one of `wanted` can be reached, those included."""
    useful = set(wanted)
    for node in reversed(reached(starts)):
        if not useful.isdisjoint(map(id, parents_of(node.args))):
            useful.add(id(node))
    return useful


def _deliver(place: Any, gradient: Tensor, create_graph: bool) -> None:
    """Unlike torch, every result that someone still holds gets its gradient, not only the leaves."""
    tensor = place.tensor if place.__class__ is Leaf else place.tensor()
    if tensor is None:
        return
    leaf = place.__class__ is Leaf
    accumulate(tensor, gradient if place.fresh else gradient.clone(), leaf and not create_graph)  # nobody else holds it
    if leaf:
        for hook in (*(tensor._post_accumulate_grad_hooks or {}).values(), *getattr(tensor, "_torcheer_after", ())):
            hook(tensor)


def accumulate(tensor: Tensor, gradient: Tensor, in_place: bool) -> None:
    """A second backward adds to the first: that is what lets a batch be cut into pieces."""
    before = tensor.grad
    if before is not None and in_place and node_of(before) is None:
        before.add_(gradient)  # where it is, as someone may hold it
        return
    gradient = gradient if before is None else before + gradient
    tensor.grad = type(tensor).wrap(gradient) if node_of(gradient) and hasattr(tensor, "wrap") else gradient
