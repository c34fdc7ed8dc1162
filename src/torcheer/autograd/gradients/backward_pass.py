"""The backward pass: each operation's rule once, newest first; sums where paths meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import NOTHING, VALUE
from torcheer.autograd.tape.nodes import CHANGED_TEXT, FREED_TEXT, Leaf, Node, free, node_of, parents_of
from torcheer.errors import GraphFreed, RuleMistake, SavedValueChanged
from torcheer.terminal import met_difference

Starts = list[tuple[Any, Tensor]]
Watch = Callable[[Node, Tensor, list[tuple[Any, Tensor]]], object]


def run_backward(
    starts: Starts, *, only: list[Any] | None = None, create_graph: bool, keep: bool, watch: Watch | None = None
) -> dict[int, Tensor]:
    """Propagate gradients back from `starts` and add them to `.grad` of everything on the way.

    With `only`, a list of nodes and leaves, no `.grad` is changed: the gradients of those are returned by id, and
    operations that do not lead to them are skipped.
    """
    sums: dict[int, Tensor] = {}  # id of a node or leaf -> the sum of its gradients so far
    leaves: dict[int, Leaf] = {}
    waiting: list[Any] = []
    wanted = None if only is None else {id(target) for target in only}
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
        for hook in tuple(place.hooks):  # a hook may remove itself
            changed = hook(gradient)
            gradient, place.fresh = gradient if changed is None else changed, False  # the hook may hold it
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
            alone = part is not gradient and all(part is not earlier for _, earlier in passed[:number])
            add(parent, part, alone and trusted)
        if watch is not None:
            watch(place, gradient, passed)
        if not keep:
            free(place)
    return arrived


def apply_rule(node: Node, gradient: Tensor, create_graph: bool = False) -> list[tuple[Any, Tensor]]:
    """Apply a node's rule to the gradient of its result; return the gradients of its arguments."""
    rule = node.rule
    if rule is None:
        raise GraphFreed(FREED_TEXT)
    for tensor, version in node.versions:
        if tensor._version != version:
            raise SavedValueChanged(CHANGED_TEXT.format(rule.name, tuple(tensor.shape)))
    values = [_value(rule, arg, rule.reads[place], create_graph) for place, arg in enumerate(node.args)]
    if rule.reads_result:
        values.insert(0, _value(rule, node, VALUE, create_graph))
    parts = rule.function(gradient, *values, **node.kwargs)
    parts = parts if parts.__class__ is tuple else (parts,)
    if any(True for _ in parents_of(node.args[len(parts) : len(rule.parameters)])):
        raise RuleMistake(
            f"the rule of {rule.name} returned {len(parts)} of {len(node.args)} gradients; None says none"
        )
    return list(_match_arguments(node, node.args, parts))


def _value(rule: Any, arg: Any, reads: int, create_graph: bool) -> Any:
    """Return what a rule receives: the node if it reads only its shape, else the saved value."""
    if arg.__class__ is Node and reads is not NOTHING:
        value = arg.value
        if value is None:  # freed by another backward, or a factor whose partner needs no gradient
            result = arg.tensor()
            if arg.rule is None and (result is None or result._version != arg.version):
                raise GraphFreed(FREED_TEXT)
            if result is None:
                return arg
            value = result.detach()
        elif value._version != arg.value_version:
            raise SavedValueChanged(CHANGED_TEXT.format(rule.name, tuple(value.shape)))
        if not create_graph:
            return value
        alias = value.detach()  # connects the graph of the gradient to the node of the value
        alias._torcheer = arg
        return alias
    if arg.__class__ is list or arg.__class__ is tuple:
        return arg.__class__([_value(rule, item, reads, create_graph) for item in arg])
    return arg


def _match_arguments(node: Node, args: Any, parts: Iterable[Any]) -> Iterator[tuple[Any, Tensor]]:
    """Pair a rule's gradients with its arguments; a lambda is only called if needed."""
    for arg, part in zip(args, parts):
        if part is None:
            continue
        if arg.__class__ is list or arg.__class__ is tuple:
            yield from _match_arguments(node, arg, part)
        elif arg.__class__ is Node or (isinstance(arg, Tensor) and arg.requires_grad):
            part = part() if callable(part) and not isinstance(part, Tensor) else part
            if not hasattr(part, "shape"):
                raise RuleMistake(f"the rule of {node.rule.name} returned {type(part).__name__} where a tensor belongs")
            yield arg, part


def sum_to(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Sum a gradient to the shape of a value that was broadcast: the sum over its copies."""
    if gradient.dim() < len(shape):
        gradient = gradient.reshape((1,) * (len(shape) - gradient.dim()) + gradient.shape)
    extra = gradient.dim() - len(shape)
    broadcast = [
        place + extra
        for place, size in enumerate(shape)
        if size == 1 and gradient.shape[place + extra : place + extra + 1] != (1,)
    ]
    if extra > 0 or broadcast:
        gradient = gradient.sum([*range(extra), *broadcast], keepdim=True)
    if gradient.numel() != shape.numel():
        raise RuleMistake(
            f"a gradient of shape {tuple(gradient.shape)} cannot belong to a value of shape {tuple(shape)}"
        )
    return gradient.reshape(shape)


def reachable_nodes(starts: Iterable[Any]) -> list[Node]:
    """Return every node that gradients from `starts` can reach, newest first."""
    by_order: dict[int, Node] = {}
    stack = [start for start in starts if start.__class__ is Node]
    while stack:
        node = stack.pop()
        if node.order not in by_order:
            by_order[node.order] = node
            stack += [parent for parent in parents_of(node.args) if parent.__class__ is Node]
    return [by_order[order] for order in sorted(by_order, reverse=True)]


def leading_to(wanted: set[int], starts: list[Any]) -> set[int]:
    """Return the ids on a path from `starts` to one of `wanted`, those included."""
    useful = set(wanted)
    for node in reversed(reachable_nodes(starts)):
        if not useful.isdisjoint(map(id, parents_of(node.args))):
            useful.add(id(node))
    return useful


def _deliver(place: Any, gradient: Tensor, create_graph: bool) -> None:
    """Store a gradient in `.grad`, unlike torch for every live result, not only for leaves."""
    leaf = place.__class__ is Leaf
    tensor = place.tensor if leaf else place.tensor()
    if tensor is None:
        return
    own = gradient if place.fresh else gradient.clone()  # a copy unless no one else holds it
    accumulate(tensor, own, leaf and not create_graph)
    if leaf:
        for hook in (*(tensor._post_accumulate_grad_hooks or {}).values(), *getattr(tensor, "_torcheer_after", ())):
            hook(tensor)


def accumulate(tensor: Tensor, gradient: Tensor, in_place: bool) -> None:
    """Add to `.grad`: a second backward adds to the first, as for a batch cut into pieces."""
    before = tensor.grad
    if before is not None and hasattr(tensor, "is_tracer"):
        met_difference("torchtrace", "second backward")
    if before is not None and in_place and node_of(before) is None:
        before.add_(gradient)  # in place, as the user may hold it
        return
    gradient = gradient if before is None else before + gradient
    tensor.grad = type(tensor).wrap(gradient) if node_of(gradient) and hasattr(tensor, "wrap") else gradient
