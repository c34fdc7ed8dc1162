"""What a node saves of its arguments.

For a traced tensor the node that made it, for anything else the object itself.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Parameter

from torcheer.autograd.rules.rule_table import VALUE, Rule
from torcheer.autograd.tape.inplace_writes import refresh_node
from torcheer.autograd.tape.nodes import Node, is_traced, reads_value, views_written_base
from torcheer.capture.record.tensor_trees import leaves, snapshot
from torcheer.errors import NotTraced

HIDDEN_TEXT = (
    "this was computed outside of autograd.record(), or in TorchScript, where no recorder can look; no gradient can go "
    "back through it. Compute it inside the block, use the module it was scripted from, or detach() it"
)


def keep_arguments(rule: Rule, args: Any) -> tuple[list[Any], list[Any], bool]:
    """Return what to save, version counters of what the rule reads, and whether any is traced."""
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
            entry = keep(arg, reads[place], versions)
            traced = traced or entry.__class__ is Node or entry is arg
            kept.append(entry)
        elif (kind is tuple or kind is list) and leaves(arg):
            kept.append(_keep_nested(arg, reads[place], versions))
            traced = traced or any(is_traced(tensor) for tensor in leaves(arg))
        else:
            kept.append(snapshot(arg) if kind is list else _freeze_slice(arg) if kind is slice else arg)
    if traced and rule.partners:
        _keep_partners(rule, args, kept, versions)
    return kept, versions, traced


def keep(tensor: Tensor, reads: int, versions: list[Any]) -> Any:
    """Return the node that made a tensor, its value saved if needed; or the tensor itself."""
    node = getattr(tensor, "_torcheer", None)
    if node.__class__ is not Node:
        if not views_written_base(tensor):
            if reads is VALUE:
                versions.append((tensor, tensor._version))
            return _require_leaf(tensor) if tensor.requires_grad else _alias(tensor)
        node = refresh_node(tensor, None)
    elif tensor._version != node.version:
        node = refresh_node(tensor, node)
    if reads is VALUE and node.value is None:
        node.keep(tensor)
    return node


def _require_leaf(tensor: Tensor) -> Tensor:
    if not tensor.is_leaf:
        raise NotTraced(HIDDEN_TEXT)
    return tensor


def _alias(tensor: Tensor) -> Tensor:
    """Return an alias: the tensor requires no gradient now, and might when backward runs."""
    alias = tensor.detach()
    alias._of = tensor  # type: ignore[attr-defined]
    return alias


def _freeze_slice(part: slice) -> slice:
    """Convert the tensors in a slice to the numbers they hold now."""
    bounds = (part.start, part.stop, part.step)
    if not any(isinstance(bound, Tensor) for bound in bounds):
        return part
    return slice(*[int(bound) if isinstance(bound, Tensor) else bound for bound in bounds])


def _keep_nested(arg: Any, reads: int, versions: list[Any]) -> Any:
    kept: list[Any] = []
    for item in arg:
        if isinstance(item, Tensor):
            kept.append(keep(item, reads, versions))
        else:
            kept.append(
                _keep_nested(item, reads, versions)
                if item.__class__ in (list, tuple)
                else _freeze_slice(item)
                if item.__class__ is slice
                else item
            )
    return tuple(kept) if arg.__class__ is tuple else kept


def _keep_partners(rule: Rule, args: Any, kept: list[Any], versions: list[Any]) -> None:
    """Save the values of arguments that are read for the gradient of their partner."""
    for place in rule.partners:
        entry = kept[place] if place < len(kept) else None
        if isinstance(entry, (Node, Tensor)) and reads_value(rule, kept, place):
            if isinstance(entry, Tensor):
                versions.append((entry, entry._version))
            elif entry.value is None:
                entry.keep(args[place])
