"""Nodes of the tape: what is recorded of an operation that ran."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

from torch import Tensor

from torcheer.autograd.rules.rule_table import VALUE, Rule
from torcheer.vocabulary.dtypes import DTYPES, torch_types

FLOATS = frozenset(torch_types(row for row in DTYPES.values() if row.kind == "float" and row.has_arithmetic))
FREED_TEXT = (
    "backward has already run through these operations and freed their saved values. To run it again, call the first "
    "backward with retain_graph=True, or repeat the forward pass"
)
CHANGED_TEXT = (
    "a tensor of shape {1} that the rule of {0} reads was changed between forward and backward, where nothing was "
    "recorded. Use its clone() in the forward pass, or change it after backward"
)
_order = count(1)  # creation order is a topological order: an operation's arguments exist before it


class Node:
    """One operation that ran: its saved arguments, and its backward rule."""

    __slots__ = (
        "__weakref__",
        "args",  # of the call; in place of a traced tensor the node that made it
        "device",
        "dtype",
        "family",  # weak references to the nodes whose results share memory with this one's, or None
        "fresh",  # whether no one else holds the gradient accumulated for it
        "function",
        "hooks",  # called with each gradient that arrives
        "inplace",  # whether it wrote its result into its first argument
        "kwargs",
        "order",
        "rule",
        "scope",  # the module or composite it ran in
        "shape",
        "site",  # the code that called it, and at which instruction
        "tensor",  # a weak reference to its result: the tensor owns the node, not the reverse
        "value",  # a detached alias of its result, if some rule reads it
        "value_version",  # version counter of that value when it was saved
        "version",  # version counter of the result when it was made
        "versions",  # (tensor, version counter) of each tensor that the rule reads and that has no node
    )

    def __init__(self, rule: Rule, function: Any, args: Any, kwargs: Any, versions: Any, out: Tensor) -> None:
        self.order = next(_order)
        self.rule, self.function, self.args, self.kwargs, self.versions = rule, function, args, kwargs, versions
        self.shape, self.dtype, self.device = out.shape, out.dtype, out.device
        self.tensor: Callable[[], Tensor | None] = weakref.ref(out)
        self.version = out._version
        self.value: Any = None
        self.value_version = 0
        if rule.reads_result:
            self.keep(out)
        self.scope: Any = None
        self.site: Any = None
        self.family: list[weakref.ref[Node]] | None = None
        self.hooks: Any = ()
        self.inplace = self.fresh = False

    def keep(self, result: Tensor) -> None:
        """Save the result as a detached alias: holding the result itself would be a cycle."""
        self.value = result.detach()
        self.value_version = self.value._version

    @property
    def ndim(self) -> int:
        """Number of axes. A rule that reads only the shape of an argument receives the node itself."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of axes, as `Tensor.dim` does."""
        return len(self.shape)

    @property
    def parents(self) -> list[Node | Tensor]:
        """Where gradients flow to: nodes, and leaves that require one."""
        return list(parents_of(self.args))

    def __lt__(self, other: Node) -> bool:  # order of the heap: newest first
        return self.order > other.order

    def __reduce__(self) -> Any:  # a copied or saved tensor has no node; torch.load allows this type
        return OrderedDict, ()


class Leaf:
    """A leaf that requires a gradient, during a backward pass."""

    __slots__ = ("dtype", "fresh", "hooks", "order", "shape", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.shape, self.dtype = tensor, tensor.shape, tensor.dtype
        self.order = 0
        self.fresh = False
        self.hooks = hooks_of(tensor)

    __lt__ = Node.__lt__


def hooks_of(leaf: Tensor) -> list[Any]:
    """Return the hooks of a leaf: torch's own list of hooks, and a tracer's."""
    return [*(leaf._backward_hooks or {}).values(), *getattr(leaf, "_torcheer_hooks", ())]


def parents_of(args: Any) -> Iterator[Node | Tensor]:
    """Yield the nodes and the leaves that require a gradient, also inside lists."""
    for arg in args:
        if arg.__class__ is Node or (isinstance(arg, Tensor) and arg.requires_grad):
            yield arg
        elif arg.__class__ is list or arg.__class__ is tuple:
            yield from parents_of(arg)


def reads_value(rule: Rule, args: Any, place: int) -> bool:
    """True if a rule reads the value of an argument, given which others need a gradient."""
    partner = rule.partners.get(place)
    if partner is None:
        return rule.reads[place] is VALUE
    return any(True for _ in parents_of(args[partner : partner + 1]))


def node_of(tensor: Any) -> Node | None:
    """Return the node of the operation that made a tensor, or None."""
    node = getattr(tensor, "_torcheer", None)
    return node if node.__class__ is Node else None


def _is_kept(arg: Any) -> bool:
    return isinstance(arg, (Node, Tensor)) or (arg.__class__ in (list, tuple) and any(map(_is_kept, arg)))


def free(node: Node) -> None:
    """Free everything a node saved; one that saved nothing stays usable."""
    rule: Any = node.rule
    if rule.reads_result or any(reads and _is_kept(arg) for reads, arg in zip(rule.reads, node.args)):
        node.rule, node.args, node.versions, node.value = cast(Any, None), (), (), None


def is_traced(tensor: Tensor) -> bool:
    """True if a gradient can reach a tensor."""
    return node_of(tensor) is not None or tensor.requires_grad or views_written_base(tensor)


def views_written_base(tensor: Tensor) -> bool:
    """True for a view of a tensor that became traced by a write after the view was made."""
    base = tensor._base
    return base is not None and getattr(node_of(base), "inplace", False)
