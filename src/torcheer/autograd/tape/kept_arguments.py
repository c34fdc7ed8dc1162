"""What a node keeps of its arguments: of a traced tensor the node that made it, of anything else the thing itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Parameter

from torcheer.autograd.rules.rule_table import VALUE, Rule
from torcheer.autograd.tape.inplace_writes import refreshed
from torcheer.autograd.tape.nodes import Node, is_traced, reads_value, shows_written
from torcheer.capture.record.tensor_trees import leaves, snapshot
from torcheer.errors import NotTraced

HIDDEN = (
    "this was computed outside of autograd.record(), or in TorchScript, where no recorder can look; no gradient can go "
    "back through it. Compute it inside the block, use the module it was scripted from, or detach() it"
)


def keep_arguments(rule: Rule, args: Any) -> tuple[list[Any], list[Any], bool]:
    """What to keep, torch's counts of writes to what the rule reads of it, and whether a gradient may come back."""
    kept: list[Any] = []
    versions: list[Any] = []
    traced, reads = False, rule.reads
    for place, arg in enumerate(args):
        kind = arg.__class__
        if kind is Parameter and arg.requires_grad:  # a leaf, always
            if reads[place] is VALUE:
                versions.append((arg, arg._version))
            traced = True
            kept.append(arg)
        elif kind is Tensor or isinstance(arg, Tensor):
            one = keep(arg, reads[place], versions)
            traced = traced or one.__class__ is Node or one is arg
            kept.append(one)
        elif (kind is tuple or kind is list) and leaves(arg):
            kept.append(_keep_all(arg, reads[place], versions))
            traced = traced or any(is_traced(tensor) for tensor in leaves(arg))
        else:
            kept.append(snapshot(arg) if kind is list else _numbers(arg) if kind is slice else arg)
    if traced and rule.partners:
        _keep_partners(rule, args, kept, versions)
    return kept, versions, traced


def keep(tensor: Tensor, reads: int, versions: list[Any]) -> Any:
    """The node that made a tensor, holding its value if that is read; or the tensor itself."""
    node = getattr(tensor, "_torcheer", None)
    if node.__class__ is not Node:
        if not shows_written(tensor):
            if reads is VALUE:
                versions.append((tensor, tensor._version))
            return _asking(tensor) if tensor.requires_grad else _constant(tensor)
        node = refreshed(tensor, None)
    elif tensor._version != node.version:
        node = refreshed(tensor, node)
    if reads is VALUE and node.value is None:
        node.keep(tensor)
    return node


def _asking(tensor: Tensor) -> Tensor:
    if not tensor.is_leaf:
        raise NotTraced(HIDDEN)
    return tensor


def _constant(tensor: Tensor) -> Tensor:
    """Under another name: it asks for no gradient now, whatever it does when backward comes."""
    alias = tensor.detach()
    alias._of = tensor  # type: ignore[attr-defined]
    return alias


def _numbers(part: slice) -> slice:
    """A slice between tensors, as it is now."""
    if not any(isinstance(one, Tensor) for one in (part.start, part.stop, part.step)):
        return part
    return slice(*[int(one) if isinstance(one, Tensor) else one for one in (part.start, part.stop, part.step)])


def _keep_all(arg: Any, reads: int, versions: list[Any]) -> Any:
    kept: list[Any] = []
    for one in arg:
        if isinstance(one, Tensor):
            kept.append(keep(one, reads, versions))
        else:
            kept.append(
                _keep_all(one, reads, versions)
                if one.__class__ in (list, tuple)
                else _numbers(one)
                if one.__class__ is slice
                else one
            )
    return tuple(kept) if arg.__class__ is tuple else kept


def _keep_partners(rule: Rule, args: Any, kept: list[Any], versions: list[Any]) -> None:
    """The values of factors whose partners want a gradient."""
    for place in rule.partners:
        one = kept[place] if place < len(kept) else None
        if isinstance(one, (Node, Tensor)) and reads_value(rule, kept, place):
            if isinstance(one, Tensor):
                versions.append((one, one._version))
            elif one.value is None:
                one.keep(args[place])
