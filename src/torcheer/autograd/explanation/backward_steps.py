"""`explain`: a backward pass as a list of operations.

Each has a formula, the values it read, the gradient it received and those it passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from torch import Tensor

from torcheer.autograd.explanation.backward_trace import BackwardTrace
from torcheer.autograd.explanation.operation_names import OperationNames
from torcheer.autograd.gradients.backward_pass import run_backward
from torcheer.autograd.tape.autograd_methods import starts_of
from torcheer.autograd.tape.nodes import Node, parents_of
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.history import ModelHistory
from torcheer.history.op_views import OpList, OpView
from torcheer.history.text.latex_text import latex_to_text
from torcheer.public_names import PublicClass
from torcheer.records import BackwardStep, Op
from torcheer.terminal.streams import encodable


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
        trace = BackwardTrace(starts, names, names.of(loss) or "loss")
        leaves = [leaf for node in trace.nodes for leaf in parents_of(node.args) if leaf.__class__ is not Node]
        run_backward(starts, only=leaves, create_graph=False, keep=True, watch=trace.observe)
        trace.build()
        return Explanation(ModelHistory(trace), trace.passed)


class StepView(OpView):
    """One step of a backward pass: an operation or leaf of its history, with its rule and gradients."""

    __slots__ = ("passed",)
    # of its rule, through `__getattr__`
    formula: str
    why: str
    saved: tuple[int, ...]
    borrowed: bool
    title: str
    passed: tuple[Any, ...]  # the gradient that its rule sent to each of `edges`; None where it sent none

    def __init__(self, history: ModelHistory, record: Op, passed: tuple[Any, ...]) -> None:
        super().__init__(history, record)
        self.passed = passed

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in BackwardStep.__slots__:
                return getattr(self.record.backward or BackwardStep(), name)
            return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *BackwardStep.__slots__})

    @property
    def value(self) -> Any:
        """Its result; None if it was not kept and cannot be computed again."""
        return self.tensor_contents if self.is_saved else None

    @property
    def gradient(self) -> Any:
        """The gradient of the loss with respect to its result, including the loss's own 1."""
        return self.grad_contents


class Explanation(OpList, metaclass=PublicClass):
    """The steps of a backward pass, the loss first; `print` shows them, `history` is all of it to look up and save."""

    def __init__(self, history: ModelHistory, passed: dict[int, tuple[Any, ...]]) -> None:
        super().__init__(StepView(history, op, passed.get(op.index, ())) for op in reversed(history.ops))
        self.history = history

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[StepView]: ...
        @overload
        def __getitem__(self, place: SupportsIndex) -> StepView: ...
        @overload
        def __getitem__(self, place: slice) -> OpList: ...
        def __getitem__(self, place: Any) -> Any: ...

    @property
    def loss(self) -> str:
        """The name of the user's variable that holds the loss."""
        return self.history.model_name

    def __str__(self) -> str:
        return encodable("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        by_index = {step.index: step for step in self}
        for number, step in enumerate((step for step in self if step.kind == "op"), 1):
            yield f"{number:>3}. {step.title or step.name}" + (
                f"   ({step.source.file}:{step.source.line})" if step.source else ""
            )
            yield f"     {latex_to_text(step.formula)}" + (f"   {step.why}" if step.why else "")
            for edge in step.edges:
                yield f"     read    {by_index[edge.parent].name:<12} {brief(by_index[edge.parent].value)}"
            yield f"     result  {'':<12} {brief(step.value)}"
            yield f"     came    {'':<12} {brief(step.gradient)}"
            for edge, part in zip(step.edges, step.passed):
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
