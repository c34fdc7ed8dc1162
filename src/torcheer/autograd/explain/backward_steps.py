"""`explain`: a backward pass as a list of steps: the formula, what each read, what came, what it passed on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.backward.backward_pass import reached, run_backward, sum_to
from torcheer.autograd.explain.operation_names import Names, origin, source_of
from torcheer.autograd.tape.autograd_methods import starts_of
from torcheer.autograd.tape.multiple_outputs import Bundle
from torcheer.autograd.tape.nodes import GONE, Node, parents_of, reads_value
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.capture.record.tensor_trees import walk
from torcheer.errors import GraphFreed
from torcheer.history.text.latex_text import plain
from torcheer.records import Edge, Step


def explain(loss: Tensor, gradient: Tensor | None = None) -> Explanation:
    """Every step of `loss.backward()`, last operation first, without touching any `.grad`.

    >>> a = tracer([1.0, 2.0]).requires_grad_()
    >>> [step.name for step in explain((a * a).Sum()) if step.kind == "op"]
    ['sum', 'mul']
    """
    names = Names.around(sys._getframe(1))
    with unrecorded():
        starts = starts_of([loss], [gradient])
        maker = _Maker(names)
        leaves = [leaf for node in maker.gather(starts) for leaf in parents_of(node.args) if leaf.__class__ is not Node]
        run_backward(starts, only=leaves, create_graph=False, keep=True, watch=maker.saw)
        return Explanation(maker.steps()[::-1], names.of(loss) or "loss")


class Explanation(list[Step]):
    """Steps of a backward pass, the loss's own first; `print` shows them."""

    def __init__(self, steps: list[Step], loss: str) -> None:
        super().__init__(steps)
        self.loss = loss  # what the user calls it

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(steps: list[Step]) -> Iterator[str]:
    ops = [step for step in steps if step.kind == "op"]
    by_index = {step.index: step for step in steps}
    for number, step in enumerate(ops, 1):
        yield f"{number:>3}. {step.title or step.name}" + (
            f"   ({step.source.file}:{step.source.line})" if step.source else ""
        )
        yield f"     {plain(step.formula)}" + (f"   {step.why}" if step.why else "")
        for edge in step.parents:
            yield f"     read    {by_index[edge.parent].name:<12} {brief(by_index[edge.parent].value)}"
        yield f"     result  {'':<12} {brief(step.value)}"
        yield f"     came    {'':<12} {brief(step.gradient)}"
        for edge, part in zip(step.parents, step.passed):
            if part is not None:
                yield f"     passed  {by_index[edge.parent].name:<12} {brief(part)}"


def brief(value: Any) -> str:
    """A tensor in one line: its numbers where they are few, else its shape and range."""
    if value is None:
        return "–"
    if value.numel() > 6:
        return f"{tuple(value.shape)}   from {value.min().item():.4g} to {value.max().item():.4g}"
    text = ", ".join(f"{number:.4g}" for number in value.reshape(-1).tolist())
    return f"[{text}]" + (f" {tuple(value.shape)}" if value.dim() > 1 else "") if value.dim() else text


class _Maker:
    """Nodes, leaves and constants, numbered in the order of execution."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.came: dict[int, Any] = {}
        self.passed: dict[int, dict[int, Tensor]] = {}  # by id of a node: what it sent to each parent, by id
        self.nodes: list[Node] = []
        self.found: list[Step] = []
        self.number: dict[int, int] = {}  # id of a node or tensor -> index of its step
        self.values: dict[int, Any] = {}

    def gather(self, starts: Any) -> list[Node]:
        self.nodes = reached([start for start, _ in starts])[::-1]
        if any(node.rule is None for node in self.nodes):
            raise GraphFreed(GONE)
        return self.nodes

    def saw(self, node: Node, gradient: Tensor, passed: list[tuple[Any, Tensor]]) -> None:
        self.came[id(node)] = None if isinstance(gradient, Bundle) else gradient  # several results have one each
        sums = self.passed.setdefault(id(node), {})
        for parent, part in passed:
            if isinstance(part, Bundle):
                continue
            part = sum_to(part, parent.shape) if part.shape != parent.shape else part
            sums[id(parent)] = sums[id(parent)] + part if id(parent) in sums else part

    def steps(self) -> list[Step]:
        self.names.learn(self.nodes)
        for node in self.nodes:
            if id(node) not in self.came:
                continue
            edges, read = [], []
            for path, arg in walk(node.args):
                if isinstance(arg, (Node, Tensor)):
                    edges.append(Edge(self._index(arg), 0, path))
                    if reads_value(node.rule, node.args, path[0]):  # type: ignore[arg-type]
                        read.append(self._index(arg))
            self._add(node, tuple(edges), read)
        return self.found

    def _index(self, arg: Any) -> int:
        arg = origin(arg)
        if id(arg) not in self.number:
            leaf = arg.requires_grad
            name = self.names.of(arg) or ("leaf" if leaf else "constant")
            self.number[id(arg)] = len(self.found)
            step = Step(
                len(self.found),
                name,
                "parameter" if leaf else "constant",
                modules=self.names.home(arg),
                shape=tuple(arg.shape),
                dtype=str(arg.dtype),
                bytes=arg.numel() * arg.element_size(),
                value=arg.detach(),
                gradient=self._sum_for(arg) if leaf else None,
            )
            self.found.append(step)
        return self.number[id(arg)]

    def _sum_for(self, leaf: Tensor) -> Any:
        parts = [sums[id(leaf)] for sums in self.passed.values() if id(leaf) in sums]
        return sum(parts[1:], parts[0]) if parts else None

    def _add(self, node: Node, edges: tuple[Edge, ...], read: list[int]) -> None:
        index = self.number[id(node)] = len(self.found)
        saved = [*read, index] if node.rule.reads_result else read
        value = value_of(node, self.values)
        sent = self.passed[id(node)]
        args = [arg for _, arg in walk(node.args) if isinstance(arg, (Node, Tensor))]
        size = torch.empty((), dtype=node.dtype).element_size()
        self.found.append(
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
                self.came[id(node)],
                tuple([sent.get(id(arg)) for arg in args]),
            )
        )


def value_of(node: Node, known: dict[int, Any]) -> Any:
    """The result of a node: kept, still held by someone, or computed once more from what it read."""
    if id(node) not in known:
        known[id(node)] = _value(node, known)
    return known[id(node)]


def _value(node: Node, known: dict[int, Any]) -> Any:
    tensor = node.tensor()
    if node.value is not None:
        return node.value
    if tensor is not None and tensor._version == node.version:
        return tensor.detach()
    if node.function is None or node.rule is None:
        return None
    args = _filled(node.args, known)
    return None if args is None else node.function(*args, **node.kwargs)


def _filled(args: Any, known: dict[int, Any]) -> Any:
    found = []
    for arg in args:
        if arg.__class__ is Node:
            arg = value_of(arg, known)
            if arg is None:
                return None
        elif arg.__class__ in (list, tuple):
            arg = _filled(arg, known)
            if arg is None:
                return None
        found.append(arg)
    return tuple(found) if args.__class__ is tuple else found
