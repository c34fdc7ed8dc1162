"""`explain`: a backward pass as a list of steps.

A step has a formula, the values it read, the gradient it received and those it passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.operation_names import OperationNames, origin, source_of
from torcheer.autograd.gradients.backward_pass import reachable_nodes, run_backward, sum_to
from torcheer.autograd.tape.autograd_methods import starts_of
from torcheer.autograd.tape.multiple_outputs import Bundle
from torcheer.autograd.tape.nodes import FREED_TEXT, Node, parents_of, reads_value
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.capture.record.tensor_trees import walk
from torcheer.errors import GraphFreed
from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import Edge, Step


def explain(loss: Tensor, gradient: Tensor | None = None) -> Explanation:
    """Return every step of `loss.backward()`, last operation first; no `.grad` is touched.

    Args:
        loss: the tensor to start from.
        gradient: its gradient; one for a scalar if left out.

    >>> a = tracer([1.0, 2.0]).requires_grad_()
    >>> [step.name for step in explain((a * a).Sum()) if step.kind == "op"]
    ['sum', 'mul']
    """
    names = OperationNames.around(sys._getframe(1))
    with unrecorded():
        starts = starts_of([loss], [gradient])
        builder = _StepBuilder(names)
        leaves = [
            leaf for node in builder.gather(starts) for leaf in parents_of(node.args) if leaf.__class__ is not Node
        ]
        run_backward(starts, only=leaves, create_graph=False, keep=True, watch=builder.observe)
        return Explanation(builder.build()[::-1], names.of(loss) or "loss")


class Explanation(list[Step]):
    """The steps of a backward pass, the loss first; `print` shows them."""

    def __init__(self, steps: list[Step], loss: str) -> None:
        super().__init__(steps)
        self.loss = loss  # the name of the user's variable

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(steps: list[Step]) -> Iterator[str]:
    ops = [step for step in steps if step.kind == "op"]
    by_index = {step.index: step for step in steps}
    for number, step in enumerate(ops, 1):
        yield f"{number:>3}. {step.title or step.name}" + (
            f"   ({step.source.file}:{step.source.line})" if step.source else ""
        )
        yield f"     {latex_to_text(step.formula)}" + (f"   {step.why}" if step.why else "")
        for edge in step.parents:
            yield f"     read    {by_index[edge.parent].name:<12} {brief(by_index[edge.parent].value)}"
        yield f"     result  {'':<12} {brief(step.value)}"
        yield f"     came    {'':<12} {brief(step.gradient)}"
        for edge, part in zip(step.parents, step.passed):
            if part is not None:
                yield f"     passed  {by_index[edge.parent].name:<12} {brief(part)}"


def brief(value: Any) -> str:
    """Format a tensor in one line: its numbers if they are few, else its shape and range."""
    if value is None:
        return "–"
    if value.numel() > 6:
        return f"{tuple(value.shape)}   from {value.min().item():.4g} to {value.max().item():.4g}"
    text = ", ".join(f"{number:.4g}" for number in value.reshape(-1).tolist())
    return f"[{text}]" + (f" {tuple(value.shape)}" if value.dim() > 1 else "") if value.dim() else text


class _StepBuilder:
    """Builds the steps: nodes, leaves and constants, numbered in the order of execution."""

    def __init__(self, names: OperationNames) -> None:
        self.names = names
        self.received: dict[int, Any] = {}  # id of a node -> the gradient of its result
        self.passed: dict[int, dict[int, Tensor]] = {}  # id of a node -> id of a parent -> the gradient sent to it
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.index_by_id: dict[int, int] = {}  # id of a node or tensor -> index of its step
        self.values: dict[int, Any] = {}

    def gather(self, starts: Any) -> list[Node]:
        self.nodes = reachable_nodes([start for start, _ in starts])[::-1]
        if any(node.rule is None for node in self.nodes):
            raise GraphFreed(FREED_TEXT)
        return self.nodes

    def observe(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        self.received[id(node)] = (
            None if isinstance(gradient, Bundle) else gradient
        )  # each of several results has its own
        sums = self.passed.setdefault(id(node), {})
        for parent, part in passed:
            if isinstance(part, Bundle):
                continue
            part = sum_to(part, parent.shape) if part.shape != parent.shape else part
            sums[id(parent)] = sums[id(parent)] + part if id(parent) in sums else part

    def build(self) -> list[Step]:
        self.names.learn(self.nodes)
        for node in self.nodes:
            if id(node) not in self.received:
                continue
            edges, read_indices = [], []
            for path, arg in walk(node.args):
                if isinstance(arg, (Node, Tensor)):
                    edges.append(Edge(self._index(arg), 0, path))
                    if reads_value(node.rule, node.args, path[0]):  # type: ignore[arg-type]
                        read_indices.append(self._index(arg))
            self._add(node, tuple(edges), read_indices)
        return self.steps

    def _index(self, arg: Any) -> int:
        arg = origin(arg)
        if id(arg) not in self.index_by_id:
            leaf = arg.requires_grad
            name = self.names.of(arg) or ("leaf" if leaf else "constant")
            self.index_by_id[id(arg)] = len(self.steps)
            step = Step(
                len(self.steps),
                name,
                "parameter" if leaf else "constant",
                modules=self.names.home(arg),
                shape=tuple(arg.shape),
                dtype=str(arg.dtype),
                bytes=arg.numel() * arg.element_size(),
                value=arg.detach(),
                gradient=self._sum_for(arg) if leaf else None,
            )
            self.steps.append(step)
        return self.index_by_id[id(arg)]

    def _sum_for(self, leaf: Tensor) -> Any:
        parts = [sums[id(leaf)] for sums in self.passed.values() if id(leaf) in sums]
        return sum(parts[1:], parts[0]) if parts else None

    def _add(self, node: Node, edges: tuple[Edge, ...], read_indices: list[int]) -> None:
        index = self.index_by_id[id(node)] = len(self.steps)
        saved = [*read_indices, index] if node.rule.reads_result else read_indices
        value = value_of(node, self.values)
        sent = self.passed[id(node)]
        args = [arg for _, arg in walk(node.args) if isinstance(arg, (Node, Tensor))]
        size = torch.empty((), dtype=node.dtype).element_size()
        self.steps.append(
            Step(
                index,
                node.rule.name,
                "op",
                self.names.title(node),
                edges,
                tuple(dict.fromkeys(saved)),
                node.rule.formula,
                node.rule.why,
                self.names.path(node),
                source_of(node),
                tuple(node.shape),
                str(node.dtype),
                node.shape.numel() * size,
                node.rule.borrowed,
                value,
                self.received[id(node)],
                tuple([sent.get(id(arg)) for arg in args]),
            )
        )


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
