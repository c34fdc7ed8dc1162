"""A backward pass as the source of a history: its ops, their values and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.operation_names import OperationNames, origin, source_of
from torcheer.autograd.explanation.recorded_calls import Read, RecordedCall
from torcheer.autograd.gradients.backward_pass import reachable_nodes, sum_to
from torcheer.autograd.tape.multiple_outputs import Bundle
from torcheer.autograd.tape.nodes import FREED_TEXT, Node, reads_value
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import walk
from torcheer.errors import GraphFreed, ValueUnavailable
from torcheer.history.trace_protocol import Trace
from torcheer.records import BackwardStep, Edge, ModuleCall, Op, RunInfo, Stored, TensorMeta


class BackwardTrace(Trace):
    """Nodes, leaves and constants as ops, numbered in the order of execution."""

    def __init__(self, starts: list[Any], names: OperationNames, loss: str) -> None:
        self.nodes = reachable_nodes([start for start, _ in starts])[::-1]
        if any(node.rule is None for node in self.nodes):
            raise GraphFreed(FREED_TEXT)
        self._names, self._loss = names, loss
        self._ops: list[Op] = []
        self.results: list[Any] = []  # of each op; None if it is lost
        self.all_gradients: list[Any] = []  # of each op; None if none came, or one for each of several results
        self.passed: dict[int, tuple[Any, ...]] = {}  # op -> the gradient sent to each parent; None if none was
        self._received: dict[int, Any] = {}  # id of a node -> the gradient of its result
        self._sent: dict[
            int, list[tuple[int, Tensor]]
        ] = {}  # id of a node -> id of a parent and the gradient sent to it
        self._arrived: dict[int, list[Tensor]] = {}  # id of a node or leaf -> the gradients sent to it, in order
        self.broadcast: dict[tuple[int, int], tuple[int, ...]] = {}  # op, edge -> the shape before its sum over copies
        self.calls: list[RecordedCall | None] = []  # of each op; None for leaves
        self._document = ""  # the steps for a page, once they were asked for
        self._index_by_id: dict[int, int] = {}  # id of a node or tensor -> index of its op
        self._known: dict[int, Any] = {}

    # While backward runs

    def observe(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        """Collect the gradients that came to a node, and those that it sent."""
        self._received[id(node)] = None if isinstance(gradient, Bundle) else gradient
        sent = [(parent, part) for parent, part in passed if not isinstance(part, Bundle)]
        self._sent[id(node)] = [(id(parent), part) for parent, part in sent]
        for parent, part in sent:
            self._arrived.setdefault(id(parent), []).append(part)

    def build(self) -> None:
        """Make the ops of everything that was observed, and forget the nodes."""
        self._names.learn(self.nodes)
        for node in self.nodes:
            if id(node) in self._received:
                self._add_node(node)
        self._ops = with_outputs(self._ops)
        self.nodes = []
        self._received, self._sent, self._arrived, self._index_by_id, self._known = {}, {}, {}, {}, {}

    def _add_node(self, node: Node) -> None:
        args = [(path, arg) for path, arg in walk(node.args) if isinstance(arg, (Node, Tensor))]
        edges = tuple([Edge(self._index(arg), 0, path) for path, arg in args])
        saved = [edge.parent for edge in edges if reads_value(node.rule, node.args, edge.where[0])]  # type: ignore[arg-type]
        index = self._index_by_id[id(node)] = len(self._ops)
        rule, passed = node.rule, self._passed(node, index, [arg for _, arg in args])
        step = BackwardStep(
            rule.formula,
            rule.why,
            tuple(dict.fromkeys([*saved, index] if rule.reads_result else saved)),
            tuple([part is not None for part in passed]),
            rule.borrowed,
            self._names.title(node),
        )
        size = node.shape.numel() * torch.empty((), dtype=node.dtype).element_size()
        meta = TensorMeta(tuple(node.shape), str(node.dtype), str(node.device), size, True)
        read = [(self._ops[edge.parent], edge.where) for edge in edges]
        stored = tuple([_stored(op, where) for op, where in read if op.kind == "parameter"])
        op = Op(
            index, rule.name, "op", edges, (meta,), stored, self._names.path(node), source=source_of(node),
            inplace=node.inplace, backward=step,
        )  # fmt: skip
        call = RecordedCall(node.function, self._recorded(node.args), node.kwargs, rule)
        self._add(op, value_of(node, self._known), self._received[id(node)], call)
        self.passed[index] = passed

    def _passed(self, node: Node, index: int, args: list[Any]) -> tuple[Any, ...]:
        """Return the gradient that was sent along each edge, summed over the copies of a broadcast value."""
        sent, passed = list(self._sent[id(node)]), list[Any]()
        for number, arg in enumerate(args):
            place = next((place for place, (parent, _) in enumerate(sent) if parent == id(arg)), -1)
            part = sent.pop(place)[1] if place >= 0 else None
            if part is not None and part.shape != arg.shape:
                self.broadcast[index, number] = tuple(part.shape)
            passed.append(None if part is None else _fitted(part, arg))
        return tuple(passed)

    def _recorded(self, value: Any) -> Any:
        """Return arguments with the op of each tensor in its place."""
        if isinstance(value, (Node, Tensor)):
            return Read(self._index(value))
        if value.__class__ in (list, tuple):
            return value.__class__([self._recorded(item) for item in value])
        return value

    def _index(self, arg: Any) -> int:
        """Return the index of the op that made an argument; a leaf is added when it is first read."""
        arg = origin(arg)
        if id(arg) not in self._index_by_id:
            is_leaf = arg.requires_grad
            name = self._names.of(arg) or ("leaf" if is_leaf else "constant")
            index = self._index_by_id[id(arg)] = len(self._ops)
            kind = "parameter" if is_leaf else "constant"
            op = Op(index, name, kind, outputs=(meta_of(arg),), modules=self._names.home(arg))
            self._add(op, arg.detach(), self._sum_for(arg) if is_leaf else None, None)
        return self._index_by_id[id(arg)]

    def _sum_for(self, leaf: Tensor) -> Any:
        parts = [_fitted(part, leaf) for part in self._arrived.get(id(leaf), ())]
        return sum(parts[1:], parts[0]) if parts else None

    def _add(self, op: Op, value: Any, gradient: Any, call: RecordedCall | None) -> None:
        self._ops.append(op)
        self.results.append(value)
        self.all_gradients.append(gradient)
        self.calls.append(call)

    # What a history asks

    def ops(self) -> list[Op]:
        """Return every operation and leaf, in order of execution."""
        return self._ops

    def info(self) -> RunInfo:
        """Return the facts of the pass: it is called by the name of its loss."""
        return RunInfo(self._loss, stored={name: _stored(self._ops[n]) for name, n in self._parameters().items()})

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would return a tensor."""
        return self.results[index] is not None

    def value(self, index: int, output: int) -> Any:
        """Return the result of an op; raises ValueUnavailable."""
        if self.results[index] is None:
            raise ValueUnavailable("it was not kept for backward, and cannot be computed again")
        return self.results[index]

    def gradients(self, index: int, output: int) -> list[Any]:
        """Return the gradient of the loss with respect to a result, if one came."""
        return [] if self.all_gradients[index] is None else [self.all_gradients[index]]

    def stored_gradients(self, name: str) -> list[Any]:
        """Return the whole gradient of a parameter."""
        return self.gradients(self._parameters()[name], 0)

    def stored_value(self, name: str) -> Any:
        """Return a parameter as it was when first read."""
        return self.value(self._parameters()[name], 0)

    def backward_text(self) -> str:
        """Return the steps for a page: made, and their rules checked, when this is first called."""
        from torcheer.autograd.explanation.step_document import step_document

        if not self._document:
            self._document = step_document(self)
        return self._document

    def _parameters(self) -> dict[str, int]:
        return {op.name: op.index for op in self._ops if op.kind == "parameter"}


def _fitted(part: Tensor, place: Node | Tensor) -> Tensor:
    """Return a gradient in the shape and dtype of what it belongs to."""
    part = sum_to(part, place.shape) if part.shape != place.shape else part
    return part.to(place.dtype)


def with_outputs(ops: list[Op]) -> list[Op]:
    """Tell each op which module calls returned its result: those that a reader of it is outside of, or all."""
    readers: dict[int, list[set[ModuleCall]]] = {}  # op -> the calls that each reader of its result is in
    for op in ops:
        calls = set(op.modules)
        for edge in op.parents:
            readers.setdefault(edge.parent, []).append(calls)

    def returned(op: Op) -> tuple[ModuleCall, ...]:
        around = readers.get(op.index, [set()])
        return tuple([call for call in op.modules if any(call not in calls for calls in around)])

    return [replace(op, output_of=returned(op)) if op.kind == "op" else op for op in ops]


def _stored(op: Op, where: tuple[int | str, ...] = ()) -> Stored:
    """Return the parameter of a leaf, as read at a position of an operation."""
    meta = op.outputs[0]
    return Stored(op.name, "parameter", meta.shape, meta.dtype, meta.bytes, True, where)


def value_of(node: Node, cache: dict[int, Any]) -> Any:
    """Return the result of a node: saved, alive or recomputed; None if none of these."""
    if id(node) not in cache:
        cache[id(node)] = _value(node, cache)
    return cache[id(node)]


def _value(node: Node, cache: dict[int, Any]) -> Any:
    tensor = node.tensor()
    if node.value is not None:
        return node.value
    if tensor is not None and tensor._version == node.version:
        return tensor.detach()
    if node.function is None or node.rule is None:
        return None
    args = _argument_values(node.args, cache)
    return None if args is None else node.function(*args, **node.kwargs)


def _argument_values(args: Any, cache: dict[int, Any]) -> Any:
    """Return the values of arguments, lists included; None if one of them is lost."""
    values = []
    for arg in args:
        if arg.__class__ is Node:
            arg = value_of(arg, cache)
            if arg is None:
                return None
        elif arg.__class__ in (list, tuple):
            arg = _argument_values(arg, cache)
            if arg is None:
                return None
        values.append(arg)
    return tuple(values) if args.__class__ is tuple else values
